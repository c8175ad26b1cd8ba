// Streams that come and go while many threads allocate on them and free each other's blocks.
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/memory/mailbox.h"
#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using headroom::testing::worked;

TEST(PagedStreamThreads, NobodyLosesABlockWhenStreamsGo) {
  constexpr int kWorkers = 8;
  constexpr int kStreamsEach = 1000;
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  const auto device =
      device::MetaDevice::create({.capacity_bytes = 8_GiB, .profile = device::cuda_profile()});
  PagedAllocator allocator(*device);
  testing::Mailbox handover;  // whose streams may be long gone
  std::atomic<int> wrong = 0;
  const auto work = [&](unsigned number) {
    std::mt19937 random(seed + number);
    for (int i = 0; i < kStreamsEach; ++i) {
      const StreamId stream = device->create_stream().value();
      std::array<DeviceAddress, 8> blocks{};
      for (DeviceAddress& block : blocks) {
        const std::uint64_t size = random() % 3 == 0 ? 1 + random() % 3_MiB : 1 + random() % 4_KiB;
        block = allocator.try_allocate(size, stream).value_or(0);
        wrong += block == 0 ? 1 : 0;
      }
      for (const DeviceAddress block : blocks) {
        if (random() % 2 == 0) {
          handover.put(block);
        } else {
          wrong += worked(allocator.try_free(block)) ? 0 : 1;
        }
      }
      wrong += worked(device->release_stream(stream)) ? 0 : 1;
      while (const DeviceAddress block = random() % 16 == 0 ? 0 : handover.take()) {
        wrong += worked(allocator.try_free(block)) ? 0 : 1;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned number = 0; number < kWorkers; ++number) threads.emplace_back(work, number);
  }
  while (const DeviceAddress block = handover.take()) allocator.free(block);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  EXPECT_EQ(allocator.statistics().live_bytes.current, 0);
  EXPECT_LE(device->state().reservations.size(), kWorkers * kStreamsEach / 4U);
  allocator.empty_cache();
  EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, 0);
}

}  // namespace
}  // namespace headroom::memory
