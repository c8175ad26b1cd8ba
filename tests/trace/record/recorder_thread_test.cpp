// Recorders under sixteen threads: nothing is lost, nothing torn, whoever looks on.
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/history.h"
#include "headroom/trace/record/ring_recorder.h"

#include "tests/trace/scratch.h"

namespace headroom::trace {
namespace {

using memory::CachingAllocator;
using testing::read_file;
using testing::Scratch;

constexpr int kThreads = 16;
constexpr int kPairs = 300;

void churn(CachingAllocator& allocator, int seed) {
  std::vector<DeviceAddress> held;
  for (int i = 0; i < kPairs; ++i) {
    const auto size = static_cast<std::uint64_t>(512 * (1 + (seed * 31 + i * 7) % 4'000));
    held.push_back(allocator.allocate(size));
    if (held.size() > 8) {
      allocator.free(held.front());
      held.erase(held.begin());
    }
  }
  for (const DeviceAddress address : held) allocator.free(address);
}

// Replays alloc and free: what is freed must be live, with the size it was allocated with.
std::uint64_t count_contradictions(const Events& events) {
  std::map<DeviceAddress, std::uint64_t> live;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const DeviceAddress address = events.address(i);
    if (events.action(i) == Action::kAlloc) {
      wrong += live.emplace(address, events.size_bytes(i)).second ? 0 : 1;
    } else if (events.action(i) == Action::kFreeCompleted) {
      const auto found = live.find(address);
      wrong += found != live.end() && found->second == events.size_bytes(i) ? 0 : 1;
      live.erase(address);
    }
  }
  return wrong + live.size();
}

TEST(RecorderThreads, AFileHasEveryEventOfTwoAllocators) {
  const Scratch scratch;
  const std::string path = scratch.path("run.hrt");
  const auto first_device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  const auto second_device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  CachingAllocator first(*first_device);
  CachingAllocator second(*second_device);
  FileRecorder recorder({.path = path,
                         .interval = std::chrono::milliseconds(2),
                         .stacks = {.mode = StackMode::kOnAll, .depth = 20, .symbolise = false}});
  first.add_sink(recorder.channel({.device = 0}));
  second.add_sink(recorder.channel({.device = 1}));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { churn(i % 2 == 0 ? first : second, i); });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        recorder.mark("iteration", i % 2 == 0);
        recorder.flush();
      }
    });
  }
  first.remove_sink(recorder.channel({.device = 0}));
  second.remove_sink(recorder.channel({.device = 1}));
  ASSERT_TRUE(recorder.close());
  EXPECT_EQ(recorder.dropped_events(), 0U);
  const auto read = parse_hrt(read_file(path));
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->devices.size(), 2U);
  for (const DeviceTrace& device : read->devices) {
    EXPECT_GE(device.events.size(), 3U * kPairs * kThreads / 2);
    EXPECT_EQ(count_contradictions(device.events), 0U);
  }
  EXPECT_EQ(read->annotations.size(), 20U);
}

// Frees whose allocation the ring has lost are in order; an event that never was is not.
TEST(RecorderThreads, ARingIsReadWhileItIsWritten) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  CachingAllocator allocator(*device);
  RingRecorder ring({.capacity_events = 64,
                     .stacks = {.mode = StackMode::kOnAll, .depth = 8, .symbolise = false}});
  allocator.add_sink(ring);
  std::atomic<int> running{kThreads};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      churn(allocator, i);
      --running;
    });
  }
  while (running > 0) {
    const Trace trace = ring.snapshot();
    const Events& events = trace.devices[0].events;
    ASSERT_LE(events.size(), 64U);
    for (std::size_t i = 1; i < events.size(); ++i) {
      // A free completes right after it was asked for here, under the same lock.
      if (events.action(i - 1) != Action::kFreeRequested) continue;
      ASSERT_EQ(events.action(i), Action::kFreeCompleted);
      ASSERT_EQ(events.address(i), events.address(i - 1));
      ASSERT_EQ(events.size_bytes(i), events.size_bytes(i - 1));
    }
  }
  threads.clear();
  allocator.remove_sink(ring);
}

TEST(RecorderThreads, ASnapshotsStateIsWhatItsEventsLeft) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  CachingAllocator allocator(*device);
  History history;
  history.attach(allocator);
  std::atomic<int> running{kThreads};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const memory::IterationScope iteration(static_cast<std::uint64_t>(i));
      churn(allocator, i);
      --running;
    });
  }
  do {
    const Trace trace = history.snapshot();
    std::map<DeviceAddress, std::uint64_t> live;
    const Events& events = trace.devices.at(0).events;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events.action(i) == Action::kAlloc) live[events.address(i)] = events.size_bytes(i);
      if (events.action(i) == Action::kFreeCompleted) live.erase(events.address(i));
    }
    std::map<DeviceAddress, std::uint64_t> held;
    for (const Segment& segment : trace.segments) {
      for (const Block& block : segment.blocks) {
        if (block.state != memory::BlockState::kAllocated) continue;
        held[block.address.value()] = block.requested_bytes.value();
      }
    }
    ASSERT_EQ(live, held);
  } while (running > 0);
  threads.clear();
  ASSERT_TRUE(history.stop());
}

}  // namespace
}  // namespace headroom::trace
