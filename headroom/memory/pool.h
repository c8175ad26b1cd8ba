// Values of private pools: what restoring one has changed, and where one may get its memory from.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory {

// What Allocator::restore_pool did, in blocks. A block that was held and is held again is in
// neither list.
struct PoolChange {
  std::vector<DeviceAddress> freed{};
  std::vector<DeviceAddress> allocated{};
};

// Memory for a pool in whole segments, from somebody else than the device. Called without a lock;
// may call the allocator.
struct SegmentSource {
  // 0 when there is none left. Aligned to 512 bytes, and nobody else's until it is given back.
  std::function<DeviceAddress(std::uint64_t size_bytes, StreamId stream)> allocate{};
  std::function<void(DeviceAddress segment, std::uint64_t size_bytes)> free{};
};

}  // namespace headroom::memory
