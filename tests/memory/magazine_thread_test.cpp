// Magazines of several threads: blocks freed by others, threads and allocators that end in any
// order, and somebody who empties and reads everything meanwhile.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/peak_scope.h"

#include "tests/memory/mailbox.h"
#include "tests/memory/slab_allocator.h"

namespace headroom::memory {
namespace {

using testing::Mailbox;
using testing::SlabAllocator;

// Events are in one order: what is allocated was free, what is freed was held.
class OrderSink final : public EventSink {
 public:
  void record(const Event& event) noexcept override {
    const bool is_next = !has_any_ || event.sequence == last_ + 1;
    has_any_ = true;
    last_ = event.sequence;
    if (!is_next) ++mistakes;
    if (event.action == Action::kAlloc && !held_.insert(event.address).second) ++mistakes;
    if (event.action == Action::kFreeRequested) held_.erase(event.address);
  }
  int mistakes = 0;

 private:
  bool has_any_ = false;
  std::uint64_t last_ = 0;
  std::unordered_set<DeviceAddress> held_;
};

class SeveralThreads : public ::testing::Test {
 protected:
  static constexpr unsigned kThreads = 4;

  template <class Function>
  static void run_threads(unsigned count, Function function) {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([=] { function(i); });
  }

  // Allocates and frees small blocks, some of them other threads'.
  void churn(unsigned seed, int steps) {
    std::mt19937 random(seed);
    std::vector<DeviceAddress> held;
    for (int i = 0; i < steps; ++i) {
      const std::uint64_t size = 1 + random() % (std::uint64_t{512} << (random() % 8));
      const DeviceAddress block = allocator_.allocate(size, streams_[random() % streams_.size()]);
      random() % 3 == 0 ? mailbox_.put(block) : held.push_back(block);
      if (random() % 4 == 0) allocator_.free(mailbox_.take());
      if (held.size() > 40) {
        const std::size_t at = random() % held.size();
        allocator_.free(std::exchange(held[at], held.back()));
        held.pop_back();
      }
    }
    for (const DeviceAddress block : held) allocator_.free(block);
  }
  void expect_nothing_left() {
    while (const DeviceAddress block = mailbox_.take()) allocator_.free(block);
    EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
    const Statistics stats = allocator_.statistics();
    EXPECT_EQ(stats.allocation.all.current, 0);
    EXPECT_EQ(stats.active_bytes.all.current, 0);
    EXPECT_EQ(stats.requested_bytes.all.current, 0);
    EXPECT_EQ(stats.live_bytes.current, 0);
    EXPECT_EQ(stats.allocation.all.allocated, stats.allocation.all.freed);
    for (const Stat& stat : stats.category_bytes) EXPECT_EQ(stat.current, 0);
    EXPECT_EQ(allocator_.misuse_count(), 0U);
    allocator_.flush();
    EXPECT_EQ(allocator_.heap().page_bytes(), 0U);
  }

  std::unique_ptr<device::MetaDevice> device_ = device::MetaDevice::create();
  std::array<StreamId, 2> streams_{StreamId::kDefault, device_->create_stream().value()};
  SlabAllocator allocator_{*device_, 512};
  Mailbox mailbox_;
};

TEST_F(SeveralThreads, WhatTheyCountedIsExactWhenTheyRest) {
  constexpr int kSteps = 20000;
  run_threads(kThreads, [this](unsigned i) { churn(i, kSteps); });
  EXPECT_EQ(allocator_.statistics().allocation.all.allocated, int{kThreads} * kSteps);
  EXPECT_EQ(allocator_.heap().cached_bytes(), 0U) << "threads that end give back what they cached";
  expect_nothing_left();
}

TEST_F(SeveralThreads, SomebodyLooksAndFlushesMeanwhile) {
  std::atomic<unsigned> running = kThreads;
  run_threads(kThreads + 1, [&, this](unsigned i) {
    if (i < kThreads) {
      churn(i, 12000);
      --running;
      return;
    }
    for (int round = 0; running > 0; ++round) {
      EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
      const Statistics stats = allocator_.statistics();
      EXPECT_LE(stats.allocated_bytes.all.current, stats.reserved_bytes.all.current);
      EXPECT_LE(stats.allocated_bytes.all.current, stats.allocated_bytes.all.peak);
      if (round % 4 == 0) allocator_.flush();
      if (round % 8 == 1) {
        EXPECT_EQ(allocator_.account().sum(), device_->properties().total_bytes);
      }
      if (round % 8 == 5) {
        EXPECT_LE(allocator_.segments().size(), 512U);
      }
      PeakScope scope(allocator_);
      EXPECT_GE(scope.peak_reserved(), scope.peak_allocated());
    }
  });
  expect_nothing_left();
}

TEST_F(SeveralThreads, ASinkThatComesAndGoesSeesEventsInOneOrder) {
  std::atomic<unsigned> running = kThreads;
  int mistakes = 0;
  run_threads(kThreads + 1, [&, this](unsigned i) {
    if (i < kThreads) {
      churn(i, 10000);
      --running;
      return;
    }
    while (running > 0) {
      OrderSink sink;
      allocator_.add_sink(sink);
      for (int n = 0; n < 20; ++n) allocator_.free(allocator_.allocate(1_KiB));
      allocator_.remove_sink(sink);
      mistakes += sink.mistakes;
      for (int n = 0; n < 20; ++n) allocator_.free(allocator_.allocate(1_KiB));
    }
  });
  EXPECT_EQ(mistakes, 0);
  expect_nothing_left();
}

TEST_F(SeveralThreads, AnIdleThreadsBlocksCanBeFlushed) {
  std::barrier turns(2);
  std::jthread idle([&, this] {
    allocator_.free(allocator_.allocate(2_KiB));
    turns.arrive_and_wait();
    turns.arrive_and_wait();  // asleep while the other flushes
    allocator_.free(allocator_.allocate(2_KiB));
  });
  turns.arrive_and_wait();
  EXPECT_GT(allocator_.heap().cached_bytes(), 0U);
  EXPECT_EQ(allocator_.flush(), internal::kSlabPageBytes);
  EXPECT_EQ(allocator_.heap().cached_bytes(), 0U);
  turns.arrive_and_wait();
  idle.join();
  expect_nothing_left();
}

TEST_F(SeveralThreads, PeaksAreNearBy64KibibytesAThread) {
  // In step: at every turn the true sum is known.
  constexpr int kTurns = 40;
  std::barrier turns(kThreads);
  std::atomic<std::int64_t> now = 0;
  std::atomic<std::int64_t> peak = 0;
  run_threads(kThreads, [&, this](unsigned i) {
    std::mt19937 random(i);
    std::vector<DeviceAddress> held;
    for (int turn = 0; turn < kTurns; ++turn) {
      const bool is_rise = (turn / 8) % 2 == 0;
      for (int n = 0; n < 20; ++n) {
        if (is_rise) {
          held.push_back(allocator_.allocate(4_KiB));
          now += 4096;
        } else if (!held.empty()) {
          allocator_.free(held.back());
          held.pop_back();
          now -= 4096;
        }
      }
      turns.arrive_and_wait();
      if (i == 0) peak = std::max(peak.load(), now.load());
      turns.arrive_and_wait();
    }
    for (const DeviceAddress block : held) allocator_.free(block);
  });
  const Statistics stats = allocator_.statistics();
  EXPECT_FALSE(stats.peak_is_exact);
  const std::int64_t most = std::int64_t{kThreads} * internal::kMostUnfolded;
  EXPECT_NEAR(static_cast<double>(stats.allocated_bytes.all.peak),
              static_cast<double>(peak.load()),
              static_cast<double>(most));
  expect_nothing_left();
}

// Goes on when both have come; awake, so that they go on together.
void meet(std::atomic<int>& arrivals, int round) {
  ++arrivals;
  for (int spins = 0; arrivals < 2 * (round + 1); ++spins) {
    if (spins > 300) std::this_thread::yield();
  }
}

TEST_F(SeveralThreads, OfTwoThatFreeABlockAtOnceOneIsTold) {
  constexpr int kRounds = 2000;
  std::atomic<DeviceAddress> block = 0;
  std::atomic<int> starts = 0;
  std::atomic<int> ends = 0;
  std::atomic<int> freed = 0;
  run_threads(2, [&, this](unsigned i) {
    allocator_.free(allocator_.allocate(512));
    for (int round = 0; round < kRounds; ++round) {
      if (i == 0) block = allocator_.allocate(512);
      meet(starts, round);
      if (allocator_.try_free(block).has_value()) ++freed;
      meet(ends, round);
    }
  });
  EXPECT_EQ(freed, kRounds);
  expect_nothing_left();
}

TEST_F(SeveralThreads, AllocatorsAndThreadsEndAtTheSameTime) {
  for (int round = 0; round < 30; ++round) {
    auto allocator = std::make_unique<SlabAllocator>(*device_, 4);
    std::barrier turns(kThreads + 1);
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 5; ++n) allocator->free(allocator->allocate(1_KiB));
        turns.arrive_and_wait();
      });
    }
    turns.arrive_and_wait();
    allocator.reset();
  }
  expect_nothing_left();
}

// A thread's other objects may free blocks after its caches are gone.
TEST_F(SeveralThreads, BlocksMayBeFreedWhileAThreadEnds) {
  struct FreesLate {
    ~FreesLate() {
      for (const DeviceAddress block : blocks) allocator->free(block);
      allocator->free(allocator->allocate(512));
    }
    SlabAllocator* allocator = nullptr;
    std::vector<DeviceAddress> blocks;
  };
  std::thread([this] {
    thread_local FreesLate late;  // made before the caches, so it ends after them
    late.allocator = &allocator_;
    for (int i = 0; i < 10; ++i) late.blocks.push_back(allocator_.allocate(1_KiB));
  }).join();
  expect_nothing_left();
}

}  // namespace
}  // namespace headroom::memory
