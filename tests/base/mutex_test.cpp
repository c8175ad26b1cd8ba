#include "headroom/base/mutex.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Mutex, LetsOneThreadInAtATime) {
  Mutex mutex;
  std::int64_t count = 0;
  constexpr int kThreads = 8;
  constexpr int kTurns = 20'000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kTurns; ++i) {
          const std::lock_guard lock(mutex);
          ++count;
        }
      });
    }
  }
  EXPECT_EQ(count, std::int64_t{kThreads} * kTurns);
}

TEST(Mutex, TryLockDoesNotWait) {
  Mutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(Mutex, WakesAllWhoSleptWhileItWasHeldForLong) {
  Mutex mutex;
  int entered = 0;
  mutex.lock();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        const std::lock_guard lock(mutex);
        ++entered;
      });
    }
    // Far longer than anybody looks on; were it too short, nothing would be tested but nothing
    // would fail.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(entered, 0);
    mutex.unlock();
  }
  EXPECT_EQ(entered, 4);
}

}  // namespace
}  // namespace headroom
