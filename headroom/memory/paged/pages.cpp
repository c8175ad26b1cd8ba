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

namespace {

void forget_place(Page& page, const PagePlace& place) noexcept {
  std::erase(page.mapped, place);
}

// Of each group of neighbouring slots in a sorted list: [first, last) in the list.
template <class Items, class SlotOf, class Function>
void for_each_run(const Items& items, SlotOf&& slot_of, Function&& function) {
  for (std::size_t first = 0; first < items.size();) {
    std::size_t last = first + 1;
    while (last < items.size() && slot_of(items[last]) == slot_of(items[last - 1]) + 1) ++last;
    function(first, last);
    first = last;
  }
}

}  // namespace

// --- Plans ---------------------------------------------------------------------------------------

// How many pages are missing; none where the plan can be carried out.
std::uint64_t PageStore::draw_plan(Plan& plan, const PageWindow& window, PageSupply supply) {
  PageArena& arena = *plan.arena;
  const SlotRange touched = slots_touched(arena, window.begin, window.end);
  const SlotRange vacant = slots_within(arena, window.run_begin, window.run_end);
  const std::uint64_t last = std::min(touched.last, vacant.last);
  for (std::uint64_t i = std::max(touched.first, vacant.first); i < last; ++i) {
    Page* const page = i < arena.slots.size() ? arena.slots[i].page : nullptr;
    if (page == nullptr || !is_free(*page)) {
      plan.needs.push_back({.slot = i});
      continue;
    }
    const bool is_home = page->home == PagePlace{&arena, i};
    const bool is_own = page->home.arena == nullptr || page->home.arena->clock == arena.clock;
    if (!is_home && !(is_own ? supply.moves_own : supply.moves_others)) {
      plan.needs.push_back({.slot = i});
      continue;
    }
    page->mark = mark_ + 1;
    (is_home ? plan.kept : plan.taken).push_back(page);
    if (!is_home) plan.revived.push_back({.slot = i, .page = page});
  }

  const std::uint64_t page_bytes = arena.page_bytes();
  std::uint64_t missing = plan.needs.size();
  const std::uint64_t in_limit = host_.room_in_limit() / page_bytes;
  if (supply.creates_in_cushion) {
    plan.to_create = std::min({missing, in_limit, host_.room_in_cushion() / page_bytes});
    missing -= plan.to_create;
  }
  if (missing > 0) {
    const std::size_t before = plan.taken.size();
    take_donors(plan, supply, missing);
    missing -= plan.taken.size() - before;
  }
  if (supply.creates) {
    const std::uint64_t more = std::min(missing, in_limit - std::min(in_limit, plan.to_create));
    plan.to_create += more;
    missing -= more;
  }
  return missing;
}

// The free pages that have been unused longest, the stream's own first. From a hole they are taken
// from its end, so that its rest stays in one piece.
void PageStore::take_donors(Plan& plan, PageSupply supply, std::uint64_t count) {
  PageArena& arena = *plan.arena;
  std::vector<Page*> free_pages;
  for (Page* page : arena.pages->loose) {
    if (is_free(*page)) free_pages.push_back(page);
  }
  const std::size_t loose = std::min<std::size_t>(free_pages.size(), count);
  free_pages.resize(loose);
  for (PageArena& donor : arenas_) {
    const bool is_own = donor.clock == arena.clock;
    if (donor.pages != arena.pages || !(is_own ? supply.moves_own : supply.moves_others)) continue;
    donor.free->for_each([&](Block& block) {
      const SlotRange whole = slots_within(donor, block.address, block.address + block.size);
      for (std::uint64_t i = whole.last; i-- > whole.first;) {
        if (is_free(*donor.slots[i].page)) free_pages.push_back(donor.slots[i].page);
      }
    });
  }
  const auto goes_first = [&](const Page* a, const Page* b) {
    const bool is_own_a = a->home.arena->clock == arena.clock;
    const bool is_own_b = b->home.arena->clock == arena.clock;
    if (is_own_a != is_own_b) return is_own_a;
    if (a->cover->gc_base != b->cover->gc_base) return a->cover->gc_base < b->cover->gc_base;
    return a->home.slot > b->home.slot;
  };
  const std::size_t wanted = std::min<std::size_t>(free_pages.size(), count);
  std::partial_sort(free_pages.begin() + static_cast<std::ptrdiff_t>(loose),
                    free_pages.begin() + static_cast<std::ptrdiff_t>(wanted),
                    free_pages.end(),
                    goes_first);
  free_pages.resize(wanted);
  // The last needs are created, these go to the first: neighbours stay neighbours.
  std::size_t next = 0;
  for (Page* page : free_pages) {
    page->mark = mark_ + 1;
    plan.taken.push_back(page);
    plan.needs[next++].page = page;
  }
}

void PageStore::forget(Plan& plan) noexcept {
  for (Page* page : plan.taken) page->mark = mark_;
  for (Page* page : plan.kept) page->mark = mark_;
}

// All host memory that carrying out the plan takes.
void PageStore::prepare_commit(Plan& plan) {
  PageArena& arena = *plan.arena;
  plan.needs.reserve(plan.needs.size() + plan.revived.size());
  plan.taken.reserve(plan.taken.size() + plan.to_create);
  std::uint64_t top = arena.slots.size();
  for (const Need& need : plan.needs) top = std::max(top, need.slot + 1);
  arena.slots.resize(top);
  const std::size_t moved = plan.taken.size() + plan.to_create + plan.needs.size();
  blocks_.prepare(2 * moved + 4);
  handles_.reserve(plan.needs.size());
  for (Page* page : plan.taken) page->mapped.reserve(page->mapped.size() + 1);
  PageClass& pages = *arena.pages;
  pages.loose.reserve(pages.loose.size() + plan.to_create + plan.taken.size());
  for (PageArena& other : arenas_) {
    if (other.pages != arena.pages) continue;
    other.unbacked.reserve(other.unbacked.size() + moved + 2);
    // Full chunks are cut in two, and so is what they become after 32 inserts.
    other.free->prepare(2 + other.free->size() / 64 + moved / 16);
  }
}

Backed PageStore::back(PageArena& arena, const PageWindow& window, PageSupply supply) {
  Plan plan{.arena = &arena};
  if (is_capturing_) supply.moves_own = supply.moves_others = false;
  if (const std::uint64_t missing = draw_plan(plan, window, supply); missing > 0) {
    forget(plan);
    return {.missing_pages = missing};
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
  if (!handle) return Unexpected(handle.error());
  Page* const page = pages.unused.back();
  pages.unused.pop_back();
  page->handle = *handle;
  page->home = {};
  page->mapped.clear();
  page->mark = mark_ + 1;
  pages.loose.push_back(page);
  ++pages.count;
  host_.page_created(pages.is_slab, pages.page_bytes);
  return page;
}

DeviceResult<void> PageStore::create_missing(Plan& plan) {
  PageArena& arena = *plan.arena;
  for (Need& need : plan.needs) {
    if (need.page != nullptr) continue;
    const auto page = create_page(*arena.pages);
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

DeviceResult<void> PageStore::unmap_stale(Plan& plan) noexcept {
  PageArena& arena = *plan.arena;
  for (const Need& need : plan.needs) {
    if (arena.slots[need.slot].page == nullptr) continue;
    const auto unmapped =
        device_.unmap_pages(arena.address_of(need.slot), arena.page_bytes());
    if (!unmapped) return Unexpected(unmapped.error());
    forget_place(*arena.slots[need.slot].page, {&arena, need.slot});
    arena.slots[need.slot] = {};
    --stale_;
  }
  return {};
}

DeviceResult<void> PageStore::map_needs(Plan& plan) noexcept {
  DeviceResult<void> done;
  for_each_run(
      plan.needs,
      [](const Need& need) { return need.slot; },
      [&](std::size_t first, std::size_t last) {
        if (done) done = map_run(plan, first, last);
      });
  return done;
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
    arena.slots[need.slot] = {.page = need.page, .idle_since = 0};
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
  std::erase_if(arena.pages->loose, [&](const Page* page) { return page->mark == mark_ + 1; });
  Block* block = nullptr;
  for (const Need& need : all) {
    need.page->home = {&arena, need.slot};
    arena.slots[need.slot].idle_since = 0;
    --stale_;
  }
  for_each_run(
      all,
      [](const Need& need) { return need.slot; },
      [&](std::size_t first, std::size_t last) {
        const SlotRange range{.first = all[first].slot, .last = all[last - 1].slot + 1};
        host_.pages_arrived(
            arena, arena.address_of(range.first), range.size() * arena.page_bytes());
        block = &arrive(arena, range);
      });
  return *block;
}

void PageStore::leave_homes(std::vector<Page*>& pages) noexcept {
  const auto key = [](const Page* page) {
    return page->home.arena->base + page->home.slot * page->home.arena->page_bytes();
  };
  std::ranges::sort(pages, {}, key);
  for (std::size_t first = 0; first < pages.size();) {
    PageArena& arena = *pages[first]->home.arena;
    std::size_t last = first + 1;
    while (last < pages.size() && pages[last]->home.arena == &arena &&
           pages[last]->home.slot == pages[last - 1]->home.slot + 1) {
      ++last;
    }
    const SlotRange range{.first = pages[first]->home.slot,
                          .last = pages[last - 1]->home.slot + 1};
    Block& cover = *pages[first]->cover;
    for (std::uint64_t i = range.first; i < range.last; ++i) {
      arena.slots[i].idle_since = cover.gc_base;
      ++stale_;
    }
    unback(cover, arena, range);
    host_.pages_left(arena, arena.address_of(range.first), range.size() * arena.page_bytes());
    for (std::size_t i = first; i < last; ++i) pages[i]->home = {};
    first = last;
  }
}

// --- Giving back ---------------------------------------------------------------------------------

bool PageStore::can_unmap_all(const Page& page) const noexcept {
  if (is_capturing_) return false;
  return std::ranges::all_of(page.mapped, [&](const PagePlace& place) {
    const std::uint64_t since = place == page.home ? page.cover->gc_base
                                                   : place.arena->slots[place.slot].idle_since;
    return since <= place.arena->clock->done;
  });
}

bool PageStore::unmap_slot(PageArena& arena, std::uint64_t slot) noexcept {
  const auto unmapped = device_.unmap_pages(arena.address_of(slot), arena.page_bytes());
  if (!unmapped && !is_gone(unmapped.error())) return false;
  Page& page = *arena.slots[slot].page;
  if (page.home != PagePlace{&arena, slot}) --stale_;
  forget_place(page, {&arena, slot});
  arena.slots[slot] = {};
  return true;
}

// Of a free page that nobody uses through any mapping. What fails on the way leaves it loose.
bool PageStore::release_page(PageClass& pages, Page& page) noexcept {
  PageArena* const arena = page.home.arena;
  if (arena != nullptr) {
    std::vector<Page*> leaving;
    try {
      blocks_.prepare(4);
      arena->unbacked.reserve(arena->unbacked.size() + 2);
      arena->free->prepare(2);
      pages.loose.reserve(pages.loose.size() + 1);
      leaving.push_back(&page);
    } catch (...) {
      return false;
    }
    leave_homes(leaving);
    pages.loose.push_back(&page);
  }
  while (!page.mapped.empty()) {
    const PagePlace place = page.mapped.back();
    if (!unmap_slot(*place.arena, place.slot)) return false;
  }
  const auto released = device_.release_pages(page.handle);
  if (!released && !is_gone(released.error())) return false;
  host_.page_released(pages.is_slab, pages.page_bytes);
  std::erase(pages.loose, &page);
  page.handle = PageHandle::kNone;
  page.mark = 0;
  pages.unused.push_back(&page);
  --pages.count;
  return true;
}

bool PageStore::make_room(const PageClass& wanted, std::uint64_t wanted_bytes, bool in_cushion) {
  const auto fits = [&] {
    return host_.room_in_limit() >= wanted_bytes &&
           (!in_cushion || host_.room_in_cushion() >= wanted_bytes);
  };
  if (fits()) return true;
  if (is_capturing_) return false;
  struct Candidate {
    PageClass* pages;
    Page* page;
    std::uint64_t since;
  };
  std::vector<Candidate> candidates;
  std::uint64_t bytes = 0;
  for (PageClass& pages : classes_) {
    if (&pages == &wanted) continue;
    for (Page& page : pages.all) {
      if (page.handle == PageHandle::kNone || !is_free(page) || !can_unmap_all(page)) continue;
      const bool is_loose = page.home.arena == nullptr;
      candidates.push_back({&pages, &page, is_loose ? 0 : page.cover->gc_base});
      bytes += pages.page_bytes;
    }
  }
  if (saturating_add(host_.room_in_limit(), bytes) < wanted_bytes) return false;
  std::ranges::stable_sort(candidates, {}, &Candidate::since);
  for (const Candidate& candidate : candidates) {
    if (fits()) break;
    (void)release_page(*candidate.pages, *candidate.page);
  }
  return fits();
}

std::uint64_t PageStore::release_free(std::uint64_t most_bytes) {
  std::uint64_t released = 0;
  if (is_capturing_) return released;
  // The largest first: the fewest calls of the device for the bytes.
  std::vector<PageClass*> order;
  for (PageClass& pages : classes_) order.push_back(&pages);
  std::ranges::sort(order, std::ranges::greater{}, [](const PageClass* c) { return c->page_bytes; });
  for (PageClass* pages : order) {
    for (Page& page : pages->all) {
      if (released + pages->page_bytes > most_bytes) break;
      if (page.handle == PageHandle::kNone || !is_free(page) || !can_unmap_all(page)) continue;
      if (release_page(*pages, page)) released += pages->page_bytes;
    }
  }
  return released;
}

std::uint64_t PageStore::retire(std::uint64_t most) {
  std::uint64_t count = 0;
  if (is_capturing_) return count;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    for (std::uint64_t i = 0; i < arena.slots.size() && count < most; ++i) {
      const PageSlot& slot = arena.slots[i];
      if (slot.page == nullptr || slot.page->home == PagePlace{&arena, i}) continue;
      if (slot.idle_since > arena.clock->done) continue;
      count += unmap_slot(arena, i) ? 1 : 0;
    }
  }
  return count;
}

bool PageStore::wait_for_streams() {
  if (is_capturing_) return false;
  bool is_done = true;
  for (StreamClock& clock : clocks_) {
    const auto event = device_.record_event(clock.stream);
    bool has_passed = !event && (is_gone(event.error()) ||
                                 event.error() == StatusCode::kUnknownHandle);
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

std::uint64_t PageStore::free_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const PageArena& arena : arenas_) {
    if (!arena.is_private()) bytes += arena.free_pages * arena.page_bytes();
  }
  for (const PageClass& pages : classes_) bytes += pages.loose.size() * pages.page_bytes;
  return bytes;
}

// --- The end -------------------------------------------------------------------------------------

void PageStore::release_all() noexcept {
  for (StreamClock& clock : clocks_) {
    for (const StreamClock::Mark& mark : clock.marks) (void)device_.release_event(mark.event);
    clock.marks.clear();
  }
  for (PageArena& arena : arenas_) {
    const bool has_any =
        arena.is_private() || std::ranges::any_of(arena.slots, [](const PageSlot& slot) {
          return slot.page != nullptr;
        });
    if (has_any) (void)device_.unmap_pages(arena.base, arena.size);
    if (arena.is_private()) (void)device_.release_pages(arena.handle);
  }
  for (PageClass& pages : classes_) {
    for (Page& page : pages.all) {
      if (page.handle != PageHandle::kNone) (void)device_.release_pages(page.handle);
    }
  }
  for (const PageArena& arena : arenas_) (void)device_.release_addresses(arena.base);
  for (const DeviceAddress base : stray_reservations_) (void)device_.release_addresses(base);
}

}  // namespace headroom::memory::internal
