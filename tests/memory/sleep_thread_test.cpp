// Memory sleeps and wakes while other threads allocate, use and free theirs.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::CpuDevice;
using headroom::testing::worked;

// Some threads free small blocks, without the lock, while these fall asleep and wake.
TEST(SleepThreads, SmallBlocksAreFreedOnce) {
  const auto device = CpuDevice::create({.capacity_bytes = 64_MiB, .granularity_bytes = 64_KiB});
  PagedAllocator allocator(*device, {.page_bytes = 256_KiB, .large_page_bytes = 1_MiB});
  std::atomic<bool> is_over{false};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const AnnotationScope names("small");
      const StreamId stream = device->create_stream().value();  // and so pages of its own
      std::minstd_rand random(i + 1);
      std::vector<DeviceAddress> held;
      while (!is_over) {
        if (const auto block = allocator.try_allocate(1 + random() % 4'000, stream)) {
          held.push_back(*block);
        }
        if (held.size() < 20 + random() % 20) continue;
        std::swap(held[random() % held.size()], held.back());
        if (!allocator.try_free(held.back())) ++refused;
        held.pop_back();
      }
      for (const DeviceAddress block : held) refused += allocator.try_free(block) ? 0 : 1;
    });
  }
  std::size_t slept = 0;
  // Until it has happened often: a page in which a thread keeps a free block stays awake.
  for (int round = 0, times = 0; round < 200'000 && times < 200; ++round) {
    const std::size_t blocks = allocator.sleep("small").blocks;
    times += blocks > 0 ? 1 : 0;
    slept += blocks;
    (void)allocator.wake("small");
    if (round % 50 == 0) {
      EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    }
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_GT(slept, 0U);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  EXPECT_EQ(allocator.statistics().allocated_bytes.all.current, 0);
  EXPECT_EQ(allocator.statistics().sleeping_bytes.current, 0);
}

// A block is filled with one byte, which it holds until it is freed.
bool is_filled_with(device::Device& device,
                    DeviceAddress address,
                    std::uint8_t value,
                    std::uint64_t size,
                    StreamId stream) {
  std::vector<std::uint8_t> bytes(size);
  return device.copy_to_host(bytes.data(), address, size, stream) &&
         device.synchronize_stream(stream) &&
         std::ranges::count(bytes, value) == static_cast<std::ptrdiff_t>(size);
}

struct SleepTraffic {
  explicit SleepTraffic(device::Device& of, Allocator& from) : device(of), allocator(from) {}

  // Comes and goes on a stream of its own, with a few blocks at a time.
  void run(unsigned seed) {
    const AnnotationScope names("awake");
    std::minstd_rand random(seed);
    const StreamId stream = device.create_stream().value();
    std::vector<std::pair<DeviceAddress, std::uint64_t>> held;
    const auto check_and_free = [&] {
      const auto [address, size] = held.back();
      held.pop_back();
      const auto value = static_cast<std::uint8_t>(address >> 9U);
      if (!is_filled_with(device, address, value, size, stream)) ++wrong;
      allocator.free(address);
    };
    while (!is_over) {
      const std::uint64_t size = random() % 3 == 0 ? 1 + random() % 60'000 : 1 + random() % 600'000;
      const auto block = allocator.try_allocate(size, stream);
      if (block) {
        held.emplace_back(*block, size);
        (void)device.fill(*block, static_cast<std::uint8_t>(*block >> 9U), size, stream);
      }
      if (held.size() > 6 || (!block && !held.empty())) check_and_free();
    }
    while (!held.empty()) check_and_free();
  }

  device::Device& device;
  Allocator& allocator;
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
};

TEST(SleepThreads, OthersGoOnAndNobodyLosesAByte) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  const auto device = CpuDevice::create({.capacity_bytes = 32_MiB, .granularity_bytes = 64_KiB});
  PagedAllocator allocator(
      *device, {.page_bytes = 256_KiB, .large_page_bytes = 1_MiB, .cushion_bytes = 256_KiB});
  constexpr std::size_t kBlocks = 8;
  constexpr std::uint64_t kBytes = 700_KiB;
  std::array<DeviceAddress, kBlocks> cold{};
  SleepTraffic traffic(*device, allocator);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&traffic, seed, i] { traffic.run(seed + i); });
  }
  {
    const AnnotationScope names("cold");
    for (DeviceAddress& block : cold) block = allocator.allocate(kBytes);
  }
  for (std::size_t i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE(
        worked(device->fill(cold[i], static_cast<std::uint8_t>(i), kBytes, StreamId::kDefault)));
  }
  int woken = 0;
  for (int round = 0; round < 60; ++round) {
    EXPECT_EQ(allocator.sleep("cold", SleepContents::kKeptOnHost).blocks, kBlocks);
    std::this_thread::yield();
    while (!allocator.try_wake("cold")) std::this_thread::yield();  // the others leave room
    ++woken;
    const std::size_t i = static_cast<std::size_t>(round) % kBlocks;
    EXPECT_TRUE(
        is_filled_with(*device, cold[i], static_cast<std::uint8_t>(i), kBytes, StreamId::kDefault));
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  }
  traffic.is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 60);
  EXPECT_EQ(traffic.wrong, 0);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

}  // namespace
}  // namespace headroom::memory
