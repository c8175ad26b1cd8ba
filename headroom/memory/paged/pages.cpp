// Pages: creating them, moving them where they are wanted, and giving them back.
//
// A plan is carried out in two halves. First the device is asked for everything: pages are created,
// stale slots unmapped, wanted slots mapped. Each call that succeeds is written down at once, so
// that a failure in the middle leaves the tables true: a page too many is loose, a slot mapped for
// nothing is stale. Then the blocks are changed, which cannot fail.
#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/page_store.h"

namespace headroom::memory::internal {

using device::DeviceResult;
using device::DeviceStatus;
using device::PageHandle;
using device::StatusCode;

// --- Plans ---------------------------------------------------------------------------------------

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
    const PageSlot slot = i < arena.slots.size() ? arena.slots[i] : PageSlot{};
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
    plan.is_blocked = plan.is_blocked || (page != nullptr && !may_unmap(arena, slot));
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
    if (slot >= arena.slots.size() || arena.slots[slot].page == nullptr) return true;
    return arena.slots[slot].page == arena.slots[beside].page &&
           arena.slots[slot].first == arena.slots[beside].first;
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

bool PageStore::may_unmap(const PageArena& arena, const PageSlot& slot) const noexcept {
  return !is_capturing_ && slot.idle_since <= arena.clock->done;
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

// Large blocks want large pages; others get them only where nothing else is left, since a small
// block in a large page keeps it from moving.
void PageStore::fill_run(Plan& plan, SlotRange run, PageSupply supply) {
  const bool is_slab = plan.arena->kind == ArenaKind::kSlab;
  PageClass& usual = of(is_slab ? PageSize::kSlab : PageSize::kWhole);
  PageClass& large = of(PageSize::kLarge);
  while (run.first < run.last) {
    const std::uint64_t slot = run.first;
    const bool wants_large = plan.arena->kind == ArenaKind::kLarge && run.last - slot >= large.span;
    const bool may_break = supply.breaks_large && !is_slab && has_room(plan, slot, large.span);
    if (wants_large && obtain(plan, slot, large, supply)) {
      run.first += large.span;
    } else if (obtain_usual(plan, slot, supply)) {
      run.first += usual.span;
    } else if (may_break && obtain(plan, slot, large, supply)) {
      run.first += large.span;
    } else if (wants_large && supply.creates && create(plan, slot, large, /*in_cushion=*/false)) {
      run.first += large.span;
    } else if (supply.creates && create(plan, slot, usual, /*in_cushion=*/false)) {
      run.first += usual.span;
    } else {
      plan.missing += run.size();
      return;
    }
  }
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

void PageStore::give_up_last(Plan& plan) noexcept {
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
  const std::vector<PageSlot>& slots = plan.arena->slots;
  if (slot + span > plan.vacant.last) return false;
  const auto is_inside = [&](const Need& need) {
    return need.slot >= slot && need.slot < slot + span;
  };
  if (std::ranges::any_of(plan.needs, is_inside)) return false;
  for (std::uint64_t i = slot; i < std::min<std::uint64_t>(slot + span, slots.size()); ++i) {
    if (slots[i].page != nullptr) return false;
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

void PageStore::forget(Plan& plan) const noexcept {
  for (Page* page : plan.taken) page->mark = mark_;
  for (Page* page : plan.kept) page->mark = mark_;
}

// All host memory that carrying out the plan takes.
void PageStore::prepare_commit(Plan& plan) {
  PageArena& arena = *plan.arena;
  std::uint64_t top = arena.slots.size();
  std::size_t to_create = 0;
  for (const Need& need : plan.needs) {
    top = std::max(top, need.slot + need.pages->span);
    to_create += need.page == nullptr ? 1 : 0;
  }
  arena.slots.resize(top);
  plan.needs.reserve(plan.needs.size() + plan.revived.size());
  plan.taken.reserve(plan.taken.size() + to_create);
  const std::size_t moved = plan.taken.size() + plan.needs.size();
  blocks_.prepare(2 * moved + 4);
  handles_.reserve(plan.needs.size());
  for (Page* page : plan.taken) page->mapped.reserve(page->mapped.size() + 1);
  for (PageClass& pages : classes_) pages.loose.reserve(pages.all.size() + to_create);
  for (PageArena& other : arenas_) {
    if (other.is_private()) continue;
    other.unbacked.reserve(other.unbacked.size() + moved + 2);
  }
}

Backed PageStore::back(PageArena& arena, const PageWindow& window, PageSupply supply) {
  Plan plan{.arena = &arena};
  if (is_capturing_) supply.moves_own = supply.moves_others = false;
  draw_plan(plan, window, supply);
  if (plan.missing > 0 || plan.is_blocked) {
    forget(plan);
    return {.missing_bytes = plan.missing * arena.slot_bytes};
  }
  prepare_commit(plan);
  auto done = create_missing(plan);
  if (done) done = order_streams(plan);
  if (done) done = unmap_stale(plan);
  if (done) done = map_needs(plan);
  if (!done) {
    forget(plan);
    return {.outcome = Backing::kDeviceFailed, .status = done.error()};
  }
  return {.outcome = Backing::kDone, .block = &commit(plan)};
}

// --- The device's half ---------------------------------------------------------------------------

DeviceResult<Page*> PageStore::create_page(PageClass& pages) {
  if (pages.unused.empty()) {
    pages.unused.reserve(pages.all.size() + 1);
    pages.loose.reserve(pages.all.size() + 1);
    Page& record = pages.all.emplace_back();
    record.mapped.reserve(2);
    pages.unused.push_back(&record);
  }
  const auto handle = device_.create_pages(pages.page_bytes);
  if (!handle) {
    is_short_ = is_shortage(handle.error());
    return Unexpected(handle.error());
  }
  Page* const page = pages.unused.back();
  pages.unused.pop_back();
  page->pages = &pages;
  page->handle = *handle;
  page->home = {};
  page->mapped.clear();
  page->mark = mark_ + 1;
  pages.loose.push_back(page);
  ++pages.count;
  host_.page_created(pages.page_bytes);
  return page;
}

DeviceResult<void> PageStore::create_missing(Plan& plan) {
  for (Need& need : plan.needs) {
    if (need.page != nullptr) continue;
    const auto page = create_page(*need.pages);
    if (!page) return Unexpected(page.error());
    need.page = *page;
    plan.taken.push_back(*page);
  }
  return {};
}

// What is queued from now on for the window runs behind what is queued on the streams that its
// pages come from.
DeviceResult<void> PageStore::order_streams(const Plan& plan) noexcept {
  const StreamClock* const own = plan.arena->clock;
  for (StreamClock& donor : clocks_) {
    const bool gives = &donor != own && std::ranges::any_of(plan.taken, [&](const Page* page) {
      return page->home.arena != nullptr && page->home.arena->clock == &donor;
    });
    if (!gives) continue;
    const auto event = device_.record_event(donor.stream);
    if (!event) {
      if (is_gone(event.error()) || event.error() == StatusCode::kUnknownHandle) continue;
      return Unexpected(event.error());
    }
    const auto waits = device_.wait_event(own->stream, *event);
    (void)device_.release_event(*event);
    if (!waits) return waits;
  }
  return {};
}

DeviceResult<void> PageStore::unmap_place(Page& page, PagePlace place) noexcept {
  PageArena& arena = *place.arena;
  const auto unmapped = device_.unmap_pages(arena.address_of(place.slot), page.pages->page_bytes);
  if (!unmapped && !is_gone(unmapped.error())) return Unexpected(unmapped.error());
  if (page.home != place) --stale_;
  std::erase(page.mapped, place);
  for (std::uint64_t i = 0; i < page.pages->span; ++i) arena.slots[place.slot + i] = {};
  return {};
}

DeviceResult<void> PageStore::unmap_stale(Plan& plan) noexcept {
  PageArena& arena = *plan.arena;
  for (const Need& need : plan.needs) {
    for (std::uint64_t i = need.slot; i < need.slot + need.pages->span; ++i) {
      const PageSlot slot = arena.slots[i];
      if (slot.page == nullptr) continue;
      if (auto unmapped = unmap_place(*slot.page, {&arena, slot.first}); !unmapped) {
        return unmapped;
      }
    }
  }
  return {};
}

// Neighbours in one call.
DeviceResult<void> PageStore::map_needs(Plan& plan) noexcept {
  const std::vector<Need>& needs = plan.needs;
  for (std::size_t first = 0; first < needs.size();) {
    std::size_t last = first + 1;
    while (last < needs.size() &&
           needs[last].slot == needs[last - 1].slot + needs[last - 1].pages->span) {
      ++last;
    }
    if (auto mapped = map_run(plan, first, last); !mapped) return mapped;
    first = last;
  }
  return {};
}

DeviceResult<void> PageStore::map_run(Plan& plan, std::size_t first, std::size_t last) noexcept {
  PageArena& arena = *plan.arena;
  handles_.clear();
  for (std::size_t i = first; i < last; ++i) handles_.push_back(plan.needs[i].page->handle);
  const auto mapped = device_.map_pages(arena.address_of(plan.needs[first].slot), handles_);
  if (!mapped) return mapped;
  for (std::size_t i = first; i < last; ++i) {
    const Need& need = plan.needs[i];
    need.page->mapped.push_back({&arena, need.slot});
    // Stale until the commit, and never used.
    for (std::uint64_t k = 0; k < need.pages->span; ++k) {
      arena.slots[need.slot + k] = {.page = need.page, .first = need.slot};
    }
    ++stale_;
  }
  return {};
}

// --- The tables' half ----------------------------------------------------------------------------

Block& PageStore::commit(Plan& plan) noexcept {
  PageArena& arena = *plan.arena;
  std::vector<Need>& all = plan.needs;
  all.insert(all.end(), plan.revived.begin(), plan.revived.end());
  std::ranges::sort(all, {}, &Need::slot);
  std::erase_if(plan.taken, [](const Page* page) { return page->home.arena == nullptr; });
  leave_homes(plan.taken);
  for (PageClass& pages : classes_) {
    std::erase_if(pages.loose, [&](const Page* page) { return page->mark == mark_ + 1; });
  }
  for (const Need& need : all) {
    need.page->home = {&arena, need.slot};
    for (std::uint64_t i = 0; i < need.pages->span; ++i) {
      arena.slots[need.slot + i].idle_since = 0;
    }
    --stale_;
  }
  Block* block = nullptr;
  for (std::size_t first = 0; first < all.size();) {
    SlotRange range{.first = all[first].slot, .last = all[first].slot};
    while (first < all.size() && all[first].slot == range.last) {
      range.last += all[first++].pages->span;
    }
    host_.pages_arrived(arena, arena.address_of(range.first), range.size() * arena.slot_bytes);
    block = &arrive(arena, range);
  }
  return *block;
}

void PageStore::leave_homes(std::vector<Page*>& pages) noexcept {
  std::ranges::sort(
      pages, {}, [](const Page* page) { return page->home.arena->address_of(page->home.slot); });
  for (std::size_t first = 0; first < pages.size();) {
    PageArena& arena = *pages[first]->home.arena;
    Block& cover = *pages[first]->cover;
    SlotRange range{.first = pages[first]->home.slot, .last = pages[first]->home.slot};
    std::size_t last = first;
    while (last < pages.size() && pages[last]->home == PagePlace{&arena, range.last}) {
      range.last += pages[last++]->pages->span;
    }
    for (std::uint64_t i = range.first; i < range.last; ++i) {
      arena.slots[i].idle_since = cover.gc_base;
    }
    stale_ += last - first;
    unback(cover, arena, range);
    host_.pages_left(arena, arena.address_of(range.first), range.size() * arena.slot_bytes);
    for (; first < last; ++first) pages[first]->home = {};
  }
}

// --- Giving back ---------------------------------------------------------------------------------

bool PageStore::can_unmap_all(const Page& page) const noexcept {
  if (is_capturing_) return false;
  return std::ranges::all_of(page.mapped, [&](const PagePlace& place) {
    const std::uint64_t since =
        place == page.home ? page.cover->gc_base : place.arena->slots[place.slot].idle_since;
    return since <= place.arena->clock->done;
  });
}

// Of a free page that nobody uses through any mapping. What fails on the way leaves it loose.
bool PageStore::release_page(Page& page) noexcept {
  PageClass& pages = *page.pages;
  if (PageArena* const arena = page.home.arena) {
    std::vector<Page*> leaving;
    try {
      blocks_.prepare(4);
      arena->unbacked.reserve(arena->unbacked.size() + 2);
      pages.loose.reserve(pages.loose.size() + 1);
      leaving.push_back(&page);
    } catch (...) {
      return false;
    }
    leave_homes(leaving);
    pages.loose.push_back(&page);
  }
  while (!page.mapped.empty()) {
    if (!unmap_place(page, page.mapped.back())) return false;
  }
  const auto released = device_.release_pages(page.handle);
  if (!released && !is_gone(released.error())) return false;
  host_.page_released(pages.page_bytes);
  is_short_ = false;
  std::erase(pages.loose, &page);
  page.handle = PageHandle::kNone;
  page.mark = 0;
  pages.unused.push_back(&page);
  --pages.count;
  return true;
}

bool PageStore::make_room(const PageArena& arena, std::uint64_t wanted_bytes, bool in_cushion) {
  const auto fits_after = [&](std::uint64_t released) {
    return host_.room_in_limit(released) >= wanted_bytes &&
           (!in_cushion || host_.room_in_cushion(released) >= wanted_bytes);
  };
  if (fits_after(0)) return true;
  if (is_capturing_) return false;
  std::vector<Page*> pages = pages_to_replace(arena);
  // Little more goes back than is created instead: what reserve() took is not for this.
  const std::uint64_t most = saturating_add(wanted_bytes, host_.reserved_bytes() / 16);
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (!fits_after(bytes)) {
    if (count == pages.size() || bytes >= most) return false;
    bytes += pages[count++]->pages->page_bytes;
  }
  pages.resize(count);
  for (Page* page : pages) (void)release_page(*page);
  begin_search();
  return fits_after(0);
}

// Free pages of sizes that do not fit everywhere in the arena, and that nobody uses; the longest
// unused first.
std::vector<Page*> PageStore::pages_to_replace(const PageArena& arena) {
  const bool is_slab = arena.kind == ArenaKind::kSlab;
  const PageClass& fitting = of(is_slab                          ? PageSize::kSlab
                                : of(PageSize::kWhole).span == 1 ? PageSize::kWhole
                                                                 : PageSize::kHalf);
  std::vector<Page*> pages;
  const auto add = [&](Page& page) {
    if (page.pages != &fitting && can_unmap_all(page)) pages.push_back(&page);
  };
  for (PageClass& loose : classes_) {
    for (Page* page : loose.loose) add(*page);
  }
  for (const Block* cover : covers_) for_each_free_page(*cover->arena, *cover, add);
  std::ranges::stable_sort(pages, {}, [](const Page* page) {
    return page->home.arena == nullptr ? 0 : page->cover->gc_base;
  });
  return pages;
}

void PageStore::release_some(PageClass& pages, std::uint64_t most_bytes, std::uint64_t& released) {
  for (Page& page : pages.all) {
    if (released + pages.page_bytes > most_bytes) return;
    if (page.handle == PageHandle::kNone || !is_free(page) || !can_unmap_all(page)) continue;
    if (release_page(page)) released += pages.page_bytes;
  }
}

// The largest first: the fewest calls of the device for the bytes.
std::uint64_t PageStore::release_free(std::uint64_t most_bytes) {
  std::uint64_t released = 0;
  if (is_capturing_) return released;
  for (const PageSize size :
       {PageSize::kLarge, PageSize::kWhole, PageSize::kHalf, PageSize::kSlab}) {
    release_some(of(size), most_bytes, released);
  }
  return released;
}

void PageStore::release_loose() noexcept {
  if (is_capturing_) return;
  for (PageClass& pages : classes_) {
    for (std::size_t i = pages.loose.size(); i-- > 0;) {
      Page& page = *pages.loose[i];
      if (can_unmap_all(page)) (void)release_page(page);
    }
  }
}

std::uint64_t PageStore::retire(std::uint64_t most) {
  std::uint64_t count = 0;
  if (is_capturing_) return count;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    for (std::uint64_t i = 0; i < arena.slots.size() && count < most; ++i) {
      const PageSlot slot = arena.slots[i];
      if (slot.page == nullptr || is_at_home(arena, slot)) continue;
      if (slot.idle_since > arena.clock->done) continue;
      count += unmap_place(*slot.page, {&arena, slot.first}) ? 1 : 0;
    }
  }
  return count;
}

bool PageStore::wait_for_streams() {
  if (is_capturing_) return false;
  bool is_done = true;
  for (StreamClock& clock : clocks_) {
    const auto event = device_.record_event(clock.stream);
    bool has_passed =
        !event && (is_gone(event.error()) || event.error() == StatusCode::kUnknownHandle);
    if (event) {
      const auto waited = device_.synchronize_event(*event);
      has_passed = waited || is_gone(waited.error());
      (void)device_.release_event(*event);
    }
    is_done = is_done && has_passed;
    if (!has_passed) continue;
    for (const StreamClock::Mark& mark : clock.marks) (void)device_.release_event(mark.event);
    clock.marks.clear();
    clock.done = clock_;
    clock.marked = clock_;
  }
  return is_done;
}

// --- The end -------------------------------------------------------------------------------------

void PageStore::release_all() noexcept {
  for (StreamClock& clock : clocks_) {
    for (const StreamClock::Mark& mark : clock.marks) (void)device_.release_event(mark.event);
    clock.marks.clear();
  }
  for (PageArena& arena : arenas_) {
    const bool has_any =
        arena.is_private() ||
        std::ranges::any_of(arena.slots, [](const PageSlot& slot) { return slot.page != nullptr; });
    if (has_any) (void)device_.unmap_pages(arena.base, arena.size);
    if (arena.is_private()) (void)device_.release_pages(arena.handle);
  }
  for (const PageClass& pages : classes_) {
    for (const Page& page : pages.all) {
      if (page.handle != PageHandle::kNone) (void)device_.release_pages(page.handle);
    }
  }
  for (const PageArena& arena : arenas_) {
    if (arena.kind != ArenaKind::kSlab) (void)device_.release_addresses(arena.base);
  }
  if (slab_region_.size != 0) (void)device_.release_addresses(slab_reservation_);
  release_strays();
}

void PageStore::release_strays() noexcept {
  std::erase_if(stray_handles_, [&](PageHandle handle) {
    return static_cast<bool>(device_.release_pages(handle));
  });
  std::erase_if(stray_reservations_, [&](DeviceAddress base) {
    return static_cast<bool>(device_.release_addresses(base));
  });
}

}  // namespace headroom::memory::internal
