// The backends that the device suite runs on. A new one is a struct like MetaBackend and a line in
// AllBackends; it then also runs inside a FaultDevice. A program of tests that needs a GPU defines
// HEADROOM_TEST_CUDA and gets the cuda backend instead of those that run everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

struct MetaBackend {
  static std::string name() { return "Meta"; }
  static constexpr bool kCanReadBack = false;      // copies bring values
  static constexpr bool kHasExactCapacity = true;  // free bytes are ours alone, and exact
  static constexpr bool kAdoptsAnyNumber = true;   // a native stream is a number like any other

  // Why this machine has no such device; then its tests are skipped.
  static std::optional<std::string> why_none() { return std::nullopt; }
  // What a meta device must take over to answer alike.
  static device::BackendProfile profile() { return device::cuda_profile(); }
  static TestDevice make(BackendOptions options = {}) {
    return TestDevice(
        device::MetaDevice::create({.capacity_bytes = options.capacity_bytes,
                                    .profile = {.granularity_bytes = options.granularity_bytes,
                                                .segment_alignment_bytes = 512}}));
  }
  // Optional: for what memory_info does not show.
  static void expect_nothing_left(device::Device& device) {
    auto& meta = dynamic_cast<device::MetaDevice&>(device);
    EXPECT_TRUE(meta.state().reservations.empty());
    EXPECT_TRUE(meta.state().streams.empty());
    EXPECT_EQ(meta.check_invariants(), std::nullopt);
  }
};

struct CpuBackend {
  static constexpr bool kCanReadBack = true;
  static constexpr bool kHasExactCapacity = true;
  static constexpr bool kAdoptsAnyNumber = true;

  static std::string name() { return "Cpu"; }
  static std::optional<std::string> why_none() { return std::nullopt; }
  static device::BackendProfile profile() { return device::cpu_profile(); }
  static TestDevice make(BackendOptions options = {}) {
    return TestDevice(device::CpuDevice::create({.capacity_bytes = options.capacity_bytes,
                                                 .granularity_bytes = options.granularity_bytes}));
  }
  static void expect_nothing_left(device::Device& /*device*/) {
    EXPECT_EQ(device::CpuDevice::live_mappings(), 0U);
  }
};

// The first GPU. Two devices of it share the card and are apart in all else.
struct CudaBackend {
  static constexpr bool kCanReadBack = true;
  static constexpr bool kHasExactCapacity = false;  // the driver and others take of it too
  static constexpr bool kAdoptsAnyNumber = false;   // a native stream is a pointer of the driver's

  static std::string name() { return "Cuda"; }
  static std::optional<std::string> why_none() {
    if (device::CudaDevice::count() > 0) return std::nullopt;
    return device::CudaDevice::why_none();
  }
  static device::BackendProfile profile() {
    device::BackendProfile profile = device::cuda_profile();
    profile.max_reservation_bytes = device::CudaDevice::kMaxReservationBytes;
    return profile;
  }
  static TestDevice make(BackendOptions /*options*/ = {}) {
    return TestDevice(device::CudaDevice::create().value());
  }
  static void expect_nothing_left(device::Device& device) {
    auto& cuda = dynamic_cast<device::CudaDevice&>(device);
    EXPECT_EQ(cuda.used_bytes(), 0U);
    EXPECT_EQ(cuda.check_invariants(), std::nullopt);
  }
};

// A backend inside a wrapper that makes nothing fail: it must not be noticed.
template <class Inner>
struct FaultBackend : Inner {
  static std::string name() { return "Fault" + Inner::name(); }
  static TestDevice make(BackendOptions options = {}) {
    TestDevice device = Inner::make(options);
    device.put_on(std::make_unique<device::FaultDevice>(*device));
    return device;
  }
};

#if defined(HEADROOM_TEST_CUDA)
using PlainBackends = ::testing::Types<CudaBackend>;
using AllBackends = ::testing::Types<CudaBackend, FaultBackend<CudaBackend>>;
using AsyncBackends = AllBackends;
#else
using PlainBackends = ::testing::Types<CpuBackend, MetaBackend>;
using AllBackends =
    ::testing::Types<CpuBackend, MetaBackend, FaultBackend<CpuBackend>, FaultBackend<MetaBackend>>;
// Those where work may still be queued when a call returns.
using AsyncBackends = ::testing::Types<CpuBackend, FaultBackend<CpuBackend>>;
#endif

struct BackendNames {
  template <class Backend>
  static std::string GetName(int /*index*/) {
    return Backend::name();
  }
};

// One device and what every test of the suite needs.
template <class Backend>
class DeviceFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = Backend::why_none()) GTEST_SKIP() << *why;
    device_.emplace(Backend::make());
  }

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
    constexpr std::uint64_t kSlack = Backend::kHasExactCapacity ? 0 : 256_MiB;
    const std::uint64_t found = free_bytes();
    const std::uint64_t off =
        found > expected_bytes ? found - expected_bytes : expected_bytes - found;
    if (off <= kSlack) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << format_bytes(found) << " are free, not " << format_bytes(expected_bytes);
  }

 private:
  std::optional<TestDevice> device_;
};

}  // namespace headroom::testing
