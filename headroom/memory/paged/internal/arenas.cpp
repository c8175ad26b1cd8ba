#include "headroom/memory/paged/internal/arenas.h"

#include <algorithm>

#include "headroom/base/bytes.h"
#include "headroom/base/check.h"
#include "headroom/base/checked.h"

namespace headroom::memory::internal {

using device::DeviceResult;
using device::PageHandle;

namespace {

// Addresses of an arena, as a multiple of the device: room for pages to be mapped elsewhere while
// their old mappings are still in use.
constexpr std::uint64_t kAddressesPerDevice = 2;

// Streams that have slabs, and the most addresses that one has for them.
constexpr std::uint64_t kSlabStreams = 64;
constexpr std::uint64_t kMostSlabBytes = 16_GiB;

// The first arena of a stream has addresses for this part of the device, a later one this many
// times what the one before had.
constexpr std::uint64_t kFirstArenaOfDevice = 64;
constexpr std::uint64_t kLargerArena = 16;

// What a private pool may grow into, where there are so many addresses, and how many all pools
// reserve ahead; an arena grows by at least this part of itself.
constexpr std::uint64_t kPrivateRoomBytes = 32_GiB;
constexpr std::uint64_t kLeastPrivateRoomBytes = 512_MiB;
constexpr std::uint64_t kMostPrivateBytes = 4096_GiB;
constexpr std::uint64_t kGrowthOfArena = 64;

}  // namespace

DeviceResult<PageArena*> Arenas::make_first(StreamId stream, ArenaKind kind) {
  const std::uint64_t least = 2 * table_.class_of(PageSize::kLarge).page_bytes;
  // Most programs keep to the default stream. Of others there may be thousands.
  const std::uint64_t most = stream == StreamId::kDefault ? most_addresses() : first_addresses();
  return make(stream, kind, least, most);
}

DeviceResult<PageArena*> Arenas::make_larger(const PageArena& arena) {
  HEADROOM_ASSERT(arena.kind == ArenaKind::kNormal || arena.kind == ArenaKind::kLarge,
                  "slabs and private pools have arenas of one size");
  if (arena.size >= most_addresses()) {
    return Unexpected(device::DeviceStatus{.code = device::StatusCode::kOutOfAddressSpace,
                                           .call = "reserve_addresses",
                                           .detail = "the arena is as large as any",
                                           .found = arena.size});
  }
  return make(arena.stream(),
              arena.kind,
              arena.size + table_.class_of(PageSize::kWhole).page_bytes,
              std::min(most_addresses(), kLargerArena * arena.size));
}

DeviceResult<PageArena*> Arenas::make(StreamId stream,
                                      ArenaKind kind,
                                      std::uint64_t least_bytes,
                                      std::uint64_t most_bytes) {
  StreamClock& clock = clocks_.clock_of(stream);
  table_.prepare_arena();
  const auto range =
      kind == ArenaKind::kSlab ? next_slab_range() : reserve_range(least_bytes, most_bytes);
  if (!range) return Unexpected(range.error());
  return &table_.add_arena(kind, clock, range->base, range->size);
}

std::uint64_t Arenas::most_addresses() const noexcept {
  return round_up(kAddressesPerDevice * device_.properties().total_bytes +
                      table_.class_of(PageSize::kLarge).page_bytes,
                  table_.class_of(PageSize::kWhole).page_bytes);
}

// Of a stream that is not the default one: enough for it to start with, and for 10,000 like it.
std::uint64_t Arenas::first_addresses() const noexcept {
  return round_up(device_.properties().total_bytes / kFirstArenaOfDevice +
                      2 * table_.class_of(PageSize::kLarge).page_bytes,
                  table_.class_of(PageSize::kWhole).page_bytes);
}

// Where addresses are short, a smaller arena will do. It then takes half of what it could have: the
// other arenas need some too, and on a processor so does everybody else in the process.
DeviceResult<AddressRange> Arenas::reserve_range(std::uint64_t least_bytes, std::uint64_t most) {
  const std::uint64_t page = table_.class_of(PageSize::kWhole).page_bytes;
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
DeviceResult<AddressRange> Arenas::reserve_slab_region() {
  const std::uint64_t page = table_.class_of(PageSize::kSlab).page_bytes;
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

DeviceResult<AddressRange> Arenas::next_slab_range() {
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

// --- Private pools -------------------------------------------------------------------------------

Arenas::Growth Arenas::private_growth(const FreeBins& free, std::uint64_t hole_bytes) noexcept {
  const std::uint64_t grain =
      std::max(kSegmentRoundingBytes, device_.properties().granularity_bytes);
  for (PageArena& arena : table_.arenas()) {
    if (!arena.is_private() || arena.free != &free || arena.source != nullptr) continue;
    const std::uint64_t there = is_hole(arena.last) ? arena.last->size : 0;
    const std::uint64_t missing = round_up(hole_bytes - std::min(there, hole_bytes), grain);
    // A little more where the pool is large, so that calls stay few.
    const std::uint64_t ahead = std::min(kLargeSegmentBytes, arena.size / kGrowthOfArena);
    const std::uint64_t wanted = std::max(missing, round_up(ahead, grain));
    if (wanted <= arena.room) return {.arena = &arena, .size = wanted};
    if (missing <= arena.room) return {.arena = &arena, .size = missing};
  }
  return {.size = round_up(hole_bytes, grain)};
}

// More than is wanted now, so that the pool stays in one piece, while there are addresses. How much
// does not depend on the device: the same program takes the same memory on every one.
DeviceResult<AddressRange> Arenas::reserve_private(const Growth& growth) {
  for (std::uint64_t room = kPrivateRoomBytes; room >= kLeastPrivateRoomBytes; room /= 8) {
    const std::uint64_t size = growth.size + room;
    if (growth.is_alone || private_addresses_ + size > kMostPrivateBytes) continue;
    if (const auto base = device_.reserve_addresses(size)) {
      return AddressRange{.base = *base, .size = size};
    }
  }
  const auto base = device_.reserve_addresses(growth.size);
  if (!base) return Unexpected(base.error());
  return AddressRange{.base = *base, .size = growth.size};
}

// A handle that is mapped there.
DeviceResult<PageHandle> Arenas::make_handle(DeviceAddress at, std::uint64_t size_bytes) {
  stray_handles_.reserve(stray_handles_.size() + 1);
  const auto handle = device_.create_pages(size_bytes, {.exportable = true});
  if (!handle) return handle;
  if (const auto mapped = device_.map_pages(at, std::span(&*handle, 1)); !mapped) {
    if (!device_.release_pages(*handle)) stray_handles_.push_back(*handle);
    return Unexpected(mapped.error());
  }
  return handle;
}

DeviceResult<PagedBlock*> Arenas::grow_private(StreamId stream,
                                               PoolId pool,
                                               FreeBins& free,
                                               Growth growth) {
  if (growth.arena != nullptr) {
    PageArena& arena = *growth.arena;
    table_.prepare_growth(arena);
    const auto handle = make_handle(arena.end(), growth.size);
    if (!handle) return Unexpected(handle.error());
    return &table_.grow_private_arena(arena, growth.size, *handle);
  }
  StreamClock& clock = clocks_.clock_of(stream);
  table_.prepare_arena();
  stray_reservations_.reserve(stray_reservations_.size() + 1);
  const auto range = reserve_private(growth);
  if (!range) return Unexpected(range.error());
  const auto handle = make_handle(range->base, growth.size);
  if (!handle) {
    if (!device_.release_addresses(range->base)) stray_reservations_.push_back(range->base);
    return Unexpected(handle.error());
  }
  private_addresses_ += range->size;
  return table_
      .add_private_arena({.base = range->base,
                          .size = growth.size,
                          .room = range->size - growth.size,
                          .handle = *handle,
                          .clock = &clock,
                          .pool = pool,
                          .free = &free})
      .first;
}

PageArena& Arenas::add_foreign(StreamId stream,
                               PoolId pool,
                               FreeBins& free,
                               const AddressRange& range,
                               std::shared_ptr<const SegmentSource> source) {
  StreamClock& clock = clocks_.clock_of(stream);
  table_.prepare_arena();
  return table_.add_private_arena({.base = range.base,
                                   .size = range.size,
                                   .clock = &clock,
                                   .pool = pool,
                                   .free = &free,
                                   .source = std::move(source)});
}

// Either call may fail and is tried again later; the memory goes when both are done.
bool Arenas::release_handle(PageArena& arena, std::size_t index, PagedBlock& hole) {
  PoolHandle& handle = arena.handles[index];
  if (handle.handle != PageHandle::kNone) {
    const auto released = device_.release_pages(handle.handle);
    if (!released && !is_gone(released.error())) return false;
    handle.handle = PageHandle::kNone;
  }
  const auto unmapped = device_.unmap_pages(handle.address, handle.size);
  if (!unmapped && !is_gone(unmapped.error())) return false;
  table_.drop_handle(arena, index, hole);
  return true;
}

bool Arenas::release_private(PageArena& arena) {
  if (arena.source != nullptr) {
    if (!is_hole(arena.first) || arena.first->next != nullptr) return true;  // in use
    returned_.push_back(
        {.range = {.base = arena.base, .size = arena.size}, .source = arena.source});
    table_.remove_private_arena(arena);
    return true;
  }
  bool is_done = true;
  PagedBlock* block = arena.last;
  for (std::size_t i = arena.handles.size(); i-- > 0;) {
    const PoolHandle handle = arena.handles[i];
    while (block->address > handle.address) block = block->prev;
    const bool is_whole =
        is_hole(block) && block->address + block->size >= handle.address + handle.size;
    if (!is_whole) continue;
    table_.prepare_drop();
    is_done = release_handle(arena, i, *block) && is_done;
    block = arena.last;
  }
  if (!arena.handles.empty()) return is_done;
  stray_reservations_.reserve(stray_reservations_.size() + 1);
  if (const auto released = device_.release_addresses(arena.base);
      !released && !is_gone(released.error())) {
    stray_reservations_.push_back(arena.base);
  }
  private_addresses_ -= arena.size + arena.room;
  table_.remove_private_arena(arena);
  return is_done;
}

void Arenas::release_strays() noexcept {
  std::erase_if(stray_handles_, [&](PageHandle handle) {
    return static_cast<bool>(device_.release_pages(handle));
  });
  std::erase_if(stray_reservations_, [&](DeviceAddress base) {
    return static_cast<bool>(device_.release_addresses(base));
  });
}

void Arenas::release_all() noexcept {
  for (const PageArena& arena : table_.arenas()) {
    if (arena.kind == ArenaKind::kSlab) continue;
    if (arena.source != nullptr) {
      arena.source->free(arena.base, arena.size);
    } else {
      (void)device_.release_addresses(arena.base);
    }
  }
  if (slab_region_.size != 0) (void)device_.release_addresses(slab_reservation_);
  release_strays();
}

}  // namespace headroom::memory::internal
