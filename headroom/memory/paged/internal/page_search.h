// PageSearch: which pages are free now, and which window of addresses to back: the one that lacks
// the fewest pages.
//
//   search.begin();                                        // which pages are free now?
//   auto window = search.best_window(arena, size);         // lacks the fewest pages
//   auto backed = mover.back(arena, *window, {.moves_own = true});
//
// Every function requires the allocator's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/memory/paged/internal/page_budget.h"
#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

struct PageWindow {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  // The run of addresses without a held block that it lies in.
  DeviceAddress run_begin = 0;
  DeviceAddress run_end = 0;
};

class PageSearch {
 public:
  PageSearch(StreamClocks& clocks, PageTable& table, const PageBudget& budget) noexcept
      : clocks_(clocks), table_(table), budget_(budget) {}
  PageSearch(const PageSearch&) = delete;
  PageSearch& operator=(const PageSearch&) = delete;

  // Looks which pages are free, and what the streams have finished. All that follows is true until
  // the next change of a block.
  void begin();
  [[nodiscard]] std::optional<PageWindow> best_window(const PageArena& arena,
                                                      std::uint64_t size_bytes) const;
  // Slots behind all that were ever mapped; nothing where the arena has no such left.
  [[nodiscard]] std::optional<PageWindow> fresh_window(const PageArena& arena,
                                                       std::uint64_t size_bytes) const;

  // --- As of the last begin() -------------------------------------------------------------------

  // Free bytes in pages that hold something else too.
  [[nodiscard]] std::uint64_t stuck_bytes() const noexcept { return stuck_bytes_; }
  // Bytes of the pages that are free.
  [[nodiscard]] std::uint64_t free_page_bytes() const noexcept { return free_page_bytes_; }
  // Halves of pages are created rather than whole ones.
  [[nodiscard]] bool wants_halves() const noexcept { return wants_halves_; }
  // The holes around free pages.
  [[nodiscard]] const std::vector<PagedBlock*>& covers() const noexcept { return covers_; }
  // The same, the stream's own first, then those that were free for longest.
  [[nodiscard]] const std::vector<PagedBlock*>& covers_for(const StreamClock& own);

 private:
  [[nodiscard]] bool can_have(const PageArena& arena,
                              const PageSlot& slot,
                              SlotRange window) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> window_cost(const PageArena& arena,
                                                         const PageWindow& window,
                                                         std::uint64_t best) const;
  void take_back_large();

  StreamClocks& clocks_;
  PageTable& table_;
  const PageBudget& budget_;
  bool wants_halves_ = false;
  std::uint64_t stuck_bytes_ = 0;
  std::uint64_t free_page_bytes_ = 0;
  std::vector<PagedBlock*> covers_{};
  const StreamClock* covers_sorted_for_ = nullptr;
};

// Bytes of the pages that hold nothing now and that a block at [begin, end) of a hole would take.
[[nodiscard]] std::uint64_t free_page_bytes_touched(const PagedBlock& hole,
                                                    DeviceAddress begin,
                                                    DeviceAddress end) noexcept;

}  // namespace headroom::memory::internal
