// 10,000 random graphs: built, some run, some dropped half-way, with exceptions in between.
#include <random>

#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/autograd/world.h"
#include "tests/support/seed.h"

namespace headroom {
namespace {

using testing::World;

class RandomGraph {
 public:
  RandomGraph(const World& world, std::mt19937& random) : world_(world), random_(random) {
    for (int i = below(3); i >= 0; --i) {
      tensors_.push_back(rand({3, 4}, world_.f32(/*requires_grad=*/below(4) != 0)));
    }
  }

  void grow() {
    const Tensor& a = any();
    const Tensor& b = any();
    switch (below(14)) {
      case 0:
        return push(a + b);
      case 1:
        return push(a * b);
      case 2:
        return push(relu(a));
      case 3:
        return push(exp(a * 0.1));
      case 4:
        return push(matmul(a, b.transpose(0, 1)).slice(1, 0, 1).expand({3, 4}));
      case 5:
        return push(a.sum(Dims{0}, true) * b);
      case 6:
        return push(cat({a.slice(0, 0, 1), b.slice(0, 1, 3)}, 0));
      case 7:
        return push(softmax(a, 1));
      case 8:
        return push(a.transpose(0, 1).reshape({3, 4}));
      case 9:
        return static_cast<void>(any().mul_(0.5));
      case 10:
        return static_cast<void>(any()[below(3)].add_(b[0]));
      case 11:
        return push(where(gt(a, 0.5), a, b));
      case 12:
        return push(a.detach());
      default:
        tensors_.erase(tensors_.begin() + below(static_cast<int>(tensors_.size())));
        if (tensors_.empty()) tensors_.push_back(zeros({3, 4}, world_.f32()));
    }
  }

  void run() {
    const Tensor& root = any();
    const autograd::HookHandle hook = hooked(root);
    if (below(2) == 0) {
      root.sum().backward({}, below(2) == 0);
    } else {
      (void)autograd::grad({root}, {any()}, {.gradients = {ones_like(root)}, .allow_unused = true});
    }
  }

  [[nodiscard]] int below(int count) {
    return static_cast<int>(random_() % static_cast<unsigned>(count));
  }

 private:
  autograd::HookHandle hooked(const Tensor& root) {
    if (!root.requires_grad() || below(5) != 0) return {};
    return autograd::register_hook(
        any_that_needs(root), [](const Tensor&) -> Tensor { throw Error("thrown by a hook"); });
  }
  const Tensor& any_that_needs(const Tensor& otherwise) {
    const Tensor& found = any();
    return found.requires_grad() ? found : otherwise;
  }
  const Tensor& any() {
    return tensors_[static_cast<std::size_t>(below(static_cast<int>(tensors_.size())))];
  }
  void push(const Tensor& tensor) { tensors_.push_back(tensor); }

  const World& world_;
  std::mt19937& random_;
  std::vector<Tensor> tensors_{};
};

TEST(RandomGraphs, LeaveNothingBehind) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(testing::seed_text(seed));
  std::mt19937 random(seed);
  const World world;
  int ran = 0;
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    {
      RandomGraph graph(world, random);
      for (int step = graph.below(16); step >= 0; --step) {
        try {
          graph.grow();
          if (graph.below(8) == 0) {
            graph.run();
            ++ran;
          }
        } catch (const Error&) {
          ++refused;
        }
      }
    }
    ASSERT_EQ(world.allocated_bytes(), 0) << "graph " << i;
    if (i % 100 == 0) {
      ASSERT_EQ(world.allocator().check_invariants(), std::nullopt);
    }
  }
  EXPECT_EQ(world.allocator().check_invariants(), std::nullopt);
  EXPECT_GT(ran, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace headroom
