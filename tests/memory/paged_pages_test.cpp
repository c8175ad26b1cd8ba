// What a PagedAllocator does with its pages, seen from the device: which calls it makes, and when.
// On a meta device whose events are completed by hand, so that "not yet" is exact.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/fault_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::Call;
using device::MetaDevice;
using headroom::testing::worked;

// Calls since the last look.
class CallCount {
 public:
  explicit CallCount(device::Device& device) : device_(device) { reset(); }
  void reset() {
    for (std::size_t i = 0; i < device::kCallCount; ++i) {
      start_[i] = device_.calls(static_cast<Call>(i));
    }
  }
  [[nodiscard]] std::uint64_t of(Call call) const {
    return device_.calls(call) - start_[static_cast<std::size_t>(call)];
  }
  // Of everything that changes where pages are.
  [[nodiscard]] std::uint64_t of_pages() const {
    return of(Call::kCreatePages) + of(Call::kReleasePages) + of(Call::kMapPages) +
           of(Call::kUnmapPages);
  }

 private:
  device::Device& device_;
  std::array<std::uint64_t, device::kCallCount> start_{};
};

class PagedPages : public ::testing::Test {
 protected:
  // One page is 2 MiB, and nothing is created beyond what is live unless pages cannot be moved.
  static constexpr PagedOptions kExact{.page_bytes = 2_MiB,
                                       .large_page_bytes = 8_MiB,
                                       .large_from_bytes = 16_MiB,
                                       .cushion_fraction = 0,
                                       .cushion_bytes = 0};

  PagedAllocator& start(PagedOptions options = kExact) {
    allocator_ = std::make_unique<PagedAllocator>(*device_, options);
    return *allocator_;
  }
  void TearDown() override {
    if (allocator_ != nullptr) {
      EXPECT_EQ(allocator_->check_invariants(), std::nullopt);
    }
    allocator_.reset();
    EXPECT_EQ(device_->memory_info().value().free_bytes, device_->properties().total_bytes);
    EXPECT_EQ(device_->check_invariants(), std::nullopt);
  }
  [[nodiscard]] std::uint64_t reserved() {
    return static_cast<std::uint64_t>(allocator_->statistics().reserved_bytes.all.current);
  }
  void complete(StreamId stream) { EXPECT_TRUE(worked(device_->complete_events(stream))); }

  std::unique_ptr<MetaDevice> device_ =
      MetaDevice::create({.capacity_bytes = 4_GiB, .events = device::EventCompletion::kByHand});
  std::unique_ptr<PagedAllocator> allocator_;
};

TEST_F(PagedPages, AWindowLacksTheFewestPages) {
  PagedAllocator& allocator = start();
  const DeviceAddress a = allocator.allocate(4_MiB);
  const DeviceAddress b = allocator.allocate(2_MiB);
  const DeviceAddress c = allocator.allocate(6_MiB);
  ASSERT_EQ(b, a + 4_MiB);
  ASSERT_EQ(c, b + 2_MiB);
  allocator.free(a);
  allocator.free(c);
  CallCount calls(*device_);
  EXPECT_EQ(allocator.allocate(8_MiB), c) << "three of four pages are there";
  EXPECT_EQ(calls.of(Call::kMapPages), 1U);
  EXPECT_EQ(calls.of(Call::kCreatePages), 0U) << "the fourth was free elsewhere";
  EXPECT_EQ(calls.of(Call::kUnmapPages), 0U) << "its old mapping stays until nobody uses it";
  EXPECT_EQ(reserved(), 12_MiB);
}

// Whatever was moved once is where it is wanted the next time, or comes back without a call.
TEST_F(PagedPages, TrafficThatRepeatsNeedsNoDeviceCallsAfterTheThirdRound) {
  PagedAllocator& allocator = start();
  const StreamId side = device_->create_stream().value();
  const DeviceAddress held = allocator.allocate(6_MiB);
  const auto round = [&] {
    std::vector<DeviceAddress> forward;
    for (const std::uint64_t size : {7_MiB, 3_MiB, 12_MiB, 5_MiB, 1_MiB}) {
      forward.push_back(allocator.allocate(size));
      allocator.free(allocator.allocate(size / 2));
    }
    const DeviceAddress copy = allocator.allocate(4_MiB, side);
    while (!forward.empty()) {
      const DeviceAddress gradient = allocator.allocate(9_MiB);
      allocator.free(forward.back());
      forward.pop_back();
      allocator.free(gradient);
    }
    allocator.free(copy);
    complete(StreamId::kDefault);
    complete(side);
  };
  for (int i = 0; i < 3; ++i) round();
  CallCount calls(*device_);
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(calls.of_pages(), 0U);
  allocator.free(held);
  (void)device_->release_stream(side);
}

TEST_F(PagedPages, APageComesBackToASlotThatStillMapsItWithoutACall) {
  PagedAllocator& allocator = start();
  const DeviceAddress a = allocator.allocate(4_MiB);
  const DeviceAddress b = allocator.allocate(2_MiB);
  const DeviceAddress c = allocator.allocate(6_MiB);
  allocator.free(a);
  allocator.free(c);
  const DeviceAddress wide = allocator.allocate(8_MiB);  // with a page of a
  ASSERT_EQ(wide, c);
  allocator.free(wide);
  const DeviceAddress first = allocator.allocate(6_MiB);  // c again, one page is left behind it
  ASSERT_EQ(first, c);
  CallCount calls(*device_);
  EXPECT_EQ(allocator.allocate(4_MiB), a) << "one page is there, the other comes back";
  EXPECT_EQ(calls.of_pages(), 0U);
  allocator.free(b);
}

// A window with a page at home in it and a stale mapping of the same page: once is all it can
// count.
TEST_F(PagedPages, NoBlockHasAPageTwice) {
  PagedAllocator& allocator = start();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(2_MiB));
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  const DeviceAddress wide = allocator.allocate(4_MiB);
  ASSERT_EQ(wide, blocks[2]) << "the first block's page is behind the third's";
  allocator.free(wide);
  allocator.free(blocks[1]);
  CallCount calls(*device_);
  const DeviceAddress all = allocator.allocate(8_MiB);
  EXPECT_EQ(calls.of(Call::kSynchronizeEvent), 0U) << "there is a window that need not wait";
  std::vector<device::PageHandle> behind;
  for (const auto& reservation : device_->state().reservations) {
    for (const auto& pages : reservation.pages) {
      if (pages.address >= all && pages.address < all + 8_MiB) behind.push_back(pages.handle);
    }
  }
  std::ranges::sort(behind);
  ASSERT_EQ(behind.size(), 4U);
  EXPECT_EQ(std::ranges::adjacent_find(behind), behind.end());
}

TEST_F(PagedPages, AStaleSlotIsUnmappedOnlyWhenItsStreamHasPassed) {
  PagedAllocator& allocator = start();
  const StreamId own = device_->create_stream().value();
  const DeviceAddress a = allocator.allocate(2_MiB, own);
  const DeviceAddress b = allocator.allocate(2_MiB, own);
  const DeviceAddress c = allocator.allocate(2_MiB, own);
  ASSERT_EQ(c, a + 4_MiB);
  allocator.free(a);
  allocator.free(c);
  ASSERT_EQ(allocator.allocate(4_MiB, own), c) << "a's page is behind c now";
  CallCount calls(*device_);
  EXPECT_NE(allocator.allocate(2_MiB, own), a) << "what was queued before may still use it there";
  EXPECT_EQ(calls.of(Call::kUnmapPages), 0U);
  complete(own);
  allocator.process_events();
  calls.reset();
  EXPECT_EQ(allocator.allocate(2_MiB, own), a);
  EXPECT_EQ(calls.of(Call::kUnmapPages), 1U);
  allocator.free(b);
  (void)device_->release_stream(own);
}

TEST_F(PagedPages, AnotherStreamsPagesComeBehindAnEvent) {
  PagedAllocator& allocator = start();
  allocator.set_limit(8_MiB);
  const StreamId one = device_->create_stream().value();
  const StreamId two = device_->create_stream().value();
  allocator.free(allocator.allocate(8_MiB, one));
  CallCount calls(*device_);
  const DeviceAddress block = allocator.allocate(8_MiB, two);
  EXPECT_EQ(calls.of(Call::kWaitEvent), 1U);
  EXPECT_EQ(calls.of(Call::kCreatePages), 0U);
  EXPECT_EQ(calls.of(Call::kUnmapPages), 0U) << "the other stream may still use them";
  EXPECT_EQ(calls.of(Call::kSynchronizeEvent), 0U) << "the host does not wait";
  calls.reset();
  allocator.free(block);
  allocator.free(allocator.allocate(8_MiB, two));
  EXPECT_EQ(calls.of(Call::kWaitEvent), 0U) << "they are its own now";
  (void)device_->release_stream(one);
  (void)device_->release_stream(two);
}

TEST_F(PagedPages, DuringACaptureNothingIsQueriedUnmappedOrMoved) {
  PagedAllocator& allocator = start();
  const StreamId side = device_->create_stream().value();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocator.allocate(2_MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  const DeviceAddress moved = allocator.allocate(8_MiB);  // leaves stale slots
  complete(StreamId::kDefault);
  const DeviceAddress used = blocks[1];
  ASSERT_TRUE(worked(allocator.record_stream(used, side)));
  (void)allocator.allocate(512);
  allocator.begin_capture();
  CallCount calls(*device_);
  allocator.free(used);  // pending, and nothing is recorded
  allocator.free(moved);
  for (const std::uint64_t size :
       {2_MiB, 8_MiB, 16_MiB, 3_MiB, 6_MiB, 2_MiB, 64_KiB, std::uint64_t{512}}) {
    ASSERT_TRUE(allocator.try_allocate(size).has_value());
    ASSERT_TRUE(allocator.try_allocate(size, side).has_value());
    allocator.process_events();
    allocator.empty_cache();
    allocator.trim(1_MiB);
  }
  for (const Call call : {Call::kUnmapPages,
                          Call::kReleasePages,
                          Call::kRecordEvent,
                          Call::kQueryEvent,
                          Call::kWaitEvent,
                          Call::kSynchronizeEvent,
                          Call::kSynchronizeStream}) {
    EXPECT_EQ(calls.of(call), 0U) << to_string(call);
  }
  EXPECT_LE(calls.of(Call::kMapPages), calls.of(Call::kCreatePages)) << "only new pages are mapped";
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.end_capture();
  allocator.process_events();  // now the free is recorded
  complete(side);
  allocator.process_events();
  EXPECT_EQ(allocator.account().pending_bytes, 0U);
  (void)device_->release_stream(side);
}

// --- Private pools -------------------------------------------------------------------------------

TEST_F(PagedPages, APrivatePoolsGrowthIsOneHandleThatNeverMoves) {
  PagedAllocator& allocator = start();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  CallCount calls(*device_);
  const DeviceAddress block = allocator.allocate(40_MiB);
  EXPECT_EQ(calls.of(Call::kCreatePages), 1U);
  EXPECT_EQ(calls.of(Call::kMapPages), 1U);
  const DeviceAddress small = allocator.allocate(512);
  EXPECT_EQ(calls.of(Call::kCreatePages), 2U);
  EXPECT_EQ(allocator.allocate(512), small + 512) << "in the same handle";
  EXPECT_EQ(calls.of(Call::kCreatePages), 2U);
  allocator.end_allocate_to_pool(pool);
  allocator.free(block);
  allocator.set_limit(reserved());
  EXPECT_FALSE(allocator.try_allocate(8_MiB).has_value()) << "the pool is still needed";
  calls.reset();
  allocator.begin_allocate_to_pool(pool, nullptr);
  EXPECT_EQ(allocator.allocate(40_MiB), block) << "a graph finds it where it was";
  EXPECT_EQ(calls.of_pages(), 0U);
  allocator.end_allocate_to_pool(pool);
  allocator.free(block);
  allocator.release_pool(pool);
  allocator.release_pool(pool);
  EXPECT_TRUE(allocator.try_allocate(8_MiB).has_value()) << "now it may go";
}

// --- Sizes of pages ------------------------------------------------------------------------------

TEST_F(PagedPages, LargeAndSmallPagesServeOneAnother) {
  PagedAllocator& allocator = start();
  allocator.set_limit(608_MiB);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    CallCount calls(*device_);
    const DeviceAddress large = allocator.allocate(600_MiB);
    if (round == 0) {
      EXPECT_EQ(calls.of(Call::kCreatePages), 75U) << "of 8 MiB each";
    }
    allocator.free(large);
    complete(StreamId::kDefault);  // only pages that nobody uses can be had in another size
    std::vector<DeviceAddress> small;
    for (int i = 0; i < 149; ++i) {
      const auto block = allocator.try_allocate(4_MiB);
      ASSERT_TRUE(block.has_value()) << i;
      small.push_back(*block);
    }
    EXPECT_LE(reserved(), 608_MiB);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    for (std::size_t i = 0; i < small.size(); i += 2) allocator.free(small[i]);
    complete(StreamId::kDefault);
    const auto half = allocator.try_allocate(290_MiB);
    ASSERT_TRUE(half.has_value()) << "scattered pages serve a large block";
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    allocator.free(*half);
    for (std::size_t i = 1; i < small.size(); i += 2) allocator.free(small[i]);
  }
}

// Where the device has no more, though no limit says so, free pages are moved.
TEST_F(PagedPages, LittleThatIsLiveIsKeptInHalvesOfPages) {
  PagedAllocator& allocator = start({});
  const DeviceAddress first = allocator.allocate(1_MiB);
  EXPECT_EQ(reserved(), 2_MiB);
  const DeviceAddress most = allocator.allocate(700_MiB);
  const std::uint64_t before = reserved();
  const DeviceAddress more = allocator.allocate(6_MiB);
  EXPECT_EQ(reserved(), before + 4_MiB) << "where more is live, a whole page is created";
  for (const DeviceAddress address : {first, most, more}) allocator.free(address);
}

// Blocks of any size come and go: at their ends they leave parts of pages that nothing fits into.
TEST_F(PagedPages, RandomBlocksStayWithinAFewPercentOfWhatIsLive) {
  PagedAllocator& allocator = start({});
  std::mt19937_64 random(headroom::testing::test_seed());
  std::vector<DeviceAddress> held(60);
  for (int i = 0; i < 4000; ++i) {
    DeviceAddress& place = held[random() % held.size()];
    allocator.free(place);
    place = allocator.allocate(1 + random() % 64_MiB);
    complete(StreamId::kDefault);
    ASSERT_TRUE(allocator.bound().is_kept());
  }
  const Statistics stats = allocator.statistics();
  const auto live = static_cast<double>(stats.live_bytes.peak);
  EXPECT_LE(static_cast<double>(stats.reserved_bytes.all.peak), 1.04 * live);
  for (const DeviceAddress address : held) allocator.free(address);
}

TEST_F(PagedPages, AFullDeviceIsServedFromFreePages) {
  PagedAllocator& allocator = start({.page_bytes = 32_MiB});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(allocator.allocate(32_MiB));
  EXPECT_EQ(device_->memory_info().value().free_bytes, 0U);
  for (std::size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  const auto block = allocator.try_allocate(1_GiB);
  EXPECT_TRUE(block.has_value());
}

// --- The cushion, and what is idle ---------------------------------------------------------------

TEST_F(PagedPages, ARequestThatFailsLeavesNothingBehind) {
  PagedAllocator& allocator = start();
  const DeviceAddress held = allocator.allocate(100_MiB);
  const PagedBound before = allocator.bound();
  EXPECT_FALSE(allocator.try_allocate(5_GiB).has_value());
  EXPECT_FALSE(allocator.try_allocate(4_GiB).has_value());
  EXPECT_FALSE(allocator.reserve(5_GiB).has_value());
  const PagedBound after = allocator.bound();
  EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(after.cushion_bytes, before.cushion_bytes) << "what never lived is no peak";
  allocator.free(held);
}

TEST_F(PagedPages, WhatIsIdleGoesBackDownToWhatIsKept) {
  PagedOptions options = kExact;
  options.idle = IdlePolicy{.after = std::chrono::milliseconds(0), .keep_bytes = 10_MiB};
  PagedAllocator& allocator = start(options);
  const DeviceAddress held = allocator.allocate(4_MiB);
  const DeviceAddress large = allocator.allocate(64_MiB);
  allocator.free(large);
  allocator.process_events();
  EXPECT_EQ(reserved(), 14_MiB);
  allocator.free(held);
}

TEST_F(PagedPages, SegmentsAreHandlesAndNothingIsSplit) {
  PagedAllocator& allocator = start();
  const DeviceAddress a = allocator.allocate(5_MiB);
  const DeviceAddress b = allocator.allocate(512);
  const Statistics stats = allocator.statistics();
  EXPECT_EQ(stats.segment.all.current, 4) << "three pages and one of slabs";
  EXPECT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>(8_MiB));
  EXPECT_EQ(stats.inactive_split.all.current, 0);
  EXPECT_EQ(stats.inactive_split_bytes.all.current, 0);
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(allocator.empty_cache(), 8_MiB);
  EXPECT_EQ(allocator.statistics().segment.all.current, 0);
}

TEST_F(PagedPages, WhereAddressesAreShortArenasAreSmallerAndLeaveSomeForOthers) {
  device::BackendProfile profile = device::cpu_profile();
  profile.max_reservation_bytes = 1_GiB;
  const auto device = MetaDevice::create({.capacity_bytes = 8_GiB, .profile = profile});
  PagedAllocator allocator(*device);
  const DeviceAddress small = allocator.allocate(512);
  const DeviceAddress normal = allocator.allocate(100_MiB);
  const DeviceAddress large = allocator.allocate(128_MiB);
  EXPECT_TRUE(worked(device->reserve_addresses(64_MiB)));
  for (const DeviceAddress address : {small, normal, large}) allocator.free(address);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// An arena that was made while addresses were short is no reason to refuse for ever.
TEST_F(PagedPages, WhereAddressesWereShortForAWhileALargerArenaIsMadeLater) {
  device::FaultDevice faulty(*device_);
  PagedAllocator allocator(faulty, kExact);
  faulty.fail_at(Call::kReserveAddresses, 1, device::StatusCode::kOutOfAddressSpace, 8);
  const DeviceAddress first = allocator.allocate(8_MiB);
  const DeviceAddress second = allocator.allocate(12_MiB);
  faulty.clear();
  allocator.free(first);
  complete(StreamId::kDefault);
  const auto large = allocator.try_allocate(3_GiB);
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.current),
            3_GiB + 12_MiB)
      << "the pages that were free are part of it";
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.free(second);
  allocator.free(*large);
  complete(StreamId::kDefault);
  EXPECT_EQ(allocator.empty_cache(), 3_GiB + 12_MiB);
}

TEST_F(PagedPages, OptionsThatMakeNoSenseAreRefused) {
  const std::array wrong{PagedOptions{.page_bytes = 0},
                         PagedOptions{.page_bytes = 8_MiB, .large_page_bytes = 4_MiB},
                         PagedOptions{.large_page_bytes = device::kAbsurdSize},
                         PagedOptions{.cushion_fraction = -0.1},
                         PagedOptions{.cushion_fraction = 1.5},
                         PagedOptions{.widest_cushion_fraction = 2}};
  for (const PagedOptions& options : wrong) EXPECT_THROW(start(options), InvalidArgument);
}

}  // namespace
}  // namespace headroom::memory
