// The device contract, for every backend: any thread may call.
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"

#include "tests/support/device_backends.h"
#include "tests/support/device_status.h"

namespace headroom::device {
namespace {

using testing::worked;

constexpr int kSuiteThreads = 8;
constexpr int kRounds = 60;

class DeviceThreads : public testing::DeviceFixture {
 protected:
  // Runs `body(thread)` in all threads at once.
  template <class Body>
  void run_threads(Body body) {
    std::atomic<bool> go = false;
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kSuiteThreads; ++i) {
        threads.emplace_back([&go, &body, i] {
          go.wait(false);
          body(i);
        });
      }
      go = true;
      go.notify_all();
    }
  }

  // Whether all of [address, address + size) holds `value`; true on a device without values.
  bool holds(Device& device,
             DeviceAddress address,
             std::uint64_t size_bytes,
             std::uint8_t value,
             StreamId stream) {
    if (!backend().can_read_back) return true;
    std::vector<std::uint8_t> bytes(size_bytes);
    if (!device.copy_to_host(bytes.data(), address, size_bytes, stream)) return false;
    if (!device.synchronize_stream(stream)) return false;
    for (const std::uint8_t byte : bytes) {
      if (byte != value) return false;
    }
    return true;
  }
};
HEADROOM_DEVICE_SUITE(DeviceThreads, all_backends);

TEST_P(DeviceThreads, SegmentsOfThreadsAreApart) {
  Device& device = this->device();
  const std::uint64_t before = free_bytes();
  std::atomic<int> wrong = 0;
  run_threads([&](int thread) {
    const StreamId stream = device.create_stream().value();
    for (int round = 0; round < kRounds; ++round) {
      const auto size = static_cast<std::uint64_t>(512 * (1 + (thread * 7 + round) % 16));
      const auto segment = device.allocate_segment(size);
      if (!segment) continue;
      const auto value = static_cast<std::uint8_t>(thread * 31 + round);
      if (!device.fill(*segment, value, size, stream)) ++wrong;
      if (!holds(device, *segment, size, value, stream)) ++wrong;
      if (!device.synchronize_stream(stream)) ++wrong;
      if (!device.free_segment(*segment)) ++wrong;
    }
    if (!device.release_stream(stream)) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(has_free(before));
}

TEST_P(DeviceThreads, MappingsOfThreadsAreApart) {
  Device& device = this->device();
  const std::uint64_t page = this->page();
  const std::uint64_t before = free_bytes();
  std::atomic<int> wrong = 0;
  // One reservation for all, a slice for each.
  const DeviceAddress range = device.reserve_addresses(4 * kSuiteThreads * page).value();
  run_threads([&](int thread) {
    const DeviceAddress slice = range + static_cast<std::uint64_t>(4 * thread) * page;
    for (int round = 0; round < kRounds; ++round) {
      const auto handle = device.create_pages(page);
      if (!handle) continue;
      const auto value = static_cast<std::uint8_t>(thread * 31 + round);
      if (!device.map_pages(slice, std::array{*handle, *handle})) ++wrong;
      if (!device.fill(slice, value, page, StreamId::kDefault)) ++wrong;
      if (!holds(device, slice + page, page, value, StreamId::kDefault)) ++wrong;
      if (!device.release_pages(*handle)) ++wrong;
      if (!device.unmap_pages(slice, 4 * page)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(has_free(before));
  EXPECT_TRUE(worked(device.release_addresses(range)));
}

TEST_P(DeviceThreads, StreamsAndEventsCrossThreads) {
  Device& device = this->device();
  std::array<StreamId, 4> streams{};
  for (StreamId& stream : streams) stream = device.create_stream().value();
  std::atomic<std::uint64_t> ran = 0;
  std::atomic<int> wrong = 0;
  const HostTask task{
      .run =
          [](void* data) noexcept { static_cast<std::atomic<std::uint64_t>*>(data)->fetch_add(1); },
      .data = &ran};
  run_threads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const auto mine = static_cast<std::size_t>(thread + round) % streams.size();
      if (!device.enqueue_host(streams[mine], task)) ++wrong;
      const auto event = device.record_event(streams[mine]);
      if (!event) {
        ++wrong;
        continue;
      }
      // Only forward, so that no two streams wait for one another.
      if (mine + 1 < streams.size() && !device.wait_event(streams[mine + 1], *event)) ++wrong;
      if (round % 3 == 0 && !device.synchronize_event(*event)) ++wrong;
      if (!device.query_event(*event)) ++wrong;
      if (!device.release_event(*event)) ++wrong;
    }
  });
  for (const StreamId stream : streams) EXPECT_TRUE(worked(device.synchronize_stream(stream)));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ran, std::uint64_t{kSuiteThreads} * kRounds);
}

// All threads pull at the same capacity: some are refused, none gets what another has.
TEST_P(DeviceThreads, TheCapacityHoldsUnderContention) {
  if (!backend().has_exact_capacity) GTEST_SKIP() << "the capacity is shared";
  Device& device = this->device();
  const std::uint64_t total = device.properties().total_bytes;
  const std::uint64_t third = total / 3;
  std::atomic<std::uint64_t> held = 0;
  std::atomic<int> wrong = 0;
  std::atomic<int> got = 0;
  run_threads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      const auto segment = device.allocate_segment(third);
      if (!segment) {
        if (segment.error().code != StatusCode::kOutOfMemory) ++wrong;
        std::this_thread::yield();
        continue;
      }
      ++got;
      if (held.fetch_add(third) + third > total) ++wrong;
      held -= third;
      if (!device.free_segment(*segment)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(got, 0);
  EXPECT_EQ(free_bytes(), total);
}

// Strangers' handles, freed twice and by anybody: each is freed once.
TEST_P(DeviceThreads, OneOfManyFreesASegment) {
  Device& device = this->device();
  std::vector<DeviceAddress> segments;
  for (int i = 0; i < kRounds; ++i) segments.push_back(device.allocate_segment(512).value());
  std::atomic<int> freed = 0;
  std::atomic<int> wrong = 0;
  run_threads([&](int) {
    for (const DeviceAddress segment : segments) {
      const auto done = device.free_segment(segment);
      if (done) {
        ++freed;
      } else if (done.error().code != StatusCode::kUnknownHandle) {
        ++wrong;
      }
    }
  });
  EXPECT_EQ(freed, kRounds);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace headroom::device
