#include "headroom/base/fork.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/mutex.h"

#include "tests/support/forked.h"

namespace headroom {
namespace {

using headroom::testing::is_true_in_child;

TEST(ForkMark, IsOfTheProcessThatMadeIt) {
  const ForkMark mark;
  EXPECT_FALSE(mark.is_forked());
  EXPECT_TRUE(is_true_in_child([&] {
    const ForkMark own;
    const bool is_true_in_grandchild =
        is_true_in_child([&] { return mark.is_forked() && own.is_forked(); });
    return mark.is_forked() && !own.is_forked() && is_true_in_grandchild;
  }));
  EXPECT_FALSE(mark.is_forked());
}

TEST(Mutex, CannotBeHadInAChildWhoeverHoldsIt) {
  Mutex free;
  Mutex held;
  const std::lock_guard lock(held);
  const auto refuses = [](Mutex& mutex) {
    try {
      const std::lock_guard never(mutex);
    } catch (const Forked&) {
      return true;
    }
    return false;
  };
  EXPECT_TRUE(is_true_in_child([&] { return refuses(free) && refuses(held); }));
}

TEST(ForkSafeMutex, IsFreeInAChildWhateverThreadsDo) {
  using Rank = ForkSafeMutex::Rank;
  auto& outer = *new ForkSafeMutex(Rank::kAllocators);
  auto& inner = *new ForkSafeMutex(Rank::kTable);
  std::atomic<bool> is_done{false};
  int guarded = 0;  // by outer; even whenever it is free
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!is_done) {
        {
          const std::lock_guard first(outer);
          ++guarded;
          const std::lock_guard second(inner);
          ++guarded;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));  // mutexes are not fair
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(is_true_in_child([&] {
      const std::lock_guard first(outer);
      const std::lock_guard second(inner);
      return guarded % 2 == 0;
    }));
  }
  is_done = true;
}

TEST(ForkSafeMutex, MayBeHeldByTheThreadThatForks) {
  auto& mutex = *new ForkSafeMutex(ForkSafeMutex::Rank::kTable);
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(is_true_in_child([&] { return mutex.try_lock(); }));
}

std::atomic<int> g_children{0};  // NOLINT(readability-identifier-naming)

TEST(ForkHandlers, RunInTheChildAlone) {
  add_fork_handlers({.in_child = []() noexcept { ++g_children; }});
  EXPECT_TRUE(is_true_in_child([] { return g_children == 1; }));
  EXPECT_EQ(g_children, 0);
}

}  // namespace
}  // namespace headroom
