// How every call of a device is made.
#pragma once

#include <new>
#include <utility>

#include "headroom/device/types.h"

namespace headroom::device::internal {

// Refuses in a forked child, names the call in whatever goes wrong, and turns a failure of our own
// bookkeeping into a status, so that backends may use containers freely.
template <class T, class Body>
DeviceResult<T> guarded(const char* call, bool is_forked, Body&& body) noexcept {
  DeviceStatus status{};
  try {
    if (is_forked) {
      status.code = StatusCode::kForked;
      status.detail = "devices do not survive a fork; make new ones in the child";
    } else {
      DeviceResult<T> result = std::forward<Body>(body)();
      if (result) return result;
      status = result.error();
    }
  } catch (const std::bad_alloc&) {
    status.code = StatusCode::kOutOfHostMemory;
  } catch (...) {
    status.detail = "an exception inside the backend";
  }
  status.call = call;
  return Unexpected(status);
}

}  // namespace headroom::device::internal
