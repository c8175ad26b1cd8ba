// PageEnds: windows whose two ends are parts of pages that are in use elsewhere.
//
// Blocks that are a few pages long leave much unused at their ends: a hole between two of them may
// hold megabytes and not one whole page. Such a hole has the free end of one page, or the free
// front of another, or both. A window can begin in the one and end in the other, wherever these
// pages are, since a page may be mapped at several places; only the pages between the two are to be
// found.
//
//   at home       | held | free end |   | free front  | held |
//                            |                |
//   the window    |         head | page | page | tail        |
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

// The free bytes at one end of a page that holds something else too.
struct PageEnd {
  PagedBlock* hole = nullptr;
  Page* page = nullptr;     // null: none
  std::uint64_t bytes = 0;  // of it, those that are used
};

// From the last `head.bytes` of a page over whole slots to the first `tail.bytes` of another.
struct EndsWindow {
  PageEnd head{};
  PageEnd tail{};
  std::uint64_t head_slot = 0;  // where the pages are mapped
  SlotRange middle{};
  std::uint64_t tail_slot = 0;
  DeviceAddress begin = 0;
};

class PageEnds {
 public:
  explicit PageEnds(PageTable& table) noexcept : table_(table) {}

  // A window of this size in the arena that needs the fewest pages beside its two ends, and of
  // those one that fits best; nothing where no end helps, or where it leaves `most_waste` bytes of
  // its tail or more. As of the last search.
  [[nodiscard]] std::optional<EndsWindow> best_window(const PageArena& arena,
                                                      std::uint64_t size,
                                                      std::uint64_t most_waste);

 private:
  struct Choice {
    PageEnd head{};
    PageEnd tail{};
    std::uint64_t middle_slots = 0;
    std::uint64_t waste = 0;
    std::uint64_t cost = UINT64_MAX;
  };

  void collect(const StreamClock& clock);
  [[nodiscard]] Choice choose(std::uint64_t size, std::uint64_t slot_bytes) const;
  void consider(const PageEnd& head,
                std::uint64_t rest,
                std::uint64_t slot_bytes,
                Choice& best) const;
  [[nodiscard]] std::optional<EndsWindow> place(const PageArena& arena, const Choice& choice) const;
  [[nodiscard]] std::optional<std::uint64_t> cost_at(const PageArena& arena,
                                                     const Choice& choice,
                                                     std::uint64_t first) const;

  PageTable& table_;
  bool any_waste_ = true;  // of the search under way
  std::vector<PageEnd> heads_{};
  std::vector<PageEnd> tails_{};  // by size
};

}  // namespace headroom::memory::internal
