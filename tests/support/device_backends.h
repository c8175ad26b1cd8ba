// The backends that the device suite runs on. A new one is a function like meta_backend() and a
// word in plain_backends(); it then also runs inside a FaultDevice. A program of tests that needs a
// GPU defines HEADROOM_TEST_CUDA and gets the cuda backend instead of those that run everywhere.
//
// They are values, not types: a typed suite compiles every test once for each of them, which under
// the sanitizers takes minutes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/fault_device.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::testing {

// What a test asks of its device; a backend that cannot choose ignores it.
struct BackendOptions {
  std::uint64_t capacity_bytes = 16_MiB;
  std::uint64_t granularity_bytes = 64_KiB;
};

// A device and the devices it wraps, destroyed from the outside in.
class TestDevice {
 public:
  explicit TestDevice(std::unique_ptr<device::Device> device) { put_on(std::move(device)); }
  TestDevice(TestDevice&&) = default;
  TestDevice& operator=(TestDevice&&) = delete;
  ~TestDevice() {
    while (!layers_.empty()) layers_.pop_back();
  }

  void put_on(std::unique_ptr<device::Device> layer) { layers_.push_back(std::move(layer)); }
  [[nodiscard]] device::Device& operator*() const noexcept { return *layers_.back(); }
  [[nodiscard]] device::Device* operator->() const noexcept { return layers_.back().get(); }
  [[nodiscard]] device::Device& innermost() const noexcept { return *layers_.front(); }

 private:
  std::vector<std::unique_ptr<device::Device>> layers_;
};

struct Backend {
  std::string name;
  bool can_read_back = true;       // copies bring values
  bool has_async_streams = true;   // work may still be queued when a call returns
  bool has_exact_capacity = true;  // the free bytes are ours alone, and exact
  bool adopts_any_number = true;   // a native stream is a number like any other
  std::function<TestDevice(BackendOptions)> make;
  // What a meta device takes over to answer alike.
  device::BackendProfile profile{};
  // Why this machine has no such device; then its tests are skipped.
  std::function<std::optional<std::string>()> why_none = [] { return std::nullopt; };
  // For what memory_info does not show.
  std::function<void(device::Device&)> expect_nothing_left = [](device::Device&) {};

  // GoogleTest looks for it by this name. NOLINTNEXTLINE(readability-identifier-naming)
  friend void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
};

inline Backend cpu_backend() {
  return {.name = "Cpu",
          .make =
              [](BackendOptions options) {
                return TestDevice(
                    device::CpuDevice::create({.capacity_bytes = options.capacity_bytes,
                                               .granularity_bytes = options.granularity_bytes}));
              },
          .profile = device::cpu_profile(),
          .expect_nothing_left =
              [](device::Device&) { EXPECT_EQ(device::CpuDevice::live_mappings(), 0U); }};
}

inline Backend meta_backend() {
  return {.name = "Meta",
          .can_read_back = false,
          .has_async_streams = false,
          .make =
              [](BackendOptions options) {
                return TestDevice(device::MetaDevice::create(
                    {.capacity_bytes = options.capacity_bytes,
                     .profile = {.granularity_bytes = options.granularity_bytes,
                                 .segment_alignment_bytes = 512}}));
              },
          .profile = device::cuda_profile(),
          .expect_nothing_left =
              [](device::Device& device) {
                const auto& meta = dynamic_cast<device::MetaDevice&>(device);
                EXPECT_TRUE(meta.state().reservations.empty());
                EXPECT_TRUE(meta.state().streams.empty());
                EXPECT_EQ(meta.check_invariants(), std::nullopt);
              }};
}

// The first GPU. Two devices of it share the card and are apart in all else.
inline Backend cuda_backend() {
  return {.name = "Cuda",
          .has_exact_capacity = false,  // the driver and others take of it too
          .adopts_any_number = false,   // a native stream is a pointer of the driver's
          .make = [](BackendOptions) { return TestDevice(device::CudaDevice::create().value()); },
          .profile = device::cuda_profile(),
          .why_none = []() -> std::optional<std::string> {
            if (device::CudaDevice::count() > 0) return std::nullopt;
            return device::CudaDevice::why_none();
          },
          .expect_nothing_left =
              [](device::Device& device) {
                const auto& cuda = dynamic_cast<device::CudaDevice&>(device);
                EXPECT_EQ(cuda.used_bytes(), 0U);
                EXPECT_EQ(cuda.check_invariants(), std::nullopt);
              }};
}

// A backend inside a wrapper that makes nothing fail: it must not be noticed.
inline Backend inside_fault_device(Backend inner) {
  Backend wrapped = inner;
  wrapped.name = "Fault" + inner.name;
  wrapped.make = [make = inner.make](BackendOptions options) {
    TestDevice device = make(options);
    device.put_on(std::make_unique<device::FaultDevice>(*device));
    return device;
  };
  return wrapped;
}

inline std::vector<Backend> plain_backends() {
#if defined(HEADROOM_TEST_CUDA)
  return {cuda_backend()};
#else
  return {cpu_backend(), meta_backend()};
#endif
}

inline std::vector<Backend> all_backends() {
  std::vector<Backend> all = plain_backends();
  for (const Backend& backend : plain_backends()) all.push_back(inside_fault_device(backend));
  return all;
}

inline std::vector<Backend> async_backends() {
  std::vector<Backend> some = all_backends();
  std::erase_if(some, [](const Backend& backend) { return !backend.has_async_streams; });
  return some;
}

// One device and what every test of the suite needs.
class DeviceFixture : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = backend().why_none()) GTEST_SKIP() << *why;
    device_.emplace(make());
  }

  [[nodiscard]] const Backend& backend() const { return GetParam(); }
  // One more device of the kind.
  [[nodiscard]] TestDevice make() const { return backend().make({}); }
  [[nodiscard]] device::Device& device() { return **device_; }
  [[nodiscard]] device::Device& innermost() { return device_->innermost(); }
  [[nodiscard]] std::uint64_t page() { return device().properties().granularity_bytes; }
  [[nodiscard]] std::uint64_t free_bytes() {
    const auto info = device().memory_info();
    EXPECT_TRUE(info.has_value());
    return info ? info->free_bytes : 0;
  }
  // Whether this much is free: exactly, or about where the driver keeps memory for itself.
  [[nodiscard]] ::testing::AssertionResult has_free(std::uint64_t expected_bytes) {
    const std::uint64_t slack = backend().has_exact_capacity ? 0 : 256_MiB;
    const std::uint64_t found = free_bytes();
    const std::uint64_t off =
        found > expected_bytes ? found - expected_bytes : expected_bytes - found;
    if (off <= slack) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << format_bytes(found) << " are free, not " << format_bytes(expected_bytes);
  }

 private:
  std::optional<TestDevice> device_;
};

}  // namespace headroom::testing

// Runs a suite on some of the backends: HEADROOM_DEVICE_SUITE(DeviceMemory, all_backends).
#define HEADROOM_DEVICE_SUITE(suite, backends)                                   \
  INSTANTIATE_TEST_SUITE_P(Backends,                                             \
                           suite,                                                \
                           ::testing::ValuesIn(::headroom::testing::backends()), \
                           [](const auto& backend) { return backend.param.name; })
