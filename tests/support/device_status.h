// Device results in test assertions: EXPECT_TRUE(worked(call)), EXPECT_TRUE(refused(call, code)).
#pragma once

#include <ostream>

#include <gtest/gtest.h>

#include "headroom/device/types.h"

namespace headroom::device {

// GoogleTest looks for it by this name. NOLINTNEXTLINE(readability-identifier-naming)
inline void PrintTo(StatusCode code, std::ostream* out) { *out << to_string(code); }

}  // namespace headroom::device

namespace headroom::testing {

template <class T>
[[nodiscard]] ::testing::AssertionResult worked(const device::DeviceResult<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error());
}

// Refused with this code, and the status names a call.
template <class T>
[[nodiscard]] ::testing::AssertionResult refused(const device::DeviceResult<T>& result,
                                                 device::StatusCode code) {
  if (result) {
    return ::testing::AssertionFailure() << "it worked, instead of: " << to_string(code);
  }
  if (result.error().code != code || *result.error().call == '\0') {
    return ::testing::AssertionFailure()
           << to_string(result.error()) << ", instead of: " << to_string(code);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace headroom::testing
