// Pages: creating them, moving them where they are wanted, and giving them back.
//
// A plan is carried out in two halves. First the device is asked for everything: pages are created,
// stale slots unmapped, wanted slots mapped. Each call that succeeds is written down at once, so
// that a failure in the middle leaves the tables true: a page too many is loose, a slot mapped for
// nothing is stale. Then the blocks are changed, which cannot fail.
#include <algorithm>

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
  const SlotRange touched = slots_touched(arena, window.begin, window.end);
  plan.vacant = slots_within(arena, window.run_begin, window.run_end);
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
  for (const SlotRange& run : lacking) fill_run(plan, run, supply);
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

void PageStore::fill_run(Plan& plan, SlotRange lacking, PageSupply supply) {
  while (lacking.first < lacking.last) {
    const Need need = next_need(plan, lacking, supply);
    if (need.pages == nullptr) {
      plan.missing += lacking.size();
      return;
    }
    if (need.page == nullptr) {
      plan.created_bytes += need.pages->page_bytes;
    } else {
      need.page->mark = mark_ + 1;
      plan.taken.push_back(need.page);
    }
    plan.needs.push_back(need);
    lacking.first += need.pages->span;
  }
}

// What is mapped next, at the first lacking slot: pages are created within the cushion, then
// moved, then created past it. Large blocks want large pages; others take them only where nothing
// else is left, since a small block in a large page keeps it from moving.
PageStore::Need PageStore::next_need(Plan& plan, SlotRange lacking, PageSupply supply) {
  const bool wants_large = plan.arena->kind == ArenaKind::kLarge;
  const bool fits_large = lacking.size() >= large_.span;
  Need need{.slot = lacking.first};
  const auto with = [&](PageClass& pages, Page* page) {
    need.pages = &pages;
    need.page = page;
    return need;
  };
  PageClass& least = plan.arena->kind == ArenaKind::kSlab ? slab_ : small_;
  for (PageClass* pages : {&large_, &least}) {
    if (pages == &large_ && !(wants_large && fits_large)) continue;
    if (supply.creates_in_cushion && may_create(plan, *pages, true)) return with(*pages, nullptr);
    if (Page* page = donor(plan, *pages, supply)) return with(*pages, page);
  }
  if (supply.breaks_large && &least == &small_ && has_room(plan, lacking.first, large_.span)) {
    if (Page* page = donor(plan, large_, supply)) return with(large_, page);
  }
  if (supply.creates) {
    for (PageClass* pages : {&large_, &least}) {
      if (pages == &large_ && !(wants_large && fits_large)) continue;
      if (may_create(plan, *pages, false)) return with(*pages, nullptr);
    }
  }
  return need;
}

bool PageStore::may_create(const Plan& plan, const PageClass& pages, bool in_cushion) const {
  if (is_short_) return false;
  const std::uint64_t room = in_cushion ? host_.room_in_cushion() : host_.room_in_limit();
  return room >= plan.created_bytes + pages.page_bytes;
}

// Whether so many slots are vacant and map nothing.
bool PageStore::has_room(const Plan& plan, std::uint64_t slot, std::uint64_t span) const {
  const std::vector<PageSlot>& slots = plan.arena->slots;
  if (slot + span > plan.vacant.last) return false;
  for (std::uint64_t i = slot; i < std::min<std::uint64_t>(slot + span, slots.size()); ++i) {
    if (slots[i].page != nullptr) return false;
  }
  return true;
}

Page* PageStore::donor(Plan& plan, PageClass& pages, PageSupply supply) {
  if (!supply.moves_own && !supply.moves_others) return nullptr;
  std::optional<Donors>& donors = &pages == &small_   ? plan.small
                                  : &pages == &large_ ? plan.large
                                                      : plan.slab;
  if (!donors) donors = find_donors(*plan.arena, pages, supply);
  while (Page* page = donors->next()) {
    if (is_free(*page)) return page;  // not taken meanwhile
  }
  return nullptr;
}

// The stream's own first. From a hole they are taken from its end, so that its rest stays in one
// piece.
PageStore::Donors PageStore::find_donors(const PageArena& arena,
                                         PageClass& pages,
                                         PageSupply supply) const {
  Donors donors{.pages = pages.loose};
  const auto loose = static_cast<std::ptrdiff_t>(donors.pages.size());
  for (const PageArena& other : arenas_) {
    const bool is_own = other.clock == arena.clock;
    if (other.is_private() || !(is_own ? supply.moves_own : supply.moves_others)) continue;
    other.free->for_each([&](const Block& block) {
      for_each_free_page(other, block, [&](Page& page) {
        if (page.pages == &pages) donors.pages.push_back(&page);
      });
    });
  }
  const auto goes_first = [&](const Page* a, const Page* b) {
    const bool is_own_a = a->home.arena->clock == arena.clock;
    const bool is_own_b = b->home.arena->clock == arena.clock;
    if (is_own_a != is_own_b) return is_own_a;
    if (a->cover->gc_base != b->cover->gc_base) return a->cover->gc_base < b->cover->gc_base;
    return a->home.slot > b->home.slot;
  };
  std::sort(donors.pages.begin() + loose, donors.pages.end(), goes_first);
  return donors;
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
  for (PageClass* pages : all_classes()) pages->loose.reserve(pages->all.size() + to_create);
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
  for (PageClass* pages : all_classes()) {
    std::erase_if(pages->loose, [&](const Page* page) { return page->mark == mark_ + 1; });
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

bool PageStore::make_room(std::uint64_t wanted_bytes, bool in_cushion) {
  const auto fits = [&] {
    return host_.room_in_limit() >= wanted_bytes &&
           (!in_cushion || host_.room_in_cushion() >= wanted_bytes);
  };
  if (fits()) return true;
  if (is_capturing_) return false;
  std::vector<Page*> candidates;
  for (Page& page : large_.all) {
    if (page.handle == PageHandle::kNone || !is_free(page) || !can_unmap_all(page)) continue;
    candidates.push_back(&page);
  }
  const std::uint64_t bytes = candidates.size() * large_.page_bytes;
  if (saturating_add(host_.room_in_limit(), bytes) < wanted_bytes) return false;
  std::ranges::stable_sort(candidates, {}, [](const Page* page) {
    return page->home.arena == nullptr ? 0 : page->cover->gc_base;
  });
  for (Page* page : candidates) {
    if (fits()) break;
    (void)release_page(*page);
  }
  return fits();
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
  release_some(large_, most_bytes, released);
  release_some(small_, most_bytes, released);
  release_some(slab_, most_bytes, released);
  return released;
}

void PageStore::release_loose() noexcept {
  if (is_capturing_) return;
  for (PageClass* pages : all_classes()) {
    for (std::size_t i = pages->loose.size(); i-- > 0;) {
      Page& page = *pages->loose[i];
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
  for (PageClass* pages : all_classes()) {
    for (const Page& page : pages->all) {
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
