// The graph: what runs, in which order, how often, and when it goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

class Graph : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor leaf(std::initializer_list<double> values) const {
    return from(values, world_.f64(/*requires_grad=*/true));
  }
  World world_{};
};

TEST_F(Graph, KnowsWhoMadeATensor) {
  const Tensor x = leaf({1, 2});
  const Tensor y = (x * 2.0).sum();
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_leaf());
  const autograd::NodePtr node = autograd::grad_fn(y);
  EXPECT_STREQ(node->name(), "sum");
  EXPECT_STREQ(node->inputs()[0]->name(), "mul");
  EXPECT_TRUE(node->inputs()[0]->inputs()[0]->is_leaf());
  EXPECT_EQ(autograd::grad_fn(x.detach()), nullptr);
}

TEST_F(Graph, AccumulatesOverBackwards) {
  const Tensor x = leaf({1, 2});
  EXPECT_FALSE(x.grad().defined());
  square(x).sum().backward();
  const Tensor grad = x.grad();
  square(x).sum().backward();
  EXPECT_TRUE(grad.is_same(x.grad()));  // in place
  EXPECT_THAT(grad.to_doubles(), ElementsAre(4, 8));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(Graph, TwiceIsRefusedUnlessRetained) {
  const Tensor x = leaf({3});
  const Tensor y = square(x) * 2.0;
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(24));
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "backward: what square saved was freed by an earlier backward; give that one "
            "retain_graph = true, or compute the forward again");
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(24));
}

TEST_F(Graph, WhatSavesNothingRunsAgain) {
  const Tensor x = leaf({3});
  const Tensor shared = x + 1.0;
  (shared * 2.0).backward();
  (shared * 5.0).backward();
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(7));
}

TEST_F(Graph, SeveralRootsAreRunOnce) {
  const Tensor x = leaf({2});
  const Tensor y = square(x);
  int runs = 0;
  autograd::grad_fn(y)->register_post_hook([&](auto, const Tensor&) { ++runs; });
  autograd::backward({y, y * 3.0, y.sum()});
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(20));
}

TEST_F(Graph, ALeafIsItsOwnRoot) {
  const Tensor x = leaf({2});
  x.backward();
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(1));
}

TEST_F(Graph, GradTouchesNoGrad) {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});
  const Tensor h = x * w;
  const Tensor y = square(h).sum();
  const auto grads = autograd::grad({y}, {h, x}, {.retain_graph = true});
  EXPECT_THAT(grads[0].to_doubles(), ElementsAre(6, 16));
  EXPECT_THAT(grads[1].to_doubles(), ElementsAre(18, 64));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST_F(Graph, GradRunsOnlyWhatLiesBetween) {
  const Tensor x = leaf({1});
  const Tensor w = leaf({2});
  const Tensor left = exp(x);
  const Tensor right = exp(w);
  const Tensor h = left * right;
  std::vector<std::string> ran;
  for (const auto& [name, tensor] : {std::pair("left", left), {"right", right}, {"h", h}}) {
    autograd::grad_fn(tensor)->register_post_hook(
        [&ran, name = name](auto, const Tensor&) { ran.emplace_back(name); });
  }
  (void)autograd::grad({h}, {w});
  EXPECT_THAT(ran, ElementsAre("h", "right"));
}

TEST_F(Graph, GradOfWhatIsNotBehind) {
  const Tensor x = leaf({1});
  const Tensor w = leaf({2});
  EXPECT_THAT(message_of([&] { (void)autograd::grad({x * 2.0}, {w}); }),
              HasSubstr("grad: input 0, f64[1], is not behind the outputs"));
  const auto grads = autograd::grad({x * 2.0}, {w, x}, {.allow_unused = true});
  EXPECT_FALSE(grads[0].defined());
  EXPECT_THAT(grads[1].to_doubles(), ElementsAre(2));
}

TEST_F(Graph, SecondDerivatives) {
  const Tensor x = leaf({2});
  const Tensor y = x * x * x;
  const Tensor first = autograd::grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_THAT(first.to_doubles(), ElementsAre(12));
  EXPECT_THAT(autograd::grad({first}, {x})[0].to_doubles(), ElementsAre(12));
}

TEST_F(Graph, AGradientWithAHistoryIsNoCycle) {
  {
    const Tensor x = leaf({2});
    autograd::backward(x * x * x, {}, {.create_graph = true});
    EXPECT_TRUE(x.grad().requires_grad());
    EXPECT_THAT(autograd::grad({x.grad()}, {x})[0].to_doubles(), ElementsAre(12));
  }
  EXPECT_EQ(world_.allocated_bytes(), 0);
}

TEST_F(Graph, SecondDerivativesAreRefusedWhereThereAreNone) {
  const Tensor x = leaf({2});
  EXPECT_THAT(message_of([&] { (void)autograd::grad({sin(x * x)}, {x}, {.create_graph = true}); }),
              HasSubstr("its gradient cannot be differentiated again"));
  const Tensor y = x * 1.0;
  y.mul_(x);
  EXPECT_THAT(message_of([&] { (void)autograd::grad({y}, {x}, {.create_graph = true}); }),
              HasSubstr("mul_: its gradient cannot be differentiated again"));
}

TEST_F(Graph, RunsTheNewestFirstAlways) {
  const Tensor x = leaf({1});
  std::vector<std::string> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> ran;
    std::vector<Tensor> parts;
    Tensor sum = x * 0.0;
    for (int i = 0; i < 8; ++i) {
      const Tensor part = x * static_cast<double>(i);
      autograd::register_hook(part, [&ran, i](const Tensor&) {
        ran.push_back(std::to_string(i));
        return Tensor();
      });
      sum = sum + part;
    }
    sum.backward();
    if (round == 0) first = ran;
    EXPECT_EQ(ran, first);
  }
  EXPECT_THAT(first, ElementsAre("7", "6", "5", "4", "3", "2", "1", "0"));
}

TEST_F(Graph, ADroppedLeafIsNoHarm) {
  Tensor y;
  {
    const Tensor x = leaf({2});
    y = square(x);
  }
  y.backward();
  y = {};
  EXPECT_EQ(world_.allocated_bytes(), 0);
}

TEST_F(Graph, ALeafMayStopWanting) {
  const Tensor x = leaf({2});
  const Tensor y = square(x);
  x.requires_grad_(false);
  y.backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_THAT(message_of([&] { y.requires_grad_(false); }),
              HasSubstr("was computed from something that needs a gradient; detach it"));
}

TEST_F(Graph, RetainGradKeepsThatOfAResult) {
  const Tensor x = leaf({2});
  const Tensor y = square(x);
  autograd::retain_grad(y);
  (y * 3.0).backward();
  EXPECT_THAT(y.grad().to_doubles(), ElementsAre(3));
}

// Built, run and dropped without recursion.
TEST(LongGraph, OfAMillionNodes) {
  const World world(World::Kind::kMeta);
  const Tensor x = zeros({1}, world.f32(/*requires_grad=*/true));
  {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = neg(y);
    y.backward();
  }
  EXPECT_TRUE(x.grad().defined());
  {
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) y = y * x;  // saves both, and drops them unrun
  }
  EXPECT_EQ(world.allocated_bytes(), 1024);
}

}  // namespace
}  // namespace headroom
