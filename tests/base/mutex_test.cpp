#include "headroom/base/mutex.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/env.h"

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

// Lets all go on once all are there.
class Rendezvous {
 public:
  explicit Rendezvous(unsigned threads) noexcept {
    (void)pthread_barrier_init(&barrier_, nullptr, threads);
  }
  ~Rendezvous() { (void)pthread_barrier_destroy(&barrier_); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void wait() noexcept { (void)pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_{};
};

void stay_for(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// A sleeper that is forgotten is woken by whoever comes next; only where nobody comes, at the end
// of a round, does it show: the test does not end. HEADROOM_MUTEX_ROUNDS=100000 on a machine with
// many cores looks closely.
TEST(Mutex, NobodyIsForgottenWhenTheLastThreadLeaves) {
  const auto rounds = env_int("HEADROOM_MUTEX_ROUNDS", 1, 100'000'000).value().value_or(1000);
  constexpr unsigned kThreads = 16;
  constexpr int kTurns = 6;
  Mutex mutex;
  Rendezvous all(kThreads);
  std::int64_t count = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::minstd_rand random(t + 1);
        const auto a_while = [&] { return std::chrono::nanoseconds(random() % 2000); };
        for (std::int64_t round = 0; round < rounds; ++round) {
          all.wait();
          for (int turn = 0; turn < kTurns; ++turn) {
            {
              const std::lock_guard lock(mutex);
              ++count;
              stay_for(a_while());
            }
            stay_for(a_while());
          }
        }
      });
    }
  }
  EXPECT_EQ(count, rounds * kThreads * kTurns);
}

}  // namespace
}  // namespace headroom
