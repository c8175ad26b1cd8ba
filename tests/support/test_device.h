// The device that a test program runs on: the processor, or with HEADROOM_TEST_DEVICE=async in the
// environment the asynchronous one (async_device.h). A program that headroom_add_tests has as ASYNC
// is run on both.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/device/device.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::testing {

[[nodiscard]] bool runs_async();

[[nodiscard]] std::unique_ptr<device::Device> make_test_device(int index,
                                                               std::uint64_t capacity_bytes);
// The meta device that stands for it.
[[nodiscard]] std::unique_ptr<device::MetaDevice> make_test_meta(int index,
                                                                 std::uint64_t capacity_bytes);
[[nodiscard]] device::BackendProfile test_profile();

}  // namespace headroom::testing
