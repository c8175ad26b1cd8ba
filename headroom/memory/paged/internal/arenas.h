// Arenas: where the arenas of a paged allocator get their addresses.
//
//   auto arena = arenas.make_first(stream, ArenaKind::kNormal);
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

  // Of a stream that has none of the kind, with its addresses reserved. Slab arenas are parts of
  // one region.
  device::DeviceResult<PageArena*> make_first(StreamId stream, ArenaKind kind);
  // One to take the place of an arena that was made while addresses were short. Blocks stay where
  // they are, and the free pages of the old one are as good as any.
  device::DeviceResult<PageArena*> make_larger(const PageArena& arena);
  // The addresses that all slabs lie in, once there is a slab arena.
  [[nodiscard]] AddressRange slab_region() const noexcept { return slab_region_; }

  // How much a private pool whose holes are in `free` would take from the device for a hole of
  // this size: what is missing behind its last block, while there are addresses.
  struct Growth {
    PageArena* arena = nullptr;  // null: a new one
    std::uint64_t size = 0;
    bool is_alone = false;  // a new one that is not to grow
  };
  [[nodiscard]] Growth private_growth(const FreeBins& free, std::uint64_t hole_bytes) noexcept;
  // Returns the hole.
  device::DeviceResult<PagedBlock*> grow_private(StreamId stream,
                                                 PoolId pool,
                                                 FreeBins& free,
                                                 Growth growth);
  // A segment of somebody else's, for a private pool.
  PageArena& add_foreign(StreamId stream,
                         PoolId pool,
                         FreeBins& free,
                         const AddressRange& range,
                         std::shared_ptr<const SegmentSource> source);
  // Gives back what holes cover whole, and the arena itself once nothing of it is mapped. False
  // when the device keeps some of it.
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
                                                      std::uint64_t least_bytes,
                                                      std::uint64_t most_bytes);
  [[nodiscard]] std::uint64_t first_addresses() const noexcept;
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_range(std::uint64_t least_bytes,
                                                                 std::uint64_t most);
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_slab_region();
  [[nodiscard]] device::DeviceResult<AddressRange> next_slab_range();
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_private(const Growth& growth);
  device::DeviceResult<device::PageHandle> make_handle(DeviceAddress at, std::uint64_t size_bytes);
  bool release_handle(PageArena& arena, std::size_t index, PagedBlock& hole);

  device::Device& device_;
  StreamClocks& clocks_;
  PageTable& table_;
  AddressRange slab_region_{};
  DeviceAddress slab_reservation_ = 0;
  std::uint64_t slab_arenas_ = 0;
  std::uint64_t private_addresses_ = 0;  // reserved for private pools
  std::vector<DeviceAddress> stray_reservations_{};
  std::vector<device::PageHandle> stray_handles_{};
  std::vector<Returned> returned_{};
};

}  // namespace headroom::memory::internal
