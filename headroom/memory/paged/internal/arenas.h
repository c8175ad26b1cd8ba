// Arenas: where the arenas of a paged allocator get their addresses.
//
//   auto arena = arenas.find_or_make(stream, ArenaKind::kNormal);
//
// Every function requires the allocator's lock. What the device would not take back is kept, and
// tried again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/paged/internal/page_table.h"
#include "headroom/memory/pool.h"

namespace headroom::memory::internal {

struct AddressRange {
  DeviceAddress base = 0;
  std::uint64_t size = 0;
};

class Arenas {
 public:
  Arenas(device::Device& device, StreamClocks& clocks, PageTable& table) noexcept
      : device_(device), clocks_(clocks), table_(table) {}
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;

  // The arena of a stream and kind, with its addresses reserved; made when first asked for. Slab
  // arenas are parts of one region.
  device::DeviceResult<PageArena*> find_or_make(StreamId stream, ArenaKind kind);
  // One to take the place of an arena that was made while addresses were short. Blocks stay where
  // they are, and the free pages of the old one are as good as any.
  device::DeviceResult<PageArena*> make_larger(const PageArena& arena);
  // The addresses that all slabs lie in, once there is a slab arena.
  [[nodiscard]] AddressRange slab_region() const noexcept { return slab_region_; }

  // One handle with addresses of its own, for a private pool whose holes are in `free`.
  device::DeviceResult<PageArena*> make_private(StreamId stream,
                                                PoolId pool,
                                                FreeBins& free,
                                                std::uint64_t size_bytes);
  // A segment of somebody else's, for a private pool.
  PageArena& add_foreign(StreamId stream,
                         PoolId pool,
                         FreeBins& free,
                         const AddressRange& range,
                         std::shared_ptr<const SegmentSource> source);
  // Its only block is free. False when the device keeps the memory.
  bool release_private(PageArena& arena);

  // Segments of somebody else's that were released: the caller gives them back, without the lock.
  struct Returned {
    AddressRange range{};
    std::shared_ptr<const SegmentSource> source{};
  };
  [[nodiscard]] bool has_returned() const noexcept { return !returned_.empty(); }
  [[nodiscard]] std::vector<Returned> take_returned() noexcept {
    return std::exchange(returned_, {});
  }

  // Tries once more to give back what the device would not take.
  void release_strays() noexcept;
  // Gives back all addresses and all private handles. Nothing else is mapped any more.
  void release_all() noexcept;

 private:
  [[nodiscard]] std::uint64_t most_addresses() const noexcept;
  [[nodiscard]] device::DeviceResult<PageArena*> make(StreamId stream,
                                                      ArenaKind kind,
                                                      std::uint64_t least_bytes);
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_range(std::uint64_t least_bytes);
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_slab_region();
  [[nodiscard]] device::DeviceResult<AddressRange> next_slab_range();

  device::Device& device_;
  StreamClocks& clocks_;
  PageTable& table_;
  AddressRange slab_region_{};
  DeviceAddress slab_reservation_ = 0;
  std::uint64_t slab_arenas_ = 0;
  std::vector<DeviceAddress> stray_reservations_{};
  std::vector<device::PageHandle> stray_handles_{};
  std::vector<Returned> returned_{};
};

}  // namespace headroom::memory::internal
