// The worlds that the allocator suite runs in, each a backend and a policy, and one allocator over
// a small device. A new backend is a struct like CpuMemory: the device suite's backend, how to hold
// a stream, and whose allocator it is.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_backends.h"
#include "tests/support/stream_gate.h"

namespace headroom::memory::testing {

using headroom::testing::BackendOptions;
using headroom::testing::TestDevice;

// A backend of the device suite as a type, for tests that differ in more than values.
template <headroom::testing::Backend (*kBackend)()>
struct BackendType {
  static const headroom::testing::Backend& value() {
    static const headroom::testing::Backend backend = kBackend();
    return backend;
  }
  static std::optional<std::string> why_none() { return value().why_none(); }
  static TestDevice make(BackendOptions options = {}) { return value().make(options); }
  static void expect_nothing_left(device::Device& device) { value().expect_nothing_left(device); }
};

struct BackendNames {
  // GoogleTest looks for it by this name. NOLINTNEXTLINE(readability-identifier-naming)
  template <class T>
  static std::string GetName(int /*index*/) {
    return T::value().name + (std::is_same_v<typename T::Core, PagedAllocator> ? "Paged" : "");
  }
};

// Keeps what is queued on a stream from running, where streams have threads of their own.
class GateHold {
 public:
  GateHold(device::Device& device, StreamId stream)
      : device_(device), stream_(stream), gate_(device, stream) {}
  void let_go() {
    gate_.open();
    EXPECT_TRUE(device_.synchronize_stream(stream_).has_value());
  }

 private:
  device::Device& device_;
  StreamId stream_;
  headroom::testing::StreamGate gate_;
};

// On a meta device whose events are completed by hand, every stream is held.
class EventHold {
 public:
  EventHold(device::Device& device, StreamId stream)
      : device_(dynamic_cast<device::MetaDevice&>(device)), stream_(stream) {}
  void let_go() { EXPECT_TRUE(device_.complete_events(stream_).has_value()); }

 private:
  device::MetaDevice& device_;
  StreamId stream_;
};

struct CpuMemory : BackendType<headroom::testing::cpu_backend> {
  using Core = CachingAllocator;
  using Hold = GateHold;
};

struct MetaMemory : BackendType<headroom::testing::meta_backend> {
  using Core = CachingAllocator;
  using Hold = EventHold;
  static TestDevice make(BackendOptions options = {}) {
    return TestDevice(
        device::MetaDevice::create({.capacity_bytes = options.capacity_bytes,
                                    .profile = {.granularity_bytes = options.granularity_bytes},
                                    .events = device::EventCompletion::kByHand}));
  }
};

// A part of the first GPU, so that its capacity is small and exact whoever else is on the card.
struct CudaMemory : BackendType<headroom::testing::cuda_backend> {
  using Core = CachingAllocator;
  using Hold = GateHold;
  static TestDevice make(BackendOptions options = {}) {
    // Never destroyed: with it the context would go, and be made again for every device.
    static device::CudaDevice* const keeps_context = [] {
      auto device = device::CudaDevice::create().value();
      EXPECT_TRUE(device->memory_info().has_value());
      return device.release();
    }();
    (void)keeps_context;
    return TestDevice(
        device::CudaDevice::create({.capacity_bytes = options.capacity_bytes}).value());
  }
};

// The same with PagedAllocator.
template <class Backend>
struct Paged : Backend {
  using Core = PagedAllocator;
};

// AllocatorBackends are for what is CachingAllocator's alone, AllocatorWorlds for what every
// allocator promises.
#if defined(HEADROOM_TEST_CUDA)
using AllocatorBackends = ::testing::Types<CudaMemory>;
using AllocatorWorlds = ::testing::Types<CudaMemory, Paged<CudaMemory>>;
#else
using AllocatorBackends = ::testing::Types<CpuMemory, MetaMemory>;
using AllocatorWorlds =
    ::testing::Types<CpuMemory, MetaMemory, Paged<CpuMemory>, Paged<MetaMemory>>;
#endif

// Keeps every event.
class Collector final : public EventSink {
 public:
  void record(const Event& event) noexcept override { events.push_back(event); }
  [[nodiscard]] std::size_t count(Action action) const {
    std::size_t n = 0;
    for (const Event& event : events) n += event.action == action ? 1 : 0;
    return n;
  }
  std::vector<Event> events;
};

template <class Backend>
class AllocatorFixture : public ::testing::Test {
 protected:
  using Core = typename Backend::Core;
  static constexpr bool kIsPaged = std::is_same_v<Core, PagedAllocator>;
  static constexpr std::uint64_t kCapacity = 512_MiB;

  void SetUp() override {
    if (const auto why = Backend::why_none()) GTEST_SKIP() << *why;
    device_.emplace(Backend::make({.capacity_bytes = kCapacity, .granularity_bytes = 2_MiB}));
    free_at_start_ = free_bytes();
  }
  // Whatever a test leaves held goes back with the allocator.
  void TearDown() override {
    if (allocator_ == nullptr) return;
    EXPECT_EQ(allocator_->check_invariants(), std::nullopt);
    EXPECT_EQ(allocator_->account().sum(), device().properties().total_bytes);
    allocator_.reset();
    EXPECT_EQ(free_bytes(), free_at_start_);
    for (const StreamId stream : streams_) (void)device().release_stream(stream);
    Backend::expect_nothing_left(device());
  }

  // The allocator of the test, with these settings from the start; a PagedAllocator has none.
  Core& start(std::string_view settings = "", PyTorchVersion version = kPyTorch213) {
    allocator_.reset();
    if constexpr (kIsPaged) {
      EXPECT_EQ(settings, "");
      allocator_ = std::make_unique<Core>(device());
    } else {
      allocator_ = make_caching(settings, version);
    }
    return *allocator_;
  }
  // The settings that a test goes through.
  static std::vector<const char*> settings(std::initializer_list<const char*> of_caching) {
    if (kIsPaged) return {""};
    return of_caching;
  }
  [[nodiscard]] Core& allocator() { return allocator_ ? *allocator_ : start(); }
  [[nodiscard]] device::Device& device() { return **device_; }
  [[nodiscard]] StreamId new_stream() {
    streams_.push_back(device().create_stream().value());
    return streams_.back();
  }
  [[nodiscard]] std::uint64_t free_bytes() { return device().memory_info().value().free_bytes; }

  [[nodiscard]] std::uint64_t allocated() { return bytes(&Statistics::allocated_bytes); }
  [[nodiscard]] std::uint64_t reserved() { return bytes(&Statistics::reserved_bytes); }
  [[nodiscard]] std::uint64_t active() { return bytes(&Statistics::active_bytes); }
  // The size of the block that starts at `address`.
  [[nodiscard]] std::uint64_t size_of(DeviceAddress address) {
    const auto block = allocator().find_block(address);
    EXPECT_TRUE(block.has_value()) << "no block starts there";
    return block ? block->size_bytes : 0;
  }

 private:
  [[nodiscard]] std::unique_ptr<CachingAllocator> make_caching(std::string_view settings,
                                                               PyTorchVersion version) {
    const auto parsed = parse_config(settings, {.version = version});
    EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error());
    return std::make_unique<CachingAllocator>(
        device(), CachingOptions{.config = parsed->config, .version = version});
  }
  std::uint64_t bytes(StatArray Statistics::*quantity) {
    return static_cast<std::uint64_t>((allocator().statistics().*quantity).all.current);
  }

  std::optional<TestDevice> device_;
  std::unique_ptr<Core> allocator_;
  std::vector<StreamId> streams_;
  std::uint64_t free_at_start_ = 0;
};

}  // namespace headroom::memory::testing
