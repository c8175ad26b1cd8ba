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

}  // namespace

DeviceResult<PageArena*> Arenas::find_or_make(StreamId stream, ArenaKind kind) {
  for (PageArena& arena : table_.arenas()) {
    if (arena.kind == kind && arena.clock->stream == stream) return &arena;
  }
  const std::uint64_t least = 2 * table_.class_of(PageSize::kLarge).page_bytes;
  return make(stream, kind, least);
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
  return make(
      arena.stream(), arena.kind, arena.size + table_.class_of(PageSize::kWhole).page_bytes);
}

DeviceResult<PageArena*> Arenas::make(StreamId stream, ArenaKind kind, std::uint64_t least_bytes) {
  StreamClock& clock = clocks_.clock_of(stream);
  table_.prepare_arena();
  const auto range = kind == ArenaKind::kSlab ? next_slab_range() : reserve_range(least_bytes);
  if (!range) return Unexpected(range.error());
  return &table_.add_arena(kind, clock, range->base, range->size);
}

std::uint64_t Arenas::most_addresses() const noexcept {
  return round_up(kAddressesPerDevice * device_.properties().total_bytes +
                      table_.class_of(PageSize::kLarge).page_bytes,
                  table_.class_of(PageSize::kWhole).page_bytes);
}

// Where addresses are short, a smaller arena will do. It then takes half of what it could have: the
// other arenas need some too, and on a processor so does everybody else in the process.
DeviceResult<AddressRange> Arenas::reserve_range(std::uint64_t least_bytes) {
  const std::uint64_t page = table_.class_of(PageSize::kWhole).page_bytes;
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

DeviceResult<PageArena*> Arenas::make_private(StreamId stream,
                                              PoolId pool,
                                              FreeBins& free,
                                              std::uint64_t size_bytes) {
  StreamClock& clock = clocks_.clock_of(stream);
  table_.prepare_arena();
  stray_reservations_.reserve(stray_reservations_.size() + 1);
  stray_handles_.reserve(stray_handles_.size() + 1);
  const auto base = device_.reserve_addresses(size_bytes);
  if (!base) return Unexpected(base.error());
  const auto give_addresses_back = [&] {
    if (!device_.release_addresses(*base)) stray_reservations_.push_back(*base);
  };
  const auto handle = device_.create_pages(size_bytes, {.exportable = true});
  if (!handle) {
    give_addresses_back();
    return Unexpected(handle.error());
  }
  if (const auto mapped = device_.map_pages(*base, std::span(&*handle, 1)); !mapped) {
    if (!device_.release_pages(*handle)) stray_handles_.push_back(*handle);
    give_addresses_back();
    return Unexpected(mapped.error());
  }
  return &table_.add_private_arena({.base = *base,
                                    .size = size_bytes,
                                    .handle = *handle,
                                    .clock = &clock,
                                    .pool = pool,
                                    .free = &free});
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

bool Arenas::release_private(PageArena& arena) {
  HEADROOM_ASSERT(arena.first->is_free() && arena.first->next == nullptr,
                  "a private arena is released in use");
  if (arena.source != nullptr) {
    returned_.push_back(
        {.range = {.base = arena.base, .size = arena.size}, .source = arena.source});
    table_.remove_private_arena(arena);
    return true;
  }
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
  table_.remove_private_arena(arena);
  return true;
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
