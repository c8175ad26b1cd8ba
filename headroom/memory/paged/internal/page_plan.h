// PagePlanner: which pages a window is to get: revived, moved from holes elsewhere, or created. It
// does nothing yet; PageMover carries the plan out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/memory/paged/internal/page_budget.h"
#include "headroom/memory/paged/internal/page_search.h"
#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

// Where missing pages may come from, in this order.
struct PageSupply {
  bool creates_in_cushion = false;
  bool moves_own = false;     // free pages of the same stream
  bool moves_others = false;  // of other streams, behind an event
  bool creates = false;       // up to the limit
  bool breaks_large = false;  // larger pages where smaller ones are wanted
  bool wants_large = true;    // in the arena of large blocks
};

// Free pages of one size that may be taken, those that were free for longest first: looked up hole
// by hole, as they are asked for.
struct Donors {
  bool is_begun = false;
  std::size_t next_cover = 0;  // of PageSearch::covers_for
  std::vector<Page*> pages{};
  std::size_t used = 0;
};

struct PagePlan {
  PageArena* arena = nullptr;
  SlotRange vacant{};              // of the run that the window lies in
  std::vector<NewHome> needs{};    // places to map, by slot
  std::vector<NewHome> revived{};  // places that get a page which they map already
  std::vector<Page*> taken{};      // from elsewhere, or created
  std::vector<Page*> kept{};       // at home in the window already
  bool is_blocked = false;         // by a stale mapping that may be in use
  std::uint64_t missing = 0;       // slots for which there is no page
  std::uint64_t created_bytes = 0;
  std::array<Donors, kPageSizes> donors{};

  [[nodiscard]] bool is_possible() const noexcept { return missing == 0 && !is_blocked; }
};

class PagePlanner {
 public:
  PagePlanner(StreamClocks& clocks,
              PageTable& table,
              PageSearch& search,
              const PageBudget& budget) noexcept
      : clocks_(clocks), table_(table), search_(search), budget_(budget) {}
  PagePlanner(const PagePlanner&) = delete;
  PagePlanner& operator=(const PagePlanner&) = delete;

  // For a window of the last search. The pages that the plan takes are marked as taken, until it is
  // carried out or forgotten.
  [[nodiscard]] PagePlan draw(PageArena& arena, const PageWindow& window, PageSupply supply);
  // Its pages are free again for another plan.
  void forget(const PagePlan& plan) const noexcept;

 private:
  [[nodiscard]] bool may_revive(const PageArena& arena,
                                const Page& page,
                                PageSupply supply) const noexcept;
  [[nodiscard]] SlotRange with_whole_pages(const PageArena& arena,
                                           SlotRange touched,
                                           SlotRange vacant) const noexcept;
  void keep_homes(PagePlan& plan, SlotRange range);
  [[nodiscard]] std::vector<SlotRange> revive(PagePlan& plan, SlotRange range, PageSupply supply);
  void fill_ends(PagePlan& plan, SlotRange& run, PageSupply supply);
  void fill_run(PagePlan& plan, SlotRange run, PageSupply supply);
  [[nodiscard]] std::uint64_t fill_next(PagePlan& plan, SlotRange run, PageSupply supply);
  bool obtain_usual(PagePlan& plan, std::uint64_t slot, PageSupply supply);
  bool obtain(PagePlan& plan, std::uint64_t slot, PageClass& pages, PageSupply supply);
  bool create(PagePlan& plan, std::uint64_t slot, PageClass& pages, bool in_cushion);
  void give_up_last(PagePlan& plan) const noexcept;
  [[nodiscard]] bool may_create(const PagePlan& plan,
                                const PageClass& pages,
                                bool in_cushion) const;
  [[nodiscard]] Page* next_donor(PagePlan& plan, PageClass& pages, PageSupply supply);
  [[nodiscard]] bool has_room(const PagePlan& plan, std::uint64_t slot, std::uint64_t span) const;

  StreamClocks& clocks_;
  PageTable& table_;
  PageSearch& search_;
  const PageBudget& budget_;
};

}  // namespace headroom::memory::internal
