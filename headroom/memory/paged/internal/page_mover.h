// PageMover: asks the device for what the pages of an allocator need: creates them, maps them where
// they are wanted, unmaps what is stale, and gives them back.
//
// A plan is carried out in two halves. First the device is asked for everything: pages are created,
// stale slots unmapped, wanted slots mapped. Each call that succeeds is written into the table at
// once, so that a failure in the middle leaves it true: a page too many is loose, a slot that was
// mapped for nothing is stale. Then the blocks change, which cannot fail.
//
// Every function requires the allocator's lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/paged/internal/page_ends.h"
#include "headroom/memory/paged/internal/page_plan.h"

namespace headroom::memory::internal {

enum class Backing : std::uint8_t { kDone, kTooFew, kDeviceFailed };

struct Backed {
  Backing outcome = Backing::kTooFew;
  PagedBlock* hole = nullptr;  // around the window, where it is done
  device::DeviceStatus status{};
  std::uint64_t missing_bytes = 0;  // where there were too few pages
};

class PageMover {
 public:
  PageMover(device::Device& device,
            StreamClocks& clocks,
            PageTable& table,
            PageSearch& search,
            PagePlanner& planner,
            PageBudget& budget) noexcept
      : device_(device),
        clocks_(clocks),
        table_(table),
        search_(search),
        planner_(planner),
        budget_(budget) {}
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // Makes the window of the last search part of a hole. When it cannot, nothing is lost: what was
  // created or mapped on the way stays for later. May throw bad_alloc before anything was done.
  Backed back(PageArena& arena, const PageWindow& window, PageSupply supply);
  // The same for a window whose ends are parts of pages in use elsewhere.
  Backed back_between_ends(PageArena& arena, const EndsWindow& window, PageSupply supply);
  // Brings loose pages to places of one arena, if nothing is in the way there. Calls the device
  // only where a place does not map its page already.
  void bring_home(PageArena& arena, std::vector<NewHome> homes);

  // --- Giving back, in page_release.cpp --------------------------------------------------------

  // Gives free pages back to the device whose size does not fit everywhere in the arena, those that
  // were free for longest first, until `wanted_bytes` of others fit. Only such as no stream uses
  // any more. True when they fit. Begins a new search.
  bool make_room(const PageArena& arena, std::uint64_t wanted_bytes, bool in_cushion);
  // Gives back at most `most_bytes` of free pages.
  std::uint64_t release_free(std::uint64_t most_bytes);
  // Gives back loose pages: what a request created that failed in the end.
  void release_loose() noexcept;
  // Unmaps stale slots that nobody uses; at most `most`. Returns how many.
  std::uint64_t unmap_stale(std::uint64_t most);
  // Unmaps everything and gives every page back; nobody uses one. What the device keeps is its own.
  void release_all() noexcept;

 private:
  void revive_mapped(PagePlan& plan);
  void prepare(PagePlan& plan);
  [[nodiscard]] device::DeviceResult<void> create_missing(PagePlan& plan);
  [[nodiscard]] device::DeviceResult<Page*> create_page(PageClass& pages);
  [[nodiscard]] device::DeviceResult<void> order_streams(const PagePlan& plan) noexcept;
  [[nodiscard]] device::DeviceResult<void> unmap_in_the_way(
      PageArena& arena, std::span<const NewHome> places) noexcept;
  [[nodiscard]] device::DeviceResult<void> map(PageArena& arena,
                                               std::span<const NewHome> places) noexcept;
  [[nodiscard]] device::DeviceResult<void> map_run(PageArena& arena,
                                                   std::span<const NewHome> run) noexcept;
  PagedBlock& commit(PagePlan& plan) noexcept;
  [[nodiscard]] device::DeviceResult<void> unmap(Page& page, PagePlace place) noexcept;
  [[nodiscard]] bool can_unmap_all(const Page& page) const noexcept;
  bool release_page(Page& page) noexcept;
  [[nodiscard]] std::vector<Page*> pages_to_replace(const PageArena& arena);
  void release_some(PageClass& pages, std::uint64_t most_bytes, std::uint64_t& released);

  device::Device& device_;
  StreamClocks& clocks_;
  PageTable& table_;
  PageSearch& search_;
  PagePlanner& planner_;
  PageBudget& budget_;
  std::vector<device::PageHandle> handles_{};  // of one call
};

}  // namespace headroom::memory::internal
