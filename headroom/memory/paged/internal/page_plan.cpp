#include "headroom/memory/paged/internal/page_plan.h"

#include <algorithm>

namespace headroom::memory::internal {

PagePlan PagePlanner::draw(PageArena& arena, const PageWindow& window, PageSupply supply) {
  PagePlan plan{.arena = &arena};
  if (clocks_.is_capturing()) supply.moves_own = supply.moves_others = false;
  plan.vacant = slots_within(arena, window.run_begin, window.run_end);
  const SlotRange touched =
      with_whole_pages(arena, slots_touched(arena, window.begin, window.end), plan.vacant);
  const SlotRange range{.first = std::max(touched.first, plan.vacant.first),
                        .last = std::min(touched.last, plan.vacant.last)};
  keep_homes(plan, range);
  std::vector<SlotRange> lacking = revive(plan, range, supply);
  // Single slots first: only halves fit there, which elsewhere others can stand in for.
  for (SlotRange& run : lacking) fill_ends(plan, run, supply);
  for (const SlotRange& run : lacking) fill_run(plan, run, supply);
  std::ranges::sort(plan.needs, {}, &NewHome::slot);
  return plan;
}

void PagePlanner::forget(const PagePlan& plan) const noexcept {
  for (Page* page : plan.taken) table_.mark_free(*page);
  for (Page* page : plan.kept) table_.mark_free(*page);
}

// A page that is at home in the window stays, also where an earlier slot of it maps the same page.
void PagePlanner::keep_homes(PagePlan& plan, SlotRange range) {
  const PageArena& arena = *plan.arena;
  const std::uint64_t last = std::min<std::uint64_t>(range.last, arena.slots.size());
  for (std::uint64_t i = range.first; i < last; ++i) {
    const PageSlot& slot = arena.slots[i];
    if (!is_at_home(arena, slot) || !table_.is_free(*slot.page)) continue;
    table_.mark_taken(*slot.page);
    plan.kept.push_back(slot.page);
  }
}

// Returns the slots that no page can be revived for.
std::vector<SlotRange> PagePlanner::revive(PagePlan& plan, SlotRange range, PageSupply supply) {
  const PageArena& arena = *plan.arena;
  std::vector<SlotRange> lacking;
  for (std::uint64_t i = range.first; i < range.last; ++i) {
    const PageSlot slot = table_.seen(arena, i);
    if (is_at_home(arena, slot)) continue;
    Page* const page = slot.page;
    if (page != nullptr && !plan.revived.empty() && plan.revived.back().page == page &&
        plan.revived.back().slot == slot.first) {
      continue;  // a further slot of the page before
    }
    if (page != nullptr && table_.is_free(*page) && may_revive(arena, *page, supply)) {
      table_.mark_taken(*page);
      plan.taken.push_back(page);
      plan.revived.push_back({.slot = slot.first, .pages = page->pages, .page = page});
      continue;
    }
    // The mapping that is here goes first, and may not while somebody may still use it.
    plan.is_blocked = plan.is_blocked || table_.is_in_the_way(arena, i);
    if (!lacking.empty() && lacking.back().last == i) {
      ++lacking.back().last;
    } else {
      lacking.push_back({.first = i, .last = i + 1});
    }
  }
  return lacking;
}

// Where whole pages are to be mapped, the window reaches as far as they do: over a slot beside it
// that is vacant, and maps nothing or the same as the slot next to it.
SlotRange PagePlanner::with_whole_pages(const PageArena& arena,
                                        SlotRange touched,
                                        SlotRange vacant) const noexcept {
  const std::uint64_t span = table_.class_of(PageSize::kWhole).span;
  if (search_.wants_halves() || arena.kind == ArenaKind::kSlab || span == 1) return touched;
  const auto may_take = [&](std::uint64_t slot, std::uint64_t beside) {
    if (slot < vacant.first || slot >= vacant.last) return false;
    const PageSlot own = table_.seen(arena, slot);
    const PageSlot next = table_.seen(arena, beside);
    return own.page == nullptr || (own.page == next.page && own.first == next.first);
  };
  if (touched.first % span != 0 && may_take(touched.first - 1, touched.first)) --touched.first;
  if (touched.last % span != 0 && may_take(touched.last, touched.last - 1)) ++touched.last;
  return touched;
}

// A page that is free goes back to a place that still maps it, at no cost; another stream's only
// behind an event.
bool PagePlanner::may_revive(const PageArena& arena,
                             const Page& page,
                             PageSupply supply) const noexcept {
  if (clocks_.is_capturing()) return false;
  const bool is_own = page.home.arena == nullptr || page.home.arena->clock == arena.clock;
  return is_own || supply.moves_others;
}

// The slots at the ends of a run that whole pages leave over, as these lie at even slots.
void PagePlanner::fill_ends(PagePlan& plan, SlotRange& run, PageSupply supply) {
  const std::uint64_t span = table_.usual_span(*plan.arena);
  const auto fill = [&](std::uint64_t slot) {
    PageClass& half = table_.class_of(PageSize::kHalf);
    if (obtain(plan, slot, half, supply)) return;
    if (supply.creates && create(plan, slot, half, /*in_cushion=*/false)) return;
    const std::uint64_t even = slot / span * span;
    const bool may_break = supply.breaks_large && has_room(plan, even, span);
    if (may_break && obtain(plan, even, table_.class_of(PageSize::kWhole), supply)) return;
    ++plan.missing;
  };
  if (run.first % span != 0) fill(run.first++);
  if (run.size() > 0 && run.last % span != 0) fill(--run.last);
}

void PagePlanner::fill_run(PagePlan& plan, SlotRange run, PageSupply supply) {
  while (run.first < run.last) {
    const std::uint64_t slots = fill_next(plan, run, supply);
    if (slots == 0) {
      plan.missing += run.size();
      return;
    }
    run.first += slots;
  }
}

// A page at the first slot of a run: how many slots it takes, or 0 where there is none. Large
// blocks want large pages; others get them only where nothing else is left, since a small block in
// a large page keeps it from moving.
std::uint64_t PagePlanner::fill_next(PagePlan& plan, SlotRange run, PageSupply supply) {
  const std::uint64_t slot = run.first;
  const bool is_slab = plan.arena->kind == ArenaKind::kSlab;
  PageClass& usual = table_.class_of(is_slab ? PageSize::kSlab : PageSize::kWhole);
  PageClass& large = table_.class_of(PageSize::kLarge);
  const bool wants_large =
      supply.wants_large && plan.arena->kind == ArenaKind::kLarge && run.last - slot >= large.span;
  if (wants_large && obtain(plan, slot, large, supply)) return large.span;
  if (obtain_usual(plan, slot, supply)) return usual.span;
  const bool may_break = supply.breaks_large && !is_slab && has_room(plan, slot, large.span);
  if (may_break && obtain(plan, slot, large, supply)) return large.span;
  if (!supply.creates) return 0;
  if (wants_large && create(plan, slot, large, /*in_cushion=*/false)) return large.span;
  return create(plan, slot, usual, /*in_cushion=*/false) ? usual.span : 0;
}

// A whole page, or two halves.
bool PagePlanner::obtain_usual(PagePlan& plan, std::uint64_t slot, PageSupply supply) {
  if (plan.arena->kind == ArenaKind::kSlab)
    return obtain(plan, slot, table_.class_of(PageSize::kSlab), supply);
  PageClass& whole = table_.class_of(PageSize::kWhole);
  if (whole.span == 1) return obtain(plan, slot, whole, supply);
  const auto obtain_halves = [&] {
    PageClass& half = table_.class_of(PageSize::kHalf);
    if (!obtain(plan, slot, half, supply)) return false;
    if (obtain(plan, slot + 1, half, supply)) return true;
    give_up_last(plan);
    return false;
  };
  if (search_.wants_halves()) return obtain_halves() || obtain(plan, slot, whole, supply);
  return obtain(plan, slot, whole, supply) || obtain_halves();
}

// A page of this size for the slot: created within the cushion, or moved. Says whether there is
// one.
bool PagePlanner::obtain(PagePlan& plan, std::uint64_t slot, PageClass& pages, PageSupply supply) {
  if (supply.creates_in_cushion && create(plan, slot, pages, /*in_cushion=*/true)) return true;
  Page* const page = next_donor(plan, pages, supply);
  if (page == nullptr) return false;
  table_.mark_taken(*page);
  plan.taken.push_back(page);
  plan.needs.push_back({.slot = slot, .pages = &pages, .page = page});
  return true;
}

bool PagePlanner::create(PagePlan& plan, std::uint64_t slot, PageClass& pages, bool in_cushion) {
  if (!may_create(plan, pages, in_cushion)) return false;
  plan.created_bytes += pages.page_bytes;
  plan.needs.push_back({.slot = slot, .pages = &pages});
  return true;
}

void PagePlanner::give_up_last(PagePlan& plan) const noexcept {
  const NewHome need = plan.needs.back();
  plan.needs.pop_back();
  if (need.page == nullptr) {
    plan.created_bytes -= need.pages->page_bytes;
    return;
  }
  table_.mark_free(*need.page);
  plan.taken.pop_back();
  --plan.donors[static_cast<std::size_t>(need.pages->size)].used;
}

bool PagePlanner::may_create(const PagePlan& plan, const PageClass& pages, bool in_cushion) const {
  if (budget_.device_is_short()) return false;
  const std::uint64_t room = in_cushion ? budget_.room_in_cushion(0) : budget_.room_in_limit(0);
  return room >= plan.created_bytes + pages.page_bytes;
}

// Whether `span` slots are vacant, map nothing and are not planned for.
bool PagePlanner::has_room(const PagePlan& plan, std::uint64_t slot, std::uint64_t span) const {
  const PageArena& arena = *plan.arena;
  if (slot < plan.vacant.first || slot + span > plan.vacant.last) return false;
  const auto is_inside = [&](const NewHome& need) {
    return need.slot >= slot && need.slot < slot + span;
  };
  if (std::ranges::any_of(plan.needs, is_inside)) return false;
  for (std::uint64_t i = slot; i < slot + span; ++i) {
    if (table_.seen(arena, i).page != nullptr || table_.is_in_the_way(arena, i)) return false;
  }
  return true;
}

Page* PagePlanner::next_donor(PagePlan& plan, PageClass& pages, PageSupply supply) {
  if (!supply.moves_own && !supply.moves_others) return nullptr;
  const std::vector<PagedBlock*>& covers = search_.covers_for(*plan.arena->clock);
  Donors& donors = plan.donors[static_cast<std::size_t>(pages.size)];
  if (!donors.is_begun) {
    donors.pages = pages.loose;
    donors.is_begun = true;
  }
  while (true) {
    while (donors.used < donors.pages.size()) {
      Page* const page = donors.pages[donors.used++];
      if (table_.is_free(*page)) return page;  // not taken meanwhile
    }
    if (donors.next_cover == covers.size()) return nullptr;
    const PagedBlock& cover = *covers[donors.next_cover++];
    const bool is_own = cover.arena->clock == plan.arena->clock;
    if (!(is_own ? supply.moves_own : supply.moves_others)) continue;
    // From a hole they are taken from its end, so that its rest stays in one piece.
    for_each_free_page(*cover.arena, cover, [&](Page& page) {
      if (page.pages == &pages) donors.pages.push_back(&page);
    });
    std::reverse(donors.pages.begin() + static_cast<std::ptrdiff_t>(donors.used),
                 donors.pages.end());
  }
}

}  // namespace headroom::memory::internal
