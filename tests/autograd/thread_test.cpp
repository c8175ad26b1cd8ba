// Threads that build and run their own graphs over shared leaves.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::World;

TEST(AutogradThreads, AddToASharedLeafOneAfterTheOther) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 200;
  const World world;
  const Tensor w = ones({8, 8}, world.f64(/*requires_grad=*/true));
  std::atomic<int> seen{0};
  autograd::register_post_accumulate_grad_hook(w, [&](const Tensor& leaf) {
    if (leaf.grad().defined()) seen.fetch_add(1);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const Tensor x = ones({4, 8}, world.f64());
        relu(matmul(x, w)).sum().backward();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.load(), kThreads * kRounds);
  for (const double value : w.grad().to_doubles()) ASSERT_EQ(value, 4.0 * kThreads * kRounds);
  EXPECT_EQ(world.allocator().check_invariants(), std::nullopt);
}

TEST(AutogradThreads, AskForTheTapeAtOnce) {
  std::vector<std::thread> threads;
  const World world;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Tensor x = ones({}, world.f32()).requires_grad_();
      x.backward();
      EXPECT_EQ(x.grad().item<double>(), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace headroom
