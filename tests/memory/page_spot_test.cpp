// Where in a hole a block takes the fewest pages, and what that does for a program that serves.
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/internal/page_store.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {
namespace {

using internal::Block;
using internal::PageArena;
using internal::PageStore;

class PageSpot : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSlot = 2_MiB;

  PageSpot() {
    arena_.base = 1_GiB;
    arena_.size = 1_GiB;
    arena_.slot_bytes = kSlot;
  }
  // A hole of so many bytes, so far into the arena.
  Block hole(std::uint64_t from, std::uint64_t size) {
    Block block;
    block.address = arena_.base + from;
    block.size = size;
    block.arena = &arena_;
    return block;
  }
  static PageStore::Spot spot(const Block& hole, std::uint64_t size) {
    const PageStore::Spot found = PageStore::best_spot(hole, size);
    EXPECT_GE(found.at, hole.address);
    EXPECT_LE(found.at + size, hole.address + hole.size);
    return found;
  }

  PageArena arena_{};
};

TEST_F(PageSpot, AFewBytesMoreThanPagesGoWhereAPageIsInUse) {
  const Block begins = hole(kSlot / 2, 20 * kSlot);
  EXPECT_EQ(spot(begins, 3 * kSlot + 64_KiB).at, begins.address);
  EXPECT_EQ(spot(begins, 3 * kSlot + 64_KiB).empty_pages, 3U);
  const Block ends = hole(0, 20 * kSlot + kSlot / 2);
  EXPECT_EQ(spot(ends, 3 * kSlot + 64_KiB).at + 3 * kSlot + 64_KiB, ends.address + ends.size);
}

TEST_F(PageSpot, WhatFillsItsPagesKeepsThemForItself) {
  const Block begins = hole(kSlot / 2, 60 * kSlot);
  const PageStore::Spot found = spot(begins, 40 * kSlot - 256_KiB);
  EXPECT_EQ(found.at, arena_.base + kSlot);
  EXPECT_EQ(found.pages, 40U);
  // Unless it would take a page less with a neighbour's.
  const Block has_room = hole(kSlot / 4, 60 * kSlot);
  EXPECT_EQ(spot(has_room, 40 * kSlot - 256_KiB - kSlot / 2).empty_pages, 39U);
}

TEST_F(PageSpot, AHoleThatJustFitsHasOneSpot) {
  const Block exact = hole(kSlot / 2 + 512, 5 * kSlot + 1_KiB);
  EXPECT_EQ(spot(exact, exact.size).at, exact.address);
  const Block within = hole(3 * kSlot + 512, kSlot + 512);
  EXPECT_EQ(spot(within, kSlot + 512).at, within.address) << "no page is wholly in it";
}

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
    EXPECT_TRUE(allocator.bound().holds());
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
    EXPECT_LT(ratio, 1.06) << seed;
    sum += ratio;
  }
  EXPECT_LT(sum / kSeeds, 1.035);
}

}  // namespace
}  // namespace headroom::memory
