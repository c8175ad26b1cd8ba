#include "headroom/base/semaphore.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Semaphore, WhatWasReleasedBeforeIsAcquiredWithoutWaiting) {
  Semaphore semaphore;
  semaphore.release();
  semaphore.release();
  semaphore.acquire();
  semaphore.acquire();
}

// The second release finds a count of 1, and must wake somebody all the same.
TEST(Semaphore, TwoReleasesInARowWakeTwoSleepers) {
  Semaphore semaphore;
  const std::vector<std::jthread> sleepers = [&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back([&] { semaphore.acquire(); });
    return threads;
  }();
  // Were it too short, nothing would be tested but nothing would fail.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  semaphore.release();
  semaphore.release();
}

TEST(Semaphore, EveryReleaseIsAcquiredOnce) {
  Semaphore semaphore;
  std::atomic<int> left = 0;
  constexpr int kThreads = 4;
  constexpr int kTurns = 20'000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kTurns; ++i) {
          ++left;
          semaphore.release();
        }
      });
      threads.emplace_back([&] {
        for (int i = 0; i < kTurns; ++i) {
          semaphore.acquire();
          EXPECT_GE(left--, 1);
        }
      });
    }
  }
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace headroom
