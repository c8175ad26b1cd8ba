// Device calls whose failure is the caller's: an exception with the device's own line.
#pragma once

#include "headroom/base/error.h"
#include "headroom/device/types.h"

namespace headroom::tensor {

inline void must(const device::DeviceResult<void>& result) {
  if (!result) throw Error(to_string(result.error()));
}

template <class T>
[[nodiscard]] T must(const device::DeviceResult<T>& result) {
  if (!result) throw Error(to_string(result.error()));
  return *result;
}

}  // namespace headroom::tensor
