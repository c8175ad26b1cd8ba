// must(): the value of a device call, or Error with what went wrong.
#pragma once

#include <utility>

#include "headroom/base/error.h"
#include "headroom/device/types.h"

namespace headroom::cli {

inline void must(const device::DeviceResult<void>& done) {
  if (!done) throw Error(to_string(done.error()));
}

template <class T>
[[nodiscard]] T must(device::DeviceResult<T> result) {
  if (!result) throw Error(to_string(result.error()));
  return *std::move(result);
}

}  // namespace headroom::cli
