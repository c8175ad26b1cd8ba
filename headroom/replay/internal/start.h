// The state before the first event, made ready for a device and an allocator.
#pragma once

#include <vector>

#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/replay/program.h"

namespace headroom::replay::internal {

struct StartLayout {
  std::vector<memory::SegmentInfo> segments{};  // by address
  std::vector<memory::ReservationInfo> reservations{};

  [[nodiscard]] bool contains(DeviceAddress address) const;
};

// Makes the device hold the segments, and the reservations with their pages.
[[nodiscard]] device::DeviceResult<StartLayout> lay_out_start(const Program& program,
                                                              device::MetaDevice& device);

}  // namespace headroom::replay::internal
