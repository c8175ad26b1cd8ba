// One line to make a DeviceStatus. Device::perform adds the call's name.
#pragma once

#include "headroom/device/types.h"

namespace headroom::device::internal {

[[nodiscard]] constexpr Unexpected<DeviceStatus> fail(StatusCode code,
                                                      const char* detail,
                                                      std::uint64_t found = 0,
                                                      std::uint64_t bound = 0,
                                                      std::int64_t native_code = 0) noexcept {
  return Unexpected(DeviceStatus{
      .code = code, .detail = detail, .found = found, .bound = bound, .native_code = native_code});
}

[[nodiscard]] constexpr Unexpected<DeviceStatus> not_timed() noexcept {
  return fail(StatusCode::kInvalidArgument, "an event was recorded without a time");
}

}  // namespace headroom::device::internal
