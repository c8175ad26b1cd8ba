// Values of private pools: what restoring one has changed, and where one may get its memory from;
// and of the pages behind a block.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory {

// The result of Allocator::restore_pool, in blocks. A block that was held and is held again is in
// neither list.
struct PoolChange {
  std::vector<DeviceAddress> freed{};
  std::vector<DeviceAddress> allocated{};
};

// A page that a block lies on, where it is mapped.
struct PageAt {
  device::PageHandle handle = device::PageHandle::kNone;
  DeviceAddress address = 0;  // of the page, which may begin before the block
  std::uint64_t size_bytes = 0;
};

// Memory for a pool in whole segments, from somebody else than the device. Called without a lock;
// may call the allocator.
struct SegmentSource {
  // 0 when there is none left. Aligned to 512 bytes, and nobody else's until it is given back.
  std::function<DeviceAddress(std::uint64_t size_bytes, StreamId stream)> allocate{};
  std::function<void(DeviceAddress segment, std::uint64_t size_bytes)> free{};
};

}  // namespace headroom::memory
