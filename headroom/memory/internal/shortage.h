// Which failures of a device a core answers by making room.
#pragma once

#include "headroom/device/types.h"

namespace headroom::memory::internal {

// The device has no room, as opposed to being broken.
[[nodiscard]] inline bool is_shortage(const device::DeviceStatus& status) noexcept {
  using device::StatusCode;
  return status == StatusCode::kOutOfMemory || status == StatusCode::kOutOfAddressSpace ||
         status == StatusCode::kTooManyMappings || status == StatusCode::kOutOfHostMemory;
}

}  // namespace headroom::memory::internal
