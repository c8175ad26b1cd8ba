// Pages: creating them, moving them where they are wanted, and giving them back.
//
// A plan is carried out in two halves. First the device is asked for everything: pages are created,
// stale slots unmapped, wanted slots mapped. Each call that succeeds is written down at once, so
// that a failure in the middle leaves the tables true: a page too many is loose, a slot mapped for
// nothing is stale. Then the blocks are changed, which cannot fail.
#include <algorithm>
#include <iterator>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/page_store.h"
#include "headroom/memory/internal/shortage.h"

namespace headroom::memory::internal {

using device::DeviceResult;
using device::DeviceStatus;
using device::PageHandle;
using device::StatusCode;

void PageStore::forget(Plan& plan) const noexcept {
  for (Page* page : plan.taken) page->mark = mark_;
  for (Page* page : plan.kept) page->mark = mark_;
}

// Places that map the page they are to get already, from an earlier step.
void PageStore::revive_mapped(Plan& plan) {
  const std::vector<PageSlot>& slots = plan.arena->slots;
  const auto is_mapped = [&](const Need& need) {
    return need.page != nullptr && need.slot < slots.size() && slots[need.slot].page == need.page &&
           slots[need.slot].first == need.slot;
  };
  std::ranges::copy_if(plan.needs, std::back_inserter(plan.revived), is_mapped);
  std::erase_if(plan.needs, is_mapped);
}

// All host memory that carrying out the plan takes.
void PageStore::prepare_commit(Plan& plan) {
  PageArena& arena = *plan.arena;
  std::uint64_t top = arena.top;
  std::size_t to_create = 0;
  for (const Need& need : plan.revived) top = std::max(top, need.slot + need.pages->span);
  for (const Need& need : plan.needs) {
    top = std::max(top, need.slot + need.pages->span);
    to_create += need.page == nullptr ? 1 : 0;
  }
  arena.slots.resize(std::max<std::uint64_t>(top, arena.slots.size()));
  arena.top = top;
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
  revive_mapped(plan);
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
  ++pages_version_;
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
      arena.slots[need.slot + k] = {.page = need.page, .first = need.slot, .rest = rest_number_};
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
    large_in_normal_ += is_out_of_place(*need.page) ? 1 : 0;
    for (std::uint64_t i = 0; i < need.pages->span; ++i) {
      arena.slots[need.slot + i].idle_since = 0;
      arena.slots[need.slot + i].rest = rest_number_;
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
      arena.slots[i].rest = rest_number_;
    }
    stale_ += last - first;
    unback(cover, arena, range);
    host_.pages_left(arena, arena.address_of(range.first), range.size() * arena.slot_bytes);
    for (; first < last; ++first) {
      large_in_normal_ -= is_out_of_place(*pages[first]) ? 1 : 0;
      pages[first]->home = {};
    }
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
  ++pages_version_;
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
  // In steps that repeat themselves what decisions know of stays, unless all has to go.
  const bool keeps_seen = rest_number_ > 0 && most < UINT64_MAX;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    for (std::uint64_t i = 0; i < arena.slots.size() && count < most; ++i) {
      const PageSlot slot = arena.slots[i];
      if (slot.page == nullptr || is_at_home(arena, slot)) continue;
      if (keeps_seen && slot.rest == rest_number_) continue;
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
