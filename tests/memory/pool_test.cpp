// Pools that are put back or have memory of somebody else, and the pages behind a block.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<device::Device> make_device() {
  return device::MetaDevice::create({.capacity_bytes = 2_GiB});
}

std::vector<BlockInfo> held_in(const Allocator& allocator, PoolId pool) {
  std::vector<BlockInfo> held;
  for (const SegmentInfo& segment : allocator.segments(pool)) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::kAllocated) held.push_back(block);
    }
  }
  return held;
}

std::vector<std::pair<DeviceAddress, std::uint64_t>> places(const std::vector<BlockInfo>& blocks) {
  std::vector<std::pair<DeviceAddress, std::uint64_t>> all;
  for (const BlockInfo& block : blocks) all.emplace_back(block.address, block.requested_bytes);
  std::ranges::sort(all);
  return all;
}

std::uint64_t reserved(const Allocator& allocator) {
  return static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.current);
}

// A captured step at one batch size, then at twice that: its blocks lie where two were before.
TEST(PrivatePool, GrowsInOnePiece) {
  const auto device = make_device();
  PagedAllocator allocator(*device);
  const PoolId pool = allocator.new_pool_id();
  allocator.retain_pool(pool);
  allocator.begin_allocate_to_pool(pool, {});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 24; ++i) blocks.push_back(allocator.allocate(12_MiB));
  for (const DeviceAddress block : blocks) allocator.free(block);
  const std::uint64_t before = reserved(allocator);
  EXPECT_LE(before, 24 * 12_MiB + 24 * 12_MiB / 64 + 2_MiB);
  for (int i = 0; i < 12; ++i) (void)allocator.allocate(24_MiB);
  EXPECT_EQ(reserved(allocator), before);
  EXPECT_EQ(allocator.segments(pool).size(), 1U);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.end_allocate_to_pool(pool);
}

TEST(PrivatePool, GivesBackWhatLiesAroundABlockThatStays) {
  const auto device = make_device();
  PagedAllocator allocator(*device);
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, {});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(allocator.allocate(30_MiB));
  const DeviceAddress small = allocator.allocate(1_KiB);
  allocator.end_allocate_to_pool(pool);
  allocator.release_pool(pool);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i != 4) allocator.free(blocks[i]);
  }
  allocator.empty_cache();
  EXPECT_LE(reserved(allocator), 40_MiB);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  EXPECT_FALSE(allocator.pages_of(blocks[4]).empty());
  EXPECT_EQ(allocator.pages_of(small).size(), 1U);
  allocator.free(blocks[4]);
  allocator.free(small);
  allocator.empty_cache();
  EXPECT_EQ(reserved(allocator), 0U);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// Pools come and go with streams and blocks that outlive them, on a device that has few addresses.
TEST(PrivatePool, RandomTrafficKeepsTheRules) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto device = make_device();
    PagedAllocator allocator(*device);
    std::mt19937 random(seed);
    std::vector<PoolId> pools;
    std::map<PoolId, int> users;
    const auto release = [&](PoolId pool) {
      for (; users[pool] > 0; --users[pool]) allocator.release_pool(pool);
    };
    std::vector<DeviceAddress> held;
    for (int i = 0; i < 600; ++i) {
      const auto kind = random() % 20;
      if (kind == 0 && pools.size() < 4) {
        pools.push_back(allocator.new_pool_id());
        allocator.retain_pool(pools.back());
        users[pools.back()] = 1;
      } else if (kind == 1 && !pools.empty()) {
        release(pools.back());
        pools.pop_back();
      } else if (kind == 2) {
        allocator.empty_cache();
      } else if (kind < 12 && held.size() < 60) {
        const bool is_private = !pools.empty() && random() % 4 != 0;
        const PoolId pool = is_private ? pools[random() % pools.size()] : PoolId{};
        if (is_private) {
          allocator.begin_allocate_to_pool(pool, {});
          ++users[pool];
        }
        const std::uint64_t size = random() % 3 == 0 ? random() % 24_MiB : random() % 2_MiB;
        if (const auto block = allocator.try_allocate(size + 1)) held.push_back(*block);
        if (is_private) allocator.end_allocate_to_pool(pool);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        allocator.free(held.back());
        held.pop_back();
      }
      ASSERT_EQ(allocator.check_invariants(), std::nullopt) << "seed " << seed << ", " << i;
    }
    for (const DeviceAddress block : held) allocator.free(block);
    for (const PoolId pool : pools) release(pool);
    allocator.empty_cache();
    EXPECT_EQ(reserved(allocator), 0U) << "seed " << seed;
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  }
}

// Libraries open streams of their own, each with a little memory.
TEST(Streams, AThousandShareTheAddressesOfASmallCard) {
  const auto device =
      device::MetaDevice::create({.capacity_bytes = 8_GiB, .profile = device::cuda_profile()});
  PagedAllocator allocator(*device);
  std::vector<DeviceAddress> held;
  for (int i = 0; i < 1000; ++i) {
    const auto block = allocator.try_allocate(1_MiB, device->create_stream().value());
    ASSERT_TRUE(block) << "stream " << i;
    held.push_back(*block);
    if (held.size() <= 100) continue;
    allocator.free(held.front());
    held.erase(held.begin());
  }
  EXPECT_LE(reserved(allocator), 100 * 2_MiB + 8_MiB);
  const StreamId one = device->create_stream().value();
  const DeviceAddress large = allocator.allocate(1_GiB, one);  // more than it starts with
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.free(large);
  for (const DeviceAddress block : held) allocator.free(block);
}

// Random traffic in a pool, with a state remembered now and then and put back later.
TEST(RestorePool, AnyStateComesBackExactly) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto device = make_device();
    PagedAllocator allocator(*device);
    const PoolId pool = allocator.new_pool_id();
    allocator.retain_pool(pool);
    allocator.begin_allocate_to_pool(pool, {});
    std::mt19937 random(seed);
    std::vector<std::vector<BlockInfo>> states{{}};
    for (int i = 0; i < 400; ++i) {
      const auto held = held_in(allocator, pool);
      const auto kind = random() % 20;
      if (kind < 11 || held.empty()) {
        const std::uint64_t size = random() % 3 == 0 ? random() % 9_MiB : random() % 200_KiB;
        (void)allocator.allocate(size + 1);
      } else if (kind < 18) {
        allocator.free(held[random() % held.size()].address);
      } else if (kind == 18) {
        states.push_back(held);
      } else {
        const auto& state = states[random() % states.size()];
        const auto before = places(held);
        const PoolChange change = allocator.restore_pool(pool, state);
        ASSERT_EQ(places(held_in(allocator, pool)), places(state)) << "seed " << seed;
        const std::uint64_t kept = held.size() - change.freed.size();
        ASSERT_EQ(kept + change.allocated.size(), state.size()) << "seed " << seed;
      }
      ASSERT_EQ(allocator.check_invariants(), std::nullopt) << "seed " << seed << ", step " << i;
    }
    allocator.end_allocate_to_pool(pool);
    (void)allocator.restore_pool(pool, {});
    EXPECT_TRUE(held_in(allocator, pool).empty());
    allocator.release_pool(pool);
    allocator.release_pool(pool);
    (void)allocator.empty_cache(pool);
    EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, 0);
  }
}

TEST(RestorePool, WhatCannotBeIsRefusedAndChangesNothing) {
  const auto device = make_device();
  PagedAllocator allocator(*device);
  const PoolId pool = allocator.new_pool_id();
  EXPECT_THROW(allocator.restore_pool(pool, {}), InvalidArgument) << "no such pool";
  EXPECT_THROW(allocator.restore_pool({}, {}), InvalidArgument) << "the default pool";
  allocator.begin_allocate_to_pool(pool, {});
  const DeviceAddress block = allocator.allocate(3_MiB);
  allocator.end_allocate_to_pool(pool);
  const auto held = held_in(allocator, pool);
  std::vector<BlockInfo> wrong = held;
  wrong[0].address = 512;
  EXPECT_THROW(allocator.restore_pool(pool, wrong), InvalidArgument) << "not the pool's";
  wrong = {held[0], held[0]};
  wrong[1].address += 512;
  EXPECT_THROW(allocator.restore_pool(pool, wrong), InvalidArgument) << "they overlap";
  wrong = held;
  wrong[0].size_bytes = 100_MiB;
  EXPECT_THROW(allocator.restore_pool(pool, wrong), InvalidArgument) << "past the pool's memory";
  const StreamId other = device->create_stream().value();
  ASSERT_TRUE(allocator.record_stream(block, other));
  EXPECT_THROW(allocator.restore_pool(pool, {}), InvalidArgument) << "in use elsewhere";
  EXPECT_EQ(places(held_in(allocator, pool)), places(held));
  allocator.free(block);
  allocator.release_pool(pool);

  CachingAllocator caching(*device);
  const PoolId another = caching.new_pool_id();
  caching.retain_pool(another);
  EXPECT_THROW(caching.restore_pool(another, {}), InvalidArgument);
}

// Counts what it gives, out of addresses of the device.
class Source {
 public:
  explicit Source(device::Device& device) : device_(device) {}

  SegmentSource functions() {
    return {.allocate = [this](std::uint64_t size, StreamId) -> DeviceAddress {
              const auto made =
                  is_empty ? device::DeviceResult<DeviceAddress>(Unexpected(device::DeviceStatus{}))
                           : device_.allocate_segment(size);
              if (!made) return 0;
              given[*made] = size;
              return *made;
            },
            .free =
                [this](DeviceAddress segment, std::uint64_t size) {
                  EXPECT_EQ(given.at(segment), size);
                  given.erase(segment);
                  EXPECT_TRUE(device_.free_segment(segment));
                }};
  }

  std::map<DeviceAddress, std::uint64_t> given;
  bool is_empty = false;

 private:
  device::Device& device_;
};

TEST(PoolSource, GivesWholeSegmentsAndGetsThemBack) {
  const auto device = make_device();
  Source source(*device);
  {
    PagedAllocator allocator(*device);
    const PoolId pool = allocator.new_pool_id();
    allocator.retain_pool(pool);
    allocator.set_pool_source(pool, source.functions());
    allocator.begin_allocate_to_pool(pool, {});
    std::vector<DeviceAddress> blocks;
    for (const std::uint64_t size : {100_KiB, 3_MiB, 33_MiB + 1, 3_MiB}) {
      blocks.push_back(allocator.allocate(size));
    }
    std::vector<std::uint64_t> sizes;
    for (const auto& [address, size] : source.given) sizes.push_back(size);
    EXPECT_THAT(sizes, ::testing::UnorderedElementsAre(2_MiB, 20_MiB, 34_MiB));
    EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, std::int64_t{56_MiB});
    source.is_empty = true;
    const auto failed = allocator.try_allocate(64_MiB);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().reason, FailureReason::kOutOfMemory);
    source.is_empty = false;
    allocator.end_allocate_to_pool(pool);
    EXPECT_THROW((void)allocator.pages_of(blocks[0]), InvalidArgument);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    for (const DeviceAddress block : blocks) allocator.free(block);
    EXPECT_EQ(allocator.empty_cache(), 0U) << "somebody uses the pool";
    allocator.release_pool(pool);
    allocator.release_pool(pool);
    EXPECT_EQ(allocator.empty_cache(pool), 56_MiB);
    EXPECT_TRUE(source.given.empty());

    const PoolId kept = allocator.new_pool_id();
    allocator.retain_pool(kept);
    allocator.set_pool_source(kept, source.functions());
    allocator.begin_allocate_to_pool(kept, {});
    (void)allocator.allocate(5_MiB);
    EXPECT_THROW(allocator.set_pool_source(kept, source.functions()), InvalidArgument)
        << "it has memory already";
    EXPECT_THROW(allocator.set_pool_source(kept, {}), InvalidArgument) << "no functions";
  }
  EXPECT_TRUE(source.given.empty()) << "an allocator that ends gives everything back";
}

TEST(PoolSource, MayItselfCallTheAllocator) {
  const auto device = make_device();
  PagedAllocator allocator(*device);
  const PoolId pool = allocator.new_pool_id();
  allocator.retain_pool(pool);
  std::vector<DeviceAddress> helpers;
  Source source(*device);
  auto functions = source.functions();
  allocator.set_pool_source(
      pool,
      {.allocate =
           [&, give = functions.allocate](std::uint64_t size, StreamId stream) {
             allocator.end_allocate_to_pool(pool);
             helpers.push_back(allocator.allocate(1_MiB));
             allocator.begin_allocate_to_pool(pool, {});
             return give(size, stream);
           },
       .free =
           [&, take = functions.free](DeviceAddress segment, std::uint64_t size) {
             allocator.free(helpers.back());
             helpers.pop_back();
             take(segment, size);
           }});
  allocator.begin_allocate_to_pool(pool, {});
  const DeviceAddress block = allocator.allocate(4_MiB);
  EXPECT_EQ(helpers.size(), 1U);
  allocator.end_allocate_to_pool(pool);
  allocator.free(block);
  while (allocator.pool_use_count(pool) > 0) allocator.release_pool(pool);
  (void)allocator.empty_cache(pool);
  EXPECT_TRUE(helpers.empty() && source.given.empty());
}

TEST(PagesOf, CoverEveryHeldBlock) {
  const auto device = make_device();
  PagedAllocator allocator(*device);
  std::mt19937 random(5);
  std::vector<DeviceAddress> held;
  for (int i = 0; i < 600; ++i) {
    if (random() % 5 < 3 || held.empty()) {
      const std::uint64_t size = random() % 4 == 0 ? random() % 40_MiB : random() % 300_KiB;
      if (const auto block = allocator.try_allocate(size + 1)) held.push_back(*block);
    } else {
      const std::size_t at = random() % held.size();
      allocator.free(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (i % 20 != 0 || held.empty()) continue;
    const DeviceAddress block = held[random() % held.size()];
    const std::uint64_t size = allocator.find_block(block)->size_bytes;
    const auto pages = allocator.pages_of(block);
    ASSERT_LE(pages.front().address, block);
    ASSERT_GE(pages.back().address + pages.back().size_bytes, block + size);
    std::set<device::PageHandle> handles;
    for (std::size_t k = 0; k < pages.size(); ++k) {
      handles.insert(pages[k].handle);
      if (k == 0) continue;
      ASSERT_EQ(pages[k - 1].address + pages[k - 1].size_bytes, pages[k].address);
    }
    ASSERT_EQ(handles.size(), pages.size());
  }
  EXPECT_THROW((void)allocator.pages_of(held.front() + 512), InvalidArgument);
  CachingAllocator caching(*device);
  const DeviceAddress block = caching.allocate(1_MiB);
  EXPECT_THROW((void)caching.pages_of(block), InvalidArgument);
}

}  // namespace
}  // namespace headroom::memory
