// Streams that come and go under a PagedAllocator, by the thousand: those that are gone leave
// nothing behind, and nothing that is still in use changes hands.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::Call;
using device::MetaDevice;
using headroom::testing::worked;

std::unique_ptr<MetaDevice> small_card(
    device::EventCompletion events = device::EventCompletion::kAtOnce) {
  return MetaDevice::create(
      {.capacity_bytes = 8_GiB, .profile = device::cuda_profile(), .events = events});
}

std::uint64_t reserved_by(const Allocator& allocator) {
  return static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.current);
}

// Of the block that starts there.
StreamId stream_of(const Allocator& allocator, DeviceAddress address) {
  for (const SegmentInfo& segment : allocator.segments()) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.address == address) return segment.stream;
    }
  }
  ADD_FAILURE() << "no block starts there";
  return StreamId::kDefault;
}

TEST(PagedStreams, TenThousandShareASmallCard) {
  const auto device = small_card();
  PagedAllocator allocator(*device);
  std::deque<DeviceAddress> held;
  for (int i = 0; i < 10'000; ++i) {
    const auto block = allocator.try_allocate(1_MiB, device->create_stream().value());
    ASSERT_TRUE(block) << "stream " << i;
    held.push_back(*block);
    if (held.size() <= 100) continue;
    allocator.free(held.front());
    held.pop_front();
  }
  EXPECT_LE(reserved_by(allocator), 100 * 2_MiB + 8_MiB);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  for (const DeviceAddress block : held) allocator.free(block);
}

// A library makes a stream for every call.
TEST(PagedStreams, OneAfterAnotherLeavesNothingBehind) {
  const auto device = small_card();
  PagedAllocator allocator(*device);
  std::uint64_t reservations = 0;
  std::uint64_t most = 0;
  for (int i = 0; i < 100'000; ++i) {
    const StreamId stream = device->create_stream().value();
    const DeviceAddress large = allocator.allocate(3_MiB, stream);
    const DeviceAddress small = allocator.allocate(1000, stream);
    ASSERT_TRUE(worked(allocator.try_free(small)));
    ASSERT_TRUE(worked(allocator.try_free(large)));
    ASSERT_TRUE(worked(device->release_stream(stream)));
    if (i == 10) reservations = device->calls(Call::kReserveAddresses);
    most = std::max(most, reserved_by(allocator));
  }
  EXPECT_EQ(device->calls(Call::kReserveAddresses), reservations);
  EXPECT_LE(device->state().reservations.size(), 8U);
  EXPECT_LE(most, 16_MiB);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

TEST(PagedStreams, AHundredAtATimeTakeTheAddressesOfFewMore) {
  const auto device = small_card();
  PagedAllocator allocator(*device);
  struct Made {
    StreamId stream{};
    DeviceAddress block = 0;
  };
  std::deque<Made> calls;
  for (int i = 0; i < 5'000; ++i) {
    const StreamId stream = device->create_stream().value();
    calls.push_back({stream, allocator.allocate(1_MiB, stream)});
    if (calls.size() <= 100) continue;
    allocator.free(calls.front().block);
    ASSERT_TRUE(worked(device->release_stream(calls.front().stream)));
    calls.pop_front();
  }
  EXPECT_LE(device->state().reservations.size(), 200U);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  for (const Made& call : calls) allocator.free(call.block);
}

TEST(PagedStreams, ABlockOfAStreamThatIsGoneStaysWhereItIs) {
  const auto device = small_card();
  PagedAllocator allocator(*device);
  const StreamId gone = device->create_stream().value();
  const DeviceAddress large = allocator.allocate(5_MiB, gone);
  const DeviceAddress small = allocator.allocate(700, gone);
  ASSERT_TRUE(worked(device->release_stream(gone)));
  std::vector<DeviceAddress> others;
  for (int i = 0; i < 10; ++i) {
    const StreamId stream = device->create_stream().value();
    others.push_back(allocator.allocate(5_MiB, stream));
    others.push_back(allocator.allocate(700, stream));
  }
  EXPECT_EQ(stream_of(allocator, large), gone);
  EXPECT_EQ(stream_of(allocator, small), gone);
  for (const DeviceAddress other : others) {
    EXPECT_TRUE(other + 5_MiB <= large || other >= large + 5_MiB);
    EXPECT_NE(other, small);
  }
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.free(large);
  allocator.free(small);
  for (const DeviceAddress other : others) allocator.free(other);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// Its queued work may still write there.
TEST(PagedStreams, WhatAGoneStreamMayStillUseIsLeftAlone) {
  const auto device = small_card(device::EventCompletion::kByHand);
  PagedAllocator allocator(*device);
  const StreamId gone = device->create_stream().value();
  const DeviceAddress first = allocator.allocate(6_MiB, gone);
  allocator.free(first);
  ASSERT_TRUE(worked(device->release_stream(gone)));
  const StreamId next = device->create_stream().value();
  const DeviceAddress second = allocator.allocate(6_MiB, next);
  EXPECT_TRUE(second + 6_MiB <= first || second >= first + 6_MiB);
  ASSERT_TRUE(worked(device->complete_events(gone)));
  const std::uint64_t reservations = device->calls(Call::kReserveAddresses);
  (void)allocator.allocate(6_MiB, device->create_stream().value());
  EXPECT_EQ(device->calls(Call::kReserveAddresses), reservations) << "those of the gone stream";
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// A graph keeps the addresses of its pool, whatever becomes of the stream it was captured on.
TEST(PagedStreams, APoolKeepsTheArenasOfItsStream) {
  const auto device = small_card();
  PagedAllocator allocator(*device);
  const StreamId gone = device->create_stream().value();
  const PoolId pool = allocator.new_pool_id();
  allocator.retain_pool(pool);
  allocator.begin_allocate_to_pool(pool, [gone](StreamId stream) { return stream == gone; });
  const DeviceAddress in_pool = allocator.allocate(4_MiB, gone);
  allocator.end_allocate_to_pool(pool);
  allocator.free(allocator.allocate(4_MiB, gone));
  ASSERT_TRUE(worked(device->release_stream(gone)));
  for (int i = 0; i < 10; ++i) (void)allocator.allocate(4_MiB, device->create_stream().value());
  EXPECT_EQ(stream_of(allocator, in_pool), gone);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.free(in_pool);
  allocator.release_pool(pool);
}

// Streams come and go at random, with blocks that outlive them, blocks used on several streams, and
// events that complete late. Nothing that is held is ever handed out again.
TEST(PagedStreams, RandomOnesNeverShareWhatIsInUse) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    const auto device = small_card(device::EventCompletion::kByHand);
    PagedAllocator allocator(*device);
    struct Held {
      DeviceAddress address = 0;
      std::uint64_t size = 0;
      StreamId stream{};
    };
    std::vector<Held> held;
    std::vector<StreamId> streams{StreamId::kDefault};
    std::vector<StreamId> all = streams;
    const auto any = [&](auto& list) -> auto& { return list[random() % list.size()]; };
    for (int i = 0; i < 1'500; ++i) {
      switch (random() % 10) {
        case 0:
          streams.push_back(device->create_stream().value());
          all.push_back(streams.back());
          break;
        case 1:
          if (streams.size() > 1) {
            const std::size_t which = 1 + random() % (streams.size() - 1);
            ASSERT_TRUE(worked(device->release_stream(streams[which])));
            streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(which));
          }
          break;
        case 2:
          ASSERT_TRUE(worked(device->complete_events(any(all))));
          break;
        case 3:
          if (!held.empty()) (void)allocator.record_stream(any(held).address, any(streams));
          break;
        case 4:
        case 5:
        case 6:
          if (!held.empty()) {
            Held& block = any(held);
            allocator.free(block.address);
            block = held.back();
            held.pop_back();
          }
          break;
        default: {
          const std::uint64_t size = random() % 2 == 0 ? 1 + random() % 60'000 : random() % 20_MiB;
          // Blocks may be asked for on streams that are gone, too.
          const StreamId stream = random() % 6 == 0 ? any(all) : any(streams);
          const auto block = allocator.try_allocate(size + 1, stream);
          if (!block && std::ranges::find(streams, stream) == streams.end()) break;
          ASSERT_TRUE(block);
          for (const Held& other : held) {
            ASSERT_TRUE(*block + size < other.address || *block >= other.address + other.size);
          }
          held.push_back({*block, size + 1, stream});
        }
      }
      if (i % 50 == 0) {
        ASSERT_EQ(allocator.check_invariants(), std::nullopt) << i;
      }
    }
    for (const Held& block : held) {
      EXPECT_EQ(stream_of(allocator, block.address), block.stream);
      allocator.free(block.address);
    }
    for (const StreamId stream : all) ASSERT_TRUE(worked(device->complete_events(stream)));
    allocator.empty_cache();
    EXPECT_EQ(reserved_by(allocator), 0U);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  }
}

}  // namespace
}  // namespace headroom::memory
