// Arenas: ranges of addresses, the blocks that tile them, and where they come from.
#include <algorithm>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/memory/internal/page_store.h"

namespace headroom::memory::internal {

using device::DeviceResult;
using device::PageHandle;

namespace {

// Addresses of an arena, as a multiple of the device: room for pages to be mapped elsewhere while
// their old mappings are still in use.
constexpr std::uint64_t kAddressesPerDevice = 2;

bool precedes_address(const Block* block, DeviceAddress address) noexcept {
  return block->address < address;
}

}  // namespace

void PageStore::set_page_sizes(std::uint64_t whole_bytes,
                               std::uint64_t large_bytes,
                               std::uint64_t slab_bytes) {
  const bool has_halves = whole_bytes / 2 % device_.properties().granularity_bytes == 0;
  slot_bytes_ = has_halves ? whole_bytes / 2 : whole_bytes;
  const auto set = [&](PageSize size, std::uint64_t bytes, std::uint64_t span) {
    of(size).size = size;
    of(size).page_bytes = bytes;
    of(size).span = span;
  };
  set(PageSize::kHalf, slot_bytes_, 1);
  set(PageSize::kWhole, whole_bytes, whole_bytes / slot_bytes_);
  set(PageSize::kLarge, large_bytes, large_bytes / slot_bytes_);
  set(PageSize::kSlab, slab_bytes, 1);
}

StreamClock& PageStore::clock_of(StreamId stream) {
  for (StreamClock& clock : clocks_) {
    if (clock.stream == stream) return clock;
  }
  StreamClock& clock = clocks_.emplace_back();
  clock.stream = stream;
  return clock;
}

DeviceResult<PageArena*> PageStore::arena_of(StreamId stream, ArenaKind kind) {
  for (PageArena& arena : arenas_) {
    if (arena.kind == kind && arena.clock->stream == stream) return &arena;
  }
  const std::uint64_t least = 2 * of(PageSize::kLarge).page_bytes;
  return add_arena(stream, kind, least);
}

// Its blocks stay where they are, and its free pages are as good as any.
DeviceResult<PageArena*> PageStore::larger_arena(const PageArena& arena) {
  HEADROOM_ASSERT(arena.kind == ArenaKind::kNormal || arena.kind == ArenaKind::kLarge,
                  "slabs and private pools have arenas of one size");
  if (arena.size >= most_addresses()) {
    return Unexpected(device::DeviceStatus{.code = device::StatusCode::kOutOfAddressSpace,
                                           .call = "reserve_addresses",
                                           .detail = "the arena is as large as any",
                                           .found = arena.size});
  }
  return add_arena(arena.stream(), arena.kind, arena.size + of(PageSize::kWhole).page_bytes);
}

DeviceResult<PageArena*> PageStore::add_arena(StreamId stream,
                                              ArenaKind kind,
                                              std::uint64_t least_bytes) {
  StreamClock& clock = clock_of(stream);
  blocks_.prepare(1);
  const auto range = kind == ArenaKind::kSlab ? next_slab_range() : reserve_range(least_bytes);
  if (!range) return Unexpected(range.error());
  PageArena& arena = arenas_.emplace_back();
  arena.kind = kind;
  arena.base = range->base;
  arena.size = range->size;
  arena.slot_bytes = kind == ArenaKind::kSlab ? of(PageSize::kSlab).page_bytes : slot_bytes_;
  arena.clock = &clock;
  arena.free = &arena.own_free;
  Block& all = blocks_.take();
  all.address = arena.base;
  all.size = arena.size;
  all.stream = stream;
  all.arena = &arena;
  all.is_mapped = false;
  arena.first = &all;
  arena.unbacked.push_back(&all);
  return &arena;
}

std::uint64_t PageStore::most_addresses() const noexcept {
  return round_up(
      kAddressesPerDevice * device_.properties().total_bytes + of(PageSize::kLarge).page_bytes,
      of(PageSize::kWhole).page_bytes);
}

// Where addresses are short, a smaller arena will do. It then takes half of what it could have: the
// other arenas need some too, and on a processor so does everybody else in the process.
DeviceResult<PageStore::AddressRange> PageStore::reserve_range(std::uint64_t least_bytes) {
  const std::uint64_t page = of(PageSize::kWhole).page_bytes;
  const std::uint64_t most = most_addresses();
  const std::uint64_t least = std::min(most, least_bytes);
  bool is_known = false;  // how much could be had
  for (std::uint64_t size = most;; size = std::max(round_up(size / 2, page), least)) {
    const auto base = device_.reserve_addresses(size);
    if (!base && size == least) return Unexpected(base.error());
    if (!base) continue;
    const bool is_fair = is_known || size == most || size == least;
    if (is_fair || !device_.release_addresses(*base)) {
      return AddressRange{.base = *base, .size = size};
    }
    is_known = true;
  }
}

// All slab pages lie in one region, so that an address tells whether it is of a slab. Where
// addresses are short, each stream gets fewer of them, and others are left some.
DeviceResult<PageStore::AddressRange> PageStore::reserve_slab_region() {
  const std::uint64_t page = of(PageSize::kSlab).page_bytes;
  const device::Properties& properties = device_.properties();
  const std::uint64_t most = round_up(std::min({properties.total_bytes,
                                                properties.max_reservation_bytes / 8 / kSlabStreams,
                                                kMostSlabBytes}),
                                      page);
  bool is_known = false;
  for (std::uint64_t size = most;; size = std::max(round_down(size / 4, page), page)) {
    // A little more, to begin at a multiple of a page: devices align to less.
    const auto base = device_.reserve_addresses(kSlabStreams * size + page);
    if (!base && size == page) return Unexpected(base.error());
    if (!base) continue;
    const bool is_fair = is_known || size == most || size == page;
    if (is_fair || !device_.release_addresses(*base)) {
      slab_reservation_ = *base;
      return AddressRange{.base = round_up(*base, page), .size = kSlabStreams * size};
    }
    is_known = true;
  }
}

DeviceResult<PageStore::AddressRange> PageStore::next_slab_range() {
  if (slab_region_.size == 0) {
    const auto region = reserve_slab_region();
    if (!region) return Unexpected(region.error());
    slab_region_ = *region;
  }
  const std::uint64_t size = slab_region_.size / kSlabStreams;
  if (slab_arenas_ == kSlabStreams) {
    return Unexpected(device::DeviceStatus{.code = device::StatusCode::kOutOfAddressSpace,
                                           .call = "reserve_addresses",
                                           .detail = "more streams than the slab region has room",
                                           .found = slab_arenas_ + 1,
                                           .bound = kSlabStreams});
  }
  return AddressRange{.base = slab_region_.base + slab_arenas_++ * size, .size = size};
}

DeviceResult<PageArena*> PageStore::add_private_arena(StreamId stream,
                                                      PoolId pool,
                                                      FreeBins& free,
                                                      std::uint64_t size_bytes) {
  StreamClock& clock = clock_of(stream);
  blocks_.prepare(1);
  stray_reservations_.reserve(stray_reservations_.size() + 1);
  stray_handles_.reserve(stray_handles_.size() + 1);
  PageArena& arena = arenas_.emplace_back();
  arena.kind = ArenaKind::kPrivate;
  arena.size = size_bytes;
  arena.clock = &clock;
  arena.pool = pool;
  arena.free = &free;
  const auto give_up = [&](const device::DeviceStatus& status) {
    arenas_.pop_back();
    return Unexpected(status);
  };
  const auto base = device_.reserve_addresses(size_bytes);
  if (!base) return give_up(base.error());
  const auto keep_addresses = [&] {
    if (!device_.release_addresses(*base)) stray_reservations_.push_back(*base);
  };
  const auto handle = device_.create_pages(size_bytes, {.exportable = true});
  if (!handle) {
    keep_addresses();
    return give_up(handle.error());
  }
  if (const auto mapped = device_.map_pages(*base, std::span(&*handle, 1)); !mapped) {
    if (!device_.release_pages(*handle)) stray_handles_.push_back(*handle);
    keep_addresses();
    return give_up(mapped.error());
  }
  arena.base = *base;
  arena.handle = *handle;
  Block& all = blocks_.take();
  all.address = arena.base;
  all.size = size_bytes;
  all.stream = stream;
  all.arena = &arena;
  all.gc_base = clock_;
  arena.first = &all;
  free.insert(all);
  host_.page_created(size_bytes);
  host_.pages_arrived(arena, arena.base, size_bytes);
  return &arena;
}

bool PageStore::release_private_arena(PageArena& arena) {
  Block& all = *arena.first;
  HEADROOM_ASSERT(all.is_free() && all.next == nullptr, "a private arena is released in use");
  stray_reservations_.reserve(stray_reservations_.size() + 1);
  // Either may fail and is tried again later; the memory goes when both are done.
  if (arena.handle != PageHandle::kNone) {
    const auto released = device_.release_pages(arena.handle);
    if (!released && !is_gone(released.error())) return false;
    arena.handle = PageHandle::kNone;
  }
  const auto unmapped = device_.unmap_pages(arena.base, arena.size);
  if (!unmapped && !is_gone(unmapped.error())) return false;
  if (const auto released = device_.release_addresses(arena.base);
      !released && !is_gone(released.error())) {
    stray_reservations_.push_back(arena.base);
  }
  host_.pages_left(arena, arena.base, arena.size);
  host_.page_released(arena.size);
  arena.free->erase(all);
  blocks_.give_back(all);
  arenas_.remove_if([&](const PageArena& other) { return &other == &arena; });
  return true;
}

// --- Blocks --------------------------------------------------------------------------------------

Block& PageStore::cut_front(Block& block, std::uint64_t size_bytes) {
  Block& front = blocks_.take_used();
  front.address = block.address;
  front.size = size_bytes;
  front.requested = 0;
  front.stream = block.stream;
  front.arena = block.arena;
  front.context = {};
  front.is_mapped = block.is_mapped;
  front.gc_base = block.gc_base;
  front.prev = block.prev;
  if (front.prev != nullptr) {
    front.prev->next = &front;
  } else {
    block.arena->first = &front;
  }
  front.next = &block;
  block.prev = &front;
  block.address += size_bytes;
  block.size -= size_bytes;
  return front;
}

namespace {

// Makes the neighbour behind a block part of it.
void absorb_next(BlockStore& blocks, Block& block) noexcept {
  Block& next = *block.next;
  block.size += next.size;
  block.gc_base = std::max(block.gc_base, next.gc_base);
  block.next = next.next;
  if (block.next != nullptr) block.next->prev = &block;
  blocks.give_back(next);
}

bool is_free_and_backed(const Block* block) noexcept {
  return block != nullptr && block->is_mapped && block->is_free();
}

}  // namespace

void PageStore::file_free(Block& block) noexcept {
  FreeBins& free = *block.arena->free;
  Block* result = &block;
  if (is_free_and_backed(block.next)) {
    free.erase(*block.next);
    absorb_next(blocks_, block);
  }
  if (is_free_and_backed(block.prev)) {
    result = block.prev;
    free.erase(*result);
    absorb_next(blocks_, *result);
  }
  free.insert(*result);
}

// Part of a free block has lost its pages. Its neighbours keep theirs.
void PageStore::unback(Block& cover, PageArena& arena, SlotRange range) noexcept {
  const DeviceAddress begin = arena.address_of(range.first);
  const DeviceAddress end = arena.address_of(range.last);
  arena.free->erase(cover);
  if (cover.address < begin) {
    Block& front = cut_front(cover, begin - cover.address);
    arena.free->insert(front);
    for_each_free_page(arena, front, [&](Page& page) { page.cover = &front; });
  }
  Block* middle = &cover;
  if (end < cover.address + cover.size) {
    middle = &cut_front(cover, end - cover.address);
    arena.free->insert(cover);
  }
  middle->is_mapped = false;
  const auto at = std::ranges::lower_bound(arena.unbacked, begin, {}, &Block::address);
  const auto place = arena.unbacked.insert(at, middle);
  if (middle->next != nullptr && !middle->next->is_mapped) {
    arena.unbacked.erase(place + 1);
    absorb_next(blocks_, *middle);
  }
  if (middle->prev != nullptr && !middle->prev->is_mapped) {
    arena.unbacked.erase(std::ranges::find(arena.unbacked, middle));
    absorb_next(blocks_, *middle->prev);
  }
}

// Slots that had no pages of their own have them now.
Block& PageStore::arrive(PageArena& arena, SlotRange range) noexcept {
  const DeviceAddress begin = arena.address_of(range.first);
  const DeviceAddress end = arena.address_of(range.last);
  auto at =
      std::lower_bound(arena.unbacked.begin(), arena.unbacked.end(), begin + 1, precedes_address);
  Block* around = *--at;
  HEADROOM_ASSERT(around->address <= begin && around->address + around->size >= end,
                  "pages arrive where addresses are backed");
  if (around->address < begin) {
    *at = &cut_front(*around, begin - around->address);
    ++at;
    at = arena.unbacked.insert(at, around);
  }
  if (around->address + around->size > end) {
    Block& middle = cut_front(*around, end - around->address);
    around = &middle;  // the rest stays in the list
  } else {
    arena.unbacked.erase(at);
  }
  around->is_mapped = true;
  around->gc_base = clock_;
  Block* const prev = around->prev;
  const bool joins_prev = is_free_and_backed(prev);
  file_free(*around);
  return joins_prev ? *prev : *around;
}

}  // namespace headroom::memory::internal
