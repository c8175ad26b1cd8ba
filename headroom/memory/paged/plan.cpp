// What a window gets: which pages are revived, moved or created for its slots. Nothing is done yet.
#include <algorithm>

#include "headroom/memory/internal/page_store.h"

namespace headroom::memory::internal {

void PageStore::draw_plan(Plan& plan, const PageWindow& window, PageSupply supply) {
  PageArena& arena = *plan.arena;
  plan.vacant = slots_within(arena, window.run_begin, window.run_end);
  const SlotRange touched =
      with_whole_pages(arena, slots_touched(arena, window.begin, window.end), plan.vacant);
  const std::uint64_t last = std::min(touched.last, plan.vacant.last);
  const std::uint64_t first = std::max(touched.first, plan.vacant.first);
  // What is at home in the window stays, also where an earlier slot of it maps the same page.
  for (std::uint64_t i = first; i < std::min<std::uint64_t>(last, arena.slots.size()); ++i) {
    const PageSlot& slot = arena.slots[i];
    if (!is_at_home(arena, slot) || !is_free(*slot.page)) continue;
    slot.page->mark = mark_ + 1;
    plan.kept.push_back(slot.page);
  }
  std::vector<SlotRange> lacking;
  for (std::uint64_t i = first; i < last; ++i) {
    const PageSlot slot = seen(arena, i);
    if (is_at_home(arena, slot)) continue;
    Page* const page = slot.page;
    if (page != nullptr && !plan.revived.empty() && plan.revived.back().page == page &&
        plan.revived.back().slot == slot.first) {
      continue;  // a further slot of the page before
    }
    if (page != nullptr && is_free(*page) && may_revive(arena, *page, supply)) {
      page->mark = mark_ + 1;
      plan.taken.push_back(page);
      plan.revived.push_back({.slot = slot.first, .pages = page->pages, .page = page});
      continue;
    }
    // What is mapped here goes first, and may not while somebody may still use it.
    plan.is_blocked = plan.is_blocked || is_in_the_way(arena, i);
    if (!lacking.empty() && lacking.back().last == i) {
      ++lacking.back().last;
    } else {
      lacking.push_back({.first = i, .last = i + 1});
    }
  }
  // Single slots first: only halves fit there, which elsewhere others can stand in for.
  for (SlotRange& run : lacking) fill_ends(plan, run, supply);
  for (const SlotRange& run : lacking) fill_run(plan, run, supply);
  std::ranges::sort(plan.needs, {}, &Need::slot);
}

// Where whole pages are to be mapped, the window reaches as far as they do: over a slot beside it
// that is vacant, and maps nothing or the same as the slot next to it.
SlotRange PageStore::with_whole_pages(const PageArena& arena,
                                      SlotRange touched,
                                      SlotRange vacant) const noexcept {
  const std::uint64_t span = of(PageSize::kWhole).span;
  if (wants_halves_ || arena.kind == ArenaKind::kSlab || span == 1) return touched;
  const auto may_take = [&](std::uint64_t slot, std::uint64_t beside) {
    if (slot < vacant.first || slot >= vacant.last) return false;
    const PageSlot own = seen(arena, slot);
    const PageSlot next = seen(arena, beside);
    return own.page == nullptr || (own.page == next.page && own.first == next.first);
  };
  if (touched.first % span != 0 && may_take(touched.first - 1, touched.first)) --touched.first;
  if (touched.last % span != 0 && may_take(touched.last, touched.last - 1)) ++touched.last;
  return touched;
}

// A page that is free goes back to a place that still maps it, at no cost; another stream's only
// behind an event.
bool PageStore::may_revive(const PageArena& arena,
                           const Page& page,
                           PageSupply supply) const noexcept {
  if (is_capturing_) return false;
  const bool is_own = page.home.arena == nullptr || page.home.arena->clock == arena.clock;
  return is_own || supply.moves_others;
}

// How many slots of an arena a page of the usual size takes.
std::uint64_t PageStore::usual_span(const PageArena& arena) const noexcept {
  return arena.kind == ArenaKind::kSlab ? 1 : of(PageSize::kWhole).span;
}

// The slots at the ends of a run that whole pages leave over, as these lie at even slots.
void PageStore::fill_ends(Plan& plan, SlotRange& run, PageSupply supply) {
  const std::uint64_t span = usual_span(*plan.arena);
  const auto fill = [&](std::uint64_t slot) {
    PageClass& half = of(PageSize::kHalf);
    if (obtain(plan, slot, half, supply)) return;
    if (supply.creates && create(plan, slot, half, /*in_cushion=*/false)) return;
    const std::uint64_t even = slot / span * span;
    const bool may_break = supply.breaks_large && has_room(plan, even, span);
    if (may_break && obtain(plan, even, of(PageSize::kWhole), supply)) return;
    ++plan.missing;
  };
  if (run.first % span != 0) fill(run.first++);
  if (run.size() > 0 && run.last % span != 0) fill(--run.last);
}

void PageStore::fill_run(Plan& plan, SlotRange run, PageSupply supply) {
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
std::uint64_t PageStore::fill_next(Plan& plan, SlotRange run, PageSupply supply) {
  const std::uint64_t slot = run.first;
  const bool is_slab = plan.arena->kind == ArenaKind::kSlab;
  PageClass& usual = of(is_slab ? PageSize::kSlab : PageSize::kWhole);
  PageClass& large = of(PageSize::kLarge);
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
bool PageStore::obtain_usual(Plan& plan, std::uint64_t slot, PageSupply supply) {
  if (plan.arena->kind == ArenaKind::kSlab) return obtain(plan, slot, of(PageSize::kSlab), supply);
  PageClass& whole = of(PageSize::kWhole);
  if (whole.span == 1) return obtain(plan, slot, whole, supply);
  const auto obtain_halves = [&] {
    PageClass& half = of(PageSize::kHalf);
    if (!obtain(plan, slot, half, supply)) return false;
    if (obtain(plan, slot + 1, half, supply)) return true;
    give_up_last(plan);
    return false;
  };
  if (wants_halves_) return obtain_halves() || obtain(plan, slot, whole, supply);
  return obtain(plan, slot, whole, supply) || obtain_halves();
}

// A page of this size for the slot: created within the cushion, or moved. Says whether there is
// one.
bool PageStore::obtain(Plan& plan, std::uint64_t slot, PageClass& pages, PageSupply supply) {
  if (supply.creates_in_cushion && create(plan, slot, pages, /*in_cushion=*/true)) return true;
  Page* const page = donor(plan, pages, supply);
  if (page == nullptr) return false;
  page->mark = mark_ + 1;
  plan.taken.push_back(page);
  plan.needs.push_back({.slot = slot, .pages = &pages, .page = page});
  return true;
}

bool PageStore::create(Plan& plan, std::uint64_t slot, PageClass& pages, bool in_cushion) {
  if (!may_create(plan, pages, in_cushion)) return false;
  plan.created_bytes += pages.page_bytes;
  plan.needs.push_back({.slot = slot, .pages = &pages});
  return true;
}

void PageStore::give_up_last(Plan& plan) const noexcept {
  const Need need = plan.needs.back();
  plan.needs.pop_back();
  if (need.page == nullptr) {
    plan.created_bytes -= need.pages->page_bytes;
    return;
  }
  need.page->mark = mark_;
  plan.taken.pop_back();
  --plan.donors[static_cast<std::size_t>(need.pages->size)].used;
}

bool PageStore::may_create(const Plan& plan, const PageClass& pages, bool in_cushion) const {
  if (is_short_) return false;
  const std::uint64_t room = in_cushion ? host_.room_in_cushion(0) : host_.room_in_limit(0);
  return room >= plan.created_bytes + pages.page_bytes;
}

// Whether so many slots are vacant, map nothing and are not planned for.
bool PageStore::has_room(const Plan& plan, std::uint64_t slot, std::uint64_t span) const {
  const PageArena& arena = *plan.arena;
  if (slot + span > plan.vacant.last) return false;
  const auto is_inside = [&](const Need& need) {
    return need.slot >= slot && need.slot < slot + span;
  };
  if (std::ranges::any_of(plan.needs, is_inside)) return false;
  for (std::uint64_t i = slot; i < slot + span; ++i) {
    if (seen(arena, i).page != nullptr || is_in_the_way(arena, i)) return false;
  }
  return true;
}

Page* PageStore::donor(Plan& plan, PageClass& pages, PageSupply supply) {
  if (!supply.moves_own && !supply.moves_others) return nullptr;
  Donors& donors = plan.donors[static_cast<std::size_t>(pages.size)];
  if (!donors.is_begun) {
    sort_covers(*plan.arena->clock);
    donors.pages = pages.loose;
    donors.is_begun = true;
  }
  while (true) {
    while (donors.used < donors.pages.size()) {
      Page* const page = donors.pages[donors.used++];
      if (is_free(*page)) return page;  // not taken meanwhile
    }
    if (donors.next_cover == covers_.size()) return nullptr;
    const Block& cover = *covers_[donors.next_cover++];
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

// The stream's own first, then the longest unused.
void PageStore::sort_covers(const StreamClock& own) {
  if (covers_sorted_for_ == &own) return;
  std::ranges::sort(covers_, [&](const Block* a, const Block* b) {
    const bool is_own_a = a->arena->clock == &own;
    const bool is_own_b = b->arena->clock == &own;
    if (is_own_a != is_own_b) return is_own_a;
    if (a->gc_base != b->gc_base) return a->gc_base < b->gc_base;
    return a->address > b->address;
  });
  covers_sorted_for_ = &own;
}

}  // namespace headroom::memory::internal
