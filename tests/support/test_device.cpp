#include "tests/support/test_device.h"

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"

#include "tests/support/async_device.h"

namespace headroom::testing {

bool runs_async() {
  const char* const text = std::getenv("HEADROOM_TEST_DEVICE");
  if (text == nullptr || std::string_view(text) == "cpu") return false;
  if (std::string_view(text) == "async") return true;
  throw std::runtime_error("HEADROOM_TEST_DEVICE is cpu or async");
}

std::unique_ptr<device::Device> make_test_device(int index, std::uint64_t capacity_bytes) {
  if (runs_async()) {
    return std::make_unique<AsyncDevice>(
        AsyncOptions{.index = index, .capacity_bytes = capacity_bytes});
  }
  return device::CpuDevice::create({.index = index, .capacity_bytes = capacity_bytes});
}

std::unique_ptr<device::MetaDevice> make_test_meta(int index, std::uint64_t capacity_bytes) {
  return device::MetaDevice::create(
      {.index = index, .capacity_bytes = capacity_bytes, .profile = test_profile()});
}

device::BackendProfile test_profile() {
  static const device::BackendProfile kProfile =
      runs_async() ? device::profile_of(AsyncDevice({.capacity_bytes = 64_MiB}))
                   : device::cpu_profile();
  return kProfile;
}

}  // namespace headroom::testing
