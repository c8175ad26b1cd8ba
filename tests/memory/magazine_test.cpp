// Magazines of one thread: statistics are exact to the byte, whatever goes on without the lock.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/memory/peak_scope.h"

#include "tests/memory/slab_allocator.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using testing::SlabAllocator;

class EventLog final : public EventSink {
 public:
  void record(const Event& event) noexcept override { events.push_back(event); }
  std::vector<Event> events;
};

// Counts by hand what the statistics should say.
struct NaiveCount {
  Stat allocation, allocated, active, active_bytes, requested, live;
  std::array<Stat, kCategoryCount> categories;

  void alloc(const BlockInfo& block) {
    allocation.increase(1);
    allocated.increase(block.size_bytes);
    active.increase(1);
    active_bytes.increase(block.size_bytes);
    requested.increase(block.requested_bytes);
    live.increase(round_up(block.requested_bytes, kMinBlockBytes));
    categories[static_cast<std::size_t>(block.category)].increase(block.size_bytes);
  }
  void request_free(const BlockInfo& block) {
    allocation.decrease(1);
    allocated.decrease(block.size_bytes);
    categories[static_cast<std::size_t>(block.category)].decrease(block.size_bytes);
  }
  void complete_free(const BlockInfo& block) {
    active.decrease(1);
    active_bytes.decrease(block.size_bytes);
    requested.decrease(block.requested_bytes);
    live.decrease(round_up(block.requested_bytes, kMinBlockBytes));
  }
  void reset_peak() {
    for (Stat* stat : {&allocation, &allocated, &active, &active_bytes, &requested, &live}) {
      stat->reset_peak();
    }
    for (Stat& stat : categories) stat.reset_peak();
  }
};

void expect_same(const Stat& counted, const Stat& stat, const char* what) {
  EXPECT_EQ(counted.current, stat.current) << what;
  EXPECT_EQ(counted.peak, stat.peak) << what;
  EXPECT_EQ(counted.allocated, stat.allocated) << what;
  EXPECT_EQ(counted.freed, stat.freed) << what;
}

void expect_same(const NaiveCount& counted, const Statistics& stats) {
  expect_same(counted.allocation, stats.allocation.all, "allocation");
  expect_same(counted.allocated, stats.allocated_bytes.all, "allocated_bytes");
  expect_same(counted.active, stats.active.all, "active");
  expect_same(counted.active_bytes, stats.active_bytes.all, "active_bytes");
  expect_same(counted.requested, stats.requested_bytes.all, "requested_bytes");
  expect_same(counted.live, stats.live_bytes, "live_bytes");
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    expect_same(counted.categories[i], stats.category_bytes[i], "a category");
  }
  EXPECT_TRUE(stats.peak_is_exact);
}

class OneThread : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(allocator_.check_invariants(), std::nullopt); }

  // Random traffic on three streams: mostly small blocks, some large, some used by other streams.
  class Traffic {
   public:
    Traffic(OneThread& test, unsigned seed) : test_(test), random_(seed) {}

    void step() {
      const std::uint64_t dice = random_() % 100;
      if (held_.empty() || dice < 49) return allocate();
      if (dice < 52) return complete();
      const std::size_t at = random_() % held_.size();
      if (dice < 56) {
        is_used_[at] =
            test_.allocator_.record_stream(held_[at].address, test_.streams_[1]).has_value();
        return;
      }
      free(at);
    }
    void finish() {
      while (!held_.empty()) free(held_.size() - 1);
      complete();
    }

    NaiveCount counted{};

   private:
    void allocate() {
      const CategoryScope category(static_cast<Category>(random_() % kCategoryCount));
      const bool is_large = random_() % 20 == 0;
      const std::uint64_t most = is_large ? 3_MiB : std::uint64_t{512} << (random_() % 8);
      const std::uint64_t size = 1 + random_() % most;
      const StreamId stream = test_.streams_[random_() % test_.streams_.size()];
      const BlockInfo block{.address = test_.allocator_.allocate(size, stream),
                            .size_bytes = size <= internal::kSlabMaxBytes
                                              ? internal::SlabHeap::block_bytes(size)
                                              : round_up(size, kMinBlockBytes),
                            .requested_bytes = size,
                            .category = current_context().category};
      held_.push_back(block);
      is_used_.push_back(false);
      counted.alloc(block);
    }
    void free(std::size_t at) {
      EXPECT_TRUE(test_.allocator_.try_free(held_[at].address).has_value());
      counted.request_free(held_[at]);
      is_used_[at] ? pending_.push_back(held_[at]) : counted.complete_free(held_[at]);
      held_[at] = held_.back();
      is_used_[at] = is_used_.back();
      held_.pop_back();
      is_used_.pop_back();
    }
    void complete() {
      test_.allocator_.process_events();
      for (const BlockInfo& block : pending_) counted.complete_free(block);
      pending_.clear();
    }

    OneThread& test_;
    std::mt19937 random_;
    std::vector<BlockInfo> held_;
    std::vector<bool> is_used_;
    std::vector<BlockInfo> pending_;
  };

  std::unique_ptr<device::MetaDevice> device_ = device::MetaDevice::create();
  std::array<StreamId, 3> streams_{
      StreamId::kDefault, device_->create_stream().value(), device_->create_stream().value()};
  SlabAllocator allocator_{*device_, 512};
};

TEST_F(OneThread, StatisticsAreExactInCurrentAndPeak) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  Traffic traffic(*this, seed);
  for (int round = 0; round < 120; ++round) {
    // Seldom looked at: peaks between two looks are what is hard.
    for (int i = 0; i < 250; ++i) traffic.step();
    expect_same(traffic.counted, allocator_.statistics());
    if (round % 10 == 9) {
      allocator_.reset_peak_statistics();
      traffic.counted.reset_peak();
    }
    if (round % 20 == 19) {
      EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
    }
    if (HasFailure()) return;
  }
  traffic.finish();
  expect_same(traffic.counted, allocator_.statistics());
  EXPECT_EQ(traffic.counted.active_bytes.current, 0);
}

TEST_F(OneThread, APeakScopeSeesWhatHappenedWithoutTheLock) {
  const DeviceAddress outer_block = allocator_.allocate(512);
  allocator_.free(allocator_.allocate(60_KiB));
  PeakScope outer(allocator_);
  allocator_.free(allocator_.allocate(60_KiB));
  {
    PeakScope inner(allocator_);
    EXPECT_EQ(inner.peak_allocated(), 512U);
    allocator_.free(allocator_.allocate(4_KiB));
    EXPECT_EQ(inner.peak_allocated(), 512U + 4_KiB);
    EXPECT_EQ(inner.peak_live(), 512U + 4_KiB);
  }
  EXPECT_EQ(outer.peak_allocated(), 512U + 60_KiB);
  allocator_.free(outer_block);
  EXPECT_EQ(outer.peak_live(), 512U + 60_KiB);
}

TEST_F(OneThread, AccumulatedCountsStartAgainFromTheReset) {
  for (int i = 0; i < 10; ++i) allocator_.free(allocator_.allocate(1_KiB));
  allocator_.reset_accumulated_statistics();
  for (int i = 0; i < 3; ++i) allocator_.free(allocator_.allocate(1_KiB));
  const Statistics stats = allocator_.statistics();
  EXPECT_EQ(stats.allocation.all.allocated, 3);
  EXPECT_EQ(stats.allocated_bytes.small_pool.freed, 3 * 1024);
  EXPECT_EQ(stats.allocation.large_pool.allocated, 0);
}

TEST_F(OneThread, AMagazineKeepsAQuarterOfAMebibyteAStreamAtMost) {
  std::vector<DeviceAddress> blocks;
  for (const internal::SizeClass& kind : internal::kClasses) {
    for (int i = 0; i < 80; ++i) {
      blocks.push_back(allocator_.allocate(kind.block_bytes, streams_[blocks.size() % 2]));
    }
  }
  for (const DeviceAddress block : blocks) {
    allocator_.free(block);
    ASSERT_LE(allocator_.heap().cached_bytes(), 2 * internal::kMagazineBytes);
  }
  EXPECT_GT(allocator_.heap().cached_bytes(), internal::kMagazineBytes / 2);
  EXPECT_EQ(allocator_.heap().live_bytes(), 0U);
}

TEST_F(OneThread, TheBlockFreedLastIsUsedFirst) {
  const DeviceAddress block = allocator_.allocate(5_KiB);
  const DeviceAddress other = allocator_.allocate(5_KiB);
  allocator_.free(other);
  allocator_.free(block);
  EXPECT_EQ(allocator_.allocate(5_KiB), block);
  EXPECT_EQ(allocator_.allocate(5_KiB), other);
}

TEST_F(OneThread, WithASinkEverythingTakesTheLockAndIsTold) {
  const DeviceAddress early = allocator_.allocate(1_KiB);
  for (int i = 0; i < 5; ++i) allocator_.free(allocator_.allocate(1_KiB));
  EventLog log;
  const std::uint64_t cached = allocator_.heap().cached_bytes();
  EXPECT_GT(cached, 0U);
  allocator_.add_sink(log);
  EXPECT_EQ(allocator_.heap().cached_bytes(), cached) << "magazines stay as they are";
  for (int i = 0; i < 5; ++i) allocator_.free(allocator_.allocate(1_KiB));
  allocator_.free(early);
  allocator_.remove_sink(log);
  for (int i = 0; i < 5; ++i) allocator_.free(allocator_.allocate(1_KiB));

  std::vector<Action> actions;
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    EXPECT_EQ(log.events[i].sequence, log.events[0].sequence + i);
    if (log.events[i].action == Action::kAlloc) {
      EXPECT_EQ(log.events[i].block_bytes, 1_KiB);
    }
    actions.push_back(log.events[i].action);
  }
  EXPECT_EQ(std::ranges::count(actions, Action::kAlloc), 5);
  EXPECT_EQ(std::ranges::count(actions, Action::kFreeRequested), 6);
  EXPECT_EQ(std::ranges::count(actions, Action::kFreeCompleted), 6);
  EXPECT_EQ(allocator_.statistics().allocation.all.allocated, 16);
  EXPECT_GE(allocator_.heap().cached_bytes(), cached);
}

TEST_F(OneThread, SwitchedOffNothingIsCached) {
  allocator_.free(allocator_.allocate(1_KiB));
  allocator_.enable_magazines(false);
  EXPECT_EQ(allocator_.heap().cached_bytes(), 0U);
  allocator_.free(allocator_.allocate(1_KiB));
  EXPECT_EQ(allocator_.heap().cached_bytes(), 0U);
}

TEST_F(OneThread, PeaksAreExactUntilAnotherThreadAllocates) {
  allocator_.free(allocator_.allocate(1_KiB));
  EXPECT_TRUE(allocator_.statistics().peak_is_exact);
  std::thread([&] { allocator_.free(allocator_.allocate(1_KiB)); }).join();
  EXPECT_FALSE(allocator_.statistics().peak_is_exact);
  // It is gone, and this thread is alone again.
  allocator_.reset_peak_statistics();
  allocator_.free(allocator_.allocate(1_KiB));
  EXPECT_TRUE(allocator_.statistics().peak_is_exact);
  // A block too large for magazines counts as well.
  std::thread([&] { allocator_.free(allocator_.allocate(1_MiB)); }).join();
  EXPECT_FALSE(allocator_.statistics().peak_is_exact);
}

TEST_F(OneThread, AnAllocatorMayGoBeforeTheThreadsThatUsedIt) {
  auto first = std::make_unique<SlabAllocator>(*device_, 4);
  (void)first->allocate(1_KiB);
  first->free(first->allocate(1_KiB));
  first.reset();
  // Perhaps at the same place in memory: what the thread knows of the first is not used for it.
  SlabAllocator second(*device_, 4);
  for (int i = 0; i < 3; ++i) second.free(second.allocate(1_KiB));
  EXPECT_EQ(second.check_invariants(), std::nullopt);
  EXPECT_EQ(second.statistics().allocation.all.allocated, 3);
}

TEST_F(OneThread, SeveralAllocatorsAndStreamsInTurn) {
  SlabAllocator other(*device_, 8);
  for (int i = 0; i < 300; ++i) {
    SlabAllocator& allocator = i % 2 == 0 ? allocator_ : other;
    const StreamId stream = streams_[static_cast<std::size_t>(i) % streams_.size()];
    const DeviceAddress a = allocator.allocate(2_KiB, stream);
    const DeviceAddress b = allocator_.allocate(2_KiB, StreamId::kDefault);
    allocator_.free(b);
    allocator.free(a);
  }
  EXPECT_EQ(allocator_.misuse_count() + other.misuse_count(), 0U);
  EXPECT_EQ(other.check_invariants(), std::nullopt);
  EXPECT_EQ(other.statistics().allocation.all.current, 0);
}

// The allocator that all this is for: whether threads take the lock changes no statistic of blocks.
TEST(PagedMagazines, StatisticsAreThoseOfTheAllocatorThatAlwaysLocks) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  const auto device = device::MetaDevice::create({.capacity_bytes = 8_GiB});
  PagedAllocator quick(*device);
  PagedAllocator locked(*device, {.uses_magazines = false});
  std::mt19937 random(seed);
  std::vector<std::pair<DeviceAddress, DeviceAddress>> held;
  const auto expect_equal = [&] {
    const Statistics a = quick.statistics();
    const Statistics b = locked.statistics();
    for (const auto quantity : {&Statistics::allocation,
                                &Statistics::active,
                                &Statistics::allocated_bytes,
                                &Statistics::active_bytes,
                                &Statistics::requested_bytes}) {
      expect_same((b.*quantity).all, (a.*quantity).all, "all");
      expect_same((b.*quantity).small_pool, (a.*quantity).small_pool, "small pool");
    }
    expect_same(b.live_bytes, a.live_bytes, "live_bytes");
    EXPECT_TRUE(a.peak_is_exact);
    EXPECT_EQ(quick.check_invariants(), std::nullopt);
  };
  for (int i = 0; i < 20000; ++i) {
    if (held.empty() || random() % 100 < (i / 2000 % 2 == 0 ? 55 : 45)) {
      const std::uint64_t size = 1 + random() % (std::uint64_t{512} << (random() % 13));
      held.emplace_back(quick.allocate(size), locked.allocate(size));
    } else {
      std::swap(held[random() % held.size()], held.back());
      quick.free(held.back().first);
      locked.free(held.back().second);
      held.pop_back();
    }
    if (i % 1000 == 999) expect_equal();
  }
  EXPECT_EQ(quick.misuse_count() + locked.misuse_count(), 0U);
}

}  // namespace
}  // namespace headroom::memory
