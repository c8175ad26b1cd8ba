// Small blocks that stay while large ones come and go, as in a program that serves requests.
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {
namespace {

// Requests of random lengths: of each layer two blocks stay as long as it is served, and between
// them others come and go. What stays has holes around it.
double reserved_over_live(unsigned seed) {
  constexpr int kLayers = 10;
  struct Served {
    std::vector<DeviceAddress> kept;
    std::uint64_t steps;
  };
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  PagedAllocator allocator(*device);
  std::mt19937_64 random(seed);
  std::vector<DeviceAddress> weights;
  for (int i = 0; i < 80; ++i) {
    weights.push_back(allocator.allocate((1 + random() % 12) * (1_MiB + 128_KiB)));
  }
  std::vector<Served> served;
  for (int step = 0; step < 60; ++step) {
    while (served.size() < 2 + random() % 4) {
      Served& request = served.emplace_back();
      request.steps = 2 + random() % 12;
      const std::uint64_t size = 64_KiB + random() % 16_MiB;
      for (int layer = 0; layer < kLayers; ++layer) {
        const DeviceAddress first = allocator.allocate(4 * size);
        request.kept.push_back(allocator.allocate(size));
        const DeviceAddress second = allocator.allocate(size);
        request.kept.push_back(allocator.allocate(size));
        allocator.free(first);
        const DeviceAddress third = allocator.allocate(6 * size);
        allocator.free(second);
        allocator.free(third);
      }
    }
    std::erase_if(served, [&](Served& request) {
      if (--request.steps > 0) return false;
      for (const DeviceAddress block : request.kept) allocator.free(block);
      return true;
    });
    EXPECT_TRUE(allocator.bound().is_kept());
  }
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  const Statistics stats = allocator.statistics();
  return static_cast<double>(stats.reserved_bytes.all.peak - 8_MiB) /
         static_cast<double>(stats.live_bytes.peak);
}

TEST(ServingRagged, TakesAFewPercentMoreThanWhatIsLive) {
  constexpr unsigned kSeeds = 12;
  double sum = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    const double ratio = reserved_over_live(seed);
    EXPECT_LT(ratio, 1.035) << seed;
    sum += ratio;
  }
  EXPECT_LT(sum / kSeeds, 1.02) << "on average";
}

// Every reservation of addresses is larger than this.
constexpr std::uint64_t kFarAway = 256_GiB;

std::uint64_t distance(DeviceAddress a, DeviceAddress b) { return a > b ? a - b : b - a; }

TEST(ServingRagged, WhereMuchIsStuckLargeBlocksAreKeptApart) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  PagedAllocator allocator(*device);
  std::vector<DeviceAddress> stays;
  std::vector<DeviceAddress> goes;
  for (int i = 0; i < 150; ++i) {
    stays.push_back(allocator.allocate(5_MiB));
    goes.push_back(allocator.allocate(8_MiB));
  }
  const DeviceAddress before = allocator.allocate(20_MiB);
  EXPECT_LT(distance(before, stays.back()), kFarAway);
  for (const DeviceAddress block : goes) allocator.free(block);

  const DeviceAddress seen = allocator.allocate(20_MiB);  // no hole fits: now it is known
  const DeviceAddress apart = allocator.allocate(20_MiB);
  EXPECT_GT(distance(apart, stays.back()), kFarAway);
  const DeviceAddress small = allocator.allocate(6_MiB);
  EXPECT_LT(distance(small, stays.back()), kFarAway);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);

  for (const DeviceAddress block : stays) allocator.free(block);
  for (const DeviceAddress block : {before, seen}) allocator.free(block);
  allocator.free(allocator.allocate(4_GiB));
  const DeviceAddress after = allocator.allocate(20_MiB);
  EXPECT_LT(distance(after, small), kFarAway) << "nothing is stuck any more";
  for (const DeviceAddress block : {apart, small, after}) allocator.free(block);
  EXPECT_TRUE(allocator.bound().is_kept());
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

}  // namespace
}  // namespace headroom::memory
