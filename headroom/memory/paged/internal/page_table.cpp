#include "headroom/memory/paged/internal/page_table.h"

#include <algorithm>
#include <iterator>

#include "headroom/base/check.h"

namespace headroom::memory::internal {

using device::PageHandle;

void PageTable::set_page_sizes(std::uint64_t granularity,
                               std::uint64_t whole_bytes,
                               std::uint64_t large_bytes,
                               std::uint64_t slab_bytes) {
  slot_bytes_ = whole_bytes / 2 % granularity == 0 ? whole_bytes / 2 : whole_bytes;
  const auto set = [&](PageSize size, std::uint64_t bytes, std::uint64_t span) {
    class_of(size).size = size;
    class_of(size).page_bytes = bytes;
    class_of(size).span = span;
  };
  set(PageSize::kHalf, slot_bytes_, 1);
  set(PageSize::kWhole, whole_bytes, whole_bytes / slot_bytes_);
  set(PageSize::kLarge, large_bytes, large_bytes / slot_bytes_);
  set(PageSize::kSlab, slab_bytes, 1);
}

// --- Arenas --------------------------------------------------------------------------------------

void PageTable::prepare_arena() {
  blocks_.prepare(1);
  spare_arena_.resize(1);
  spare_arena_.front().unbacked.reserve(1);
  spare_arena_.front().handles.reserve(1);
  with_holes_.reserve(arenas_.size() + 1);
}

PageArena& PageTable::take_spare_arena() noexcept {
  arenas_.splice(arenas_.end(), spare_arena_, spare_arena_.begin());
  return arenas_.back();
}

PageArena& PageTable::add_arena(ArenaKind kind,
                                StreamClock& clock,
                                DeviceAddress base,
                                std::uint64_t size) noexcept {
  PageArena& arena = take_spare_arena();
  arena.kind = kind;
  arena.base = base;
  arena.size = size;
  arena.slot_bytes = kind == ArenaKind::kSlab ? class_of(PageSize::kSlab).page_bytes : slot_bytes_;
  arena.clock = &clock;
  arena.free = &arena.own_free;
  arena.number = ++last_number_;  // not their count: private ones go
  PagedBlock& all = blocks_.take();
  all.address = base;
  all.size = size;
  all.stream = clock.stream;
  all.arena = &arena;
  all.is_mapped = false;
  arena.first = arena.last = &all;
  arena.unbacked.push_back(&all);
  return arena;
}

PageArena& PageTable::add_private_arena(const PrivateRange& made) noexcept {
  PageArena& arena = take_spare_arena();
  arena.kind = ArenaKind::kPrivate;
  arena.is_listed = true;
  arena.base = made.base;
  arena.size = made.size;
  arena.clock = made.clock;
  arena.pool = made.pool;
  arena.free = made.free;
  arena.room = made.room;
  arena.source = made.source;
  if (made.source == nullptr) {
    arena.handles.push_back({.address = made.base, .size = made.size, .handle = made.handle});
  }
  PagedBlock& all = blocks_.take();
  all.address = arena.base;
  all.size = arena.size;
  all.stream = arena.stream();
  all.arena = &arena;
  all.freed_at = clocks_.stamp(*arena.clock);
  arena.first = arena.last = &all;
  arena.free->insert(all);
  host_.page_created(arena.size);
  host_.pages_arrived(arena, arena.base, arena.size);
  return arena;
}

void PageTable::prepare_growth(PageArena& arena) {
  blocks_.prepare(1);
  arena.handles.reserve(arena.handles.size() + 1);
}

PagedBlock& PageTable::grow_private_arena(PageArena& arena,
                                          std::uint64_t size_bytes,
                                          PageHandle handle) noexcept {
  PagedBlock& added = blocks_.take();
  added.address = arena.end();
  added.size = size_bytes;
  added.stream = arena.stream();
  added.arena = &arena;
  added.freed_at = clocks_.stamp(*arena.clock);
  added.prev = arena.last;
  arena.last->next = &added;
  arena.last = &added;
  arena.handles.push_back({.address = added.address, .size = size_bytes, .handle = handle});
  arena.size += size_bytes;
  arena.room -= size_bytes;
  host_.page_created(size_bytes);
  host_.pages_arrived(arena, added.address, size_bytes);
  return file_hole(added);
}

void PageTable::drop_handle(PageArena& arena, std::size_t index, PagedBlock& hole) noexcept {
  const PoolHandle dropped = arena.handles[index];
  arena.handles.erase(arena.handles.begin() + static_cast<std::ptrdiff_t>(index));
  host_.pages_left(arena, dropped.address, dropped.size);
  host_.page_released(dropped.size);
  arena.free->erase(hole);
  if (hole.address < dropped.address) {
    arena.free->insert(cut_front(hole, dropped.address - hole.address));
  }
  PagedBlock* gone = &hole;
  if (dropped.size < hole.size) {
    gone = &cut_front(hole, dropped.size);
    arena.free->insert(hole);
  }
  gone->is_mapped = false;
  if (gone->next != nullptr && !gone->next->is_mapped) absorb_next(*gone);
  if (gone->prev != nullptr && !gone->prev->is_mapped) absorb_next(*gone->prev);
}

void PageTable::remove_private_arena(PageArena& arena) noexcept {
  if (arena.source != nullptr) {
    host_.pages_left(arena, arena.base, arena.size);
    host_.page_released(arena.size);
    arena.free->erase(*arena.first);
  }
  HEADROOM_ASSERT(arena.first->next == nullptr, "an arena of a private pool goes in use");
  blocks_.give_back(*arena.first);
  arenas_.remove_if([&](const PageArena& other) { return &other == &arena; });
}

// --- Pages ---------------------------------------------------------------------------------------

void PageTable::prepare_page(PageClass& pages) {
  if (!pages.unused.empty()) return;
  pages.unused.reserve(pages.all.size() + 1);
  pages.loose.reserve(pages.all.size() + 1);
  Page& record = pages.all.emplace_back();
  record.mapped.reserve(2);
  pages.unused.push_back(&record);
}

Page& PageTable::add_page(PageClass& pages, PageHandle handle) noexcept {
  Page& page = *pages.unused.back();
  pages.unused.pop_back();
  page.pages = &pages;
  page.handle = handle;
  page.home = {};
  page.mapped.clear();
  mark_taken(page);
  pages.loose.push_back(&page);
  ++pages.count;
  ++version_;
  host_.page_created(pages.page_bytes);
  return page;
}

void PageTable::remove_page(Page& page) noexcept {
  PageClass& pages = *page.pages;
  host_.page_released(pages.page_bytes);
  std::erase(pages.loose, &page);
  page.handle = PageHandle::kNone;
  page.mark = 0;
  pages.unused.push_back(&page);
  --pages.count;
  ++version_;
}

void PageTable::add_mapping(Page& page, PagePlace place) noexcept {
  page.mapped.push_back(place);
  for (std::uint64_t i = 0; i < page.pages->span; ++i) {
    place.arena->slots[place.slot + i] = {.page = &page, .first = place.slot, .rest = rest_number_};
  }
  ++stale_;
}

void PageTable::remove_mapping(Page& page, PagePlace place) noexcept {
  if (page.home != place) --stale_;
  std::erase(page.mapped, place);
  for (std::uint64_t i = 0; i < page.pages->span; ++i) place.arena->slots[place.slot + i] = {};
}

// --- Homes ---------------------------------------------------------------------------------------

void PageTable::make_loose(const std::vector<Page*>& pages) {
  std::vector<Page*> leaving;
  leaving.reserve(pages.size());
  blocks_.prepare(2 * pages.size() + 4);
  for (Page* page : pages) {
    page->pages->loose.reserve(page->pages->loose.size() + pages.size());
    if (page->home.arena == nullptr) continue;
    std::vector<PagedBlock*>& unbacked = page->home.arena->unbacked;
    unbacked.reserve(unbacked.size() + pages.size() + 2);
    leaving.push_back(page);
  }
  leave_homes(leaving);
  for (Page* page : pages) page->pages->loose.push_back(page);
}

std::vector<PageArena*> PageTable::arenas_of(const StreamClock& clock) {
  std::vector<PageArena*> out;
  for (PageArena& arena : arenas_) {
    if (arena.clock == &clock) out.push_back(&arena);
  }
  return out;
}

void PageTable::leave(const std::vector<PageArena*>& arenas) {
  std::vector<Page*> pages;
  for (const PageArena* arena : arenas) {
    arena->free->for_each([&](PagedBlock& hole) {
      for_each_free_page(*arena, hole, [&](Page& page) {
        page.cover = &hole;
        pages.push_back(&page);
      });
    });
  }
  make_loose(pages);
}

void PageTable::pass_on(PageArena& arena, StreamId to) noexcept {
  for (PagedBlock* block = arena.first; block != nullptr; block = block->next) block->stream = to;
}

void PageTable::prepare_settling(PageArena& arena,
                                 std::uint64_t top,
                                 std::size_t moved,
                                 std::size_t created) {
  arena.slots.resize(std::max<std::uint64_t>(top, arena.slots.size()));
  arena.top = std::max(top, arena.top);
  blocks_.prepare(2 * moved + 4);
  for (PageClass& pages : classes_) pages.loose.reserve(pages.all.size() + created);
  const auto reserve_unbacked = [&](PageArena& other) {
    other.unbacked.reserve(other.unbacked.size() + moved + 2);
  };
  // Pages leave holes.
  for (PageArena* other : with_holes_) reserve_unbacked(*other);
  if (!arena.is_listed) reserve_unbacked(arena);
}

void PageTable::begin_search() noexcept {
  mark_ += 2;  // the odd number marks what a plan has taken
  std::erase_if(with_holes_, [](PageArena* arena) {
    arena->is_listed = !arena->free->empty();
    return !arena->is_listed;
  });
  std::ranges::sort(with_holes_, {}, &PageArena::number);
}

PagedBlock& PageTable::settle(PageArena& arena,
                              const std::vector<NewHome>& homes,
                              std::vector<Page*>& leaving) noexcept {
  leave_homes(leaving);
  for (PageClass& pages : classes_) {
    std::erase_if(pages.loose, [&](const Page* page) { return page->mark == mark_ + 1; });
  }
  for (const NewHome& home : homes) {
    home.page->home = {&arena, home.slot};
    large_out_of_place_ += is_out_of_place(*home.page) ? 1 : 0;
    for (std::uint64_t i = 0; i < home.pages->span; ++i) {
      arena.slots[home.slot + i].idle_since = 0;
      arena.slots[home.slot + i].rest = rest_number_;
    }
    --stale_;
  }
  PagedBlock* hole = nullptr;
  for (std::size_t first = 0; first < homes.size();) {
    SlotRange range{.first = homes[first].slot, .last = homes[first].slot};
    while (first < homes.size() && homes[first].slot == range.last) {
      range.last += homes[first++].pages->span;
    }
    host_.pages_arrived(arena, arena.address_of(range.first), range.size() * arena.slot_bytes);
    hole = &back(arena, range);
  }
  return *hole;
}

// Neighbours at once. Sorts the pages.
void PageTable::leave_homes(std::vector<Page*>& pages) noexcept {
  std::ranges::sort(
      pages, {}, [](const Page* page) { return page->home.arena->address_of(page->home.slot); });
  for (std::size_t first = 0; first < pages.size();) {
    PageArena& arena = *pages[first]->home.arena;
    PagedBlock& cover = *pages[first]->cover;
    SlotRange range{.first = pages[first]->home.slot, .last = pages[first]->home.slot};
    std::size_t last = first;
    while (last < pages.size() && pages[last]->home == PagePlace{&arena, range.last}) {
      range.last += pages[last++]->pages->span;
    }
    for (std::uint64_t i = range.first; i < range.last; ++i) {
      arena.slots[i].idle_since = cover.freed_at;
      arena.slots[i].rest = rest_number_;
    }
    stale_ += last - first;
    unback(cover, arena, range);
    host_.pages_left(arena, arena.address_of(range.first), range.size() * arena.slot_bytes);
    for (; first < last; ++first) {
      large_out_of_place_ -= is_out_of_place(*pages[first]) ? 1 : 0;
      pages[first]->home = {};
    }
  }
}

// A part of a hole has lost its pages. What is left of the hole before and behind it keeps them.
void PageTable::unback(PagedBlock& cover, PageArena& arena, SlotRange range) noexcept {
  const DeviceAddress begin = arena.address_of(range.first);
  const DeviceAddress end = arena.address_of(range.last);
  arena.free->erase(cover);
  if (cover.address < begin) {
    PagedBlock& front = cut_front(cover, begin - cover.address);
    arena.free->insert(front);
    for_each_free_page(arena, front, [&](Page& page) { page.cover = &front; });
  }
  PagedBlock* middle = &cover;
  if (end < cover.address + cover.size) {
    middle = &cut_front(cover, end - cover.address);
    arena.free->insert(cover);
  }
  file_unbacked(*middle);
}

// A block that nobody holds, in no bin, has lost its pages.
void PageTable::file_unbacked(PagedBlock& block) noexcept {
  PagedBlock* const middle = &block;
  PageArena& arena = *block.arena;
  middle->is_mapped = false;
  const auto at = std::ranges::lower_bound(arena.unbacked, block.address, {}, &PagedBlock::address);
  const auto place = arena.unbacked.insert(at, middle);
  if (middle->next != nullptr && !middle->next->is_mapped) {
    arena.unbacked.erase(place + 1);
    absorb_next(*middle);
  }
  if (middle->prev != nullptr && !middle->prev->is_mapped) {
    arena.unbacked.erase(std::ranges::find(arena.unbacked, middle));
    absorb_next(*middle->prev);
  }
}

// These slots of an unbacked block are homes now: they become a hole, which is returned as it is
// with the holes beside it.
PagedBlock& PageTable::back(PageArena& arena, SlotRange range) noexcept {
  return file_hole(carve_backed(arena, range));
}

// Cuts these slots out of an unbacked block, as a backed one that is in no bin yet.
PagedBlock& PageTable::carve_backed(PageArena& arena, SlotRange range) noexcept {
  const DeviceAddress begin = arena.address_of(range.first);
  const DeviceAddress end = arena.address_of(range.last);
  auto at = std::ranges::lower_bound(arena.unbacked, begin + 1, {}, &PagedBlock::address);
  PagedBlock* around = *--at;
  HEADROOM_ASSERT(around->address <= begin && around->address + around->size >= end,
                  "pages arrive where addresses are backed");
  if (around->address < begin) {
    *at = &cut_front(*around, begin - around->address);
    ++at;
    at = arena.unbacked.insert(at, around);
  }
  if (around->address + around->size > end) {
    around = &cut_front(*around, end - around->address);  // the rest stays in the list
  } else {
    arena.unbacked.erase(at);
  }
  around->is_mapped = true;
  around->freed_at = clocks_.stamp(*arena.clock);
  return *around;
}

// Files a hole; returns it as it is with the holes beside it.
PagedBlock& PageTable::file_hole(PagedBlock& block) noexcept {
  PagedBlock* const prev = block.prev;
  const bool joins_prev = is_hole(prev);
  file_free(block);
  return joins_prev ? *prev : block;
}

}  // namespace headroom::memory::internal
