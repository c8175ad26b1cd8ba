#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

class Hooks : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor leaf(std::initializer_list<double> values) const {
    return from(values, world_.f64(/*requires_grad=*/true));
  }
  World world_{};
};

TEST_F(Hooks, OfATensorSeeAndReplaceTheWholeGradient) {
  const Tensor x = leaf({1});
  const Tensor y = x * 2.0;
  std::vector<double> seen;
  autograd::register_hook(y, [&](const Tensor& grad) {
    seen.push_back(grad.item<double>());
    return grad * 10.0;
  });
  autograd::register_hook(y, [&](const Tensor& grad) {
    seen.push_back(grad.item<double>());
    return Tensor();
  });
  (y * 3.0 + y * 4.0).backward();
  EXPECT_THAT(seen, ElementsAre(7, 70));
  EXPECT_EQ(x.grad().item<double>(), 140);
}

TEST_F(Hooks, OfALeafRunBeforeItAccumulates) {
  const Tensor x = leaf({1});
  autograd::register_hook(x, [](const Tensor& grad) { return grad * -1.0; });
  (x * 2.0 + x).backward();
  EXPECT_EQ(x.grad().item<double>(), -3);
}

TEST_F(Hooks, AreRemovedByTheirHandle) {
  const Tensor x = leaf({1});
  int calls = 0;
  autograd::HookHandle handle = autograd::register_hook(x, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  x.backward();
  handle.remove();
  handle.remove();
  x.backward();
  EXPECT_EQ(calls, 1);
}

TEST_F(Hooks, OfANodeRunBeforeAndAfter) {
  const Tensor x = leaf({3});
  const Tensor y = square(x);
  std::vector<std::string> seen;
  const autograd::NodePtr node = autograd::grad_fn(y);
  node->register_pre_hook([&](const Tensor& grad) {
    seen.push_back("before " + to_string(grad));
    return Tensor();
  });
  autograd::HookHandle after =
      node->register_post_hook([&](std::span<const Tensor> made, const Tensor& of) {
        seen.push_back("after " + to_string(made[0]) + " of " + to_string(of));
      });
  y.backward();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_THAT(seen[0], HasSubstr("before"));
  EXPECT_THAT(seen[1], HasSubstr("6"));
  after.remove();
}

TEST_F(Hooks, AfterAccumulationSeeTheLeaf) {
  const Tensor x = leaf({3});
  std::vector<double> seen;
  // As an optimiser that frees each gradient as soon as it has used it.
  autograd::register_post_accumulate_grad_hook(x, [&](const Tensor& self) {
    seen.push_back(self.grad().item<double>());
    self.set_grad({});
  });
  square(x).backward();
  square(x).backward();
  EXPECT_THAT(seen, ElementsAre(6, 6));
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(Hooks, ThatGiveWhatDoesNotFitAreRefused) {
  const Tensor x = leaf({3});
  autograd::register_hook(x, [](const Tensor& grad) { return grad.expand({2}); });
  EXPECT_EQ(message_of([&] { x.backward(); }),
            "backward: a hook gave a gradient of f64[2] on cpu:9 for f64[1] on cpu:9");
  EXPECT_THAT(message_of([&] { autograd::register_hook(x.detach(), {}); }),
              HasSubstr("needs no gradient"));
  EXPECT_THAT(message_of([&] { autograd::register_post_accumulate_grad_hook(x * 1.0, {}); }),
              HasSubstr("only a leaf"));
}

TEST_F(Hooks, ThatThrowLeaveNothingBehind) {
  const Tensor x = leaf({3});
  {
    const Tensor y = exp(square(x));
    autograd::register_hook(y, [](const Tensor&) -> Tensor { throw Error("stop"); });
    EXPECT_EQ(message_of([&] { (y * 2.0).backward(); }), "stop");
  }
  EXPECT_EQ(world_.allocated_bytes(), 512);
}

// --- Saved tensors
// ---------------------------------------------------------------------------------

Tensor loss_of(const Tensor& x, const Tensor& w) {
  return square(relu(matmul(x, w)) * sigmoid(x)).sum();
}

TEST_F(Hooks, SavedTensorsGoToAnotherDeviceAndBack) {
  const World other;
  const TensorOptions options = world_.f64();
  const Tensor x = rand({4, 4}, options).requires_grad_();
  const Tensor w = rand({4, 4}, options).requires_grad_();
  loss_of(x, w).backward();
  const std::vector<double> dx = x.grad().to_doubles();
  const std::vector<double> dw = w.grad().to_doubles();
  x.set_grad({});
  w.set_grad({});

  int packs = 0;
  int unpacks = 0;
  const std::int64_t before = world_.allocated_bytes();
  Tensor loss;
  {
    const autograd::SavedTensorHooks offload(
        {.pack =
             [&](const Tensor& tensor) {
               ++packs;
               return std::any(tensor.detach().to(Place(other.allocator())));
             },
         .unpack =
             [&](const std::any& packed) {
               ++unpacks;
               return std::any_cast<Tensor>(packed).to(Place(world_.allocator()));
             }});
    loss = loss_of(x, w);
  }
  // Only the loss stays; what was saved is over there.
  EXPECT_EQ(world_.allocated_bytes(), before + 512);
  EXPECT_GT(other.allocated_bytes(), 0);
  loss.backward();
  EXPECT_EQ(other.allocated_bytes(), 0);
  EXPECT_EQ(packs, unpacks);
  EXPECT_EQ(x.grad().to_doubles(), dx);
  EXPECT_EQ(w.grad().to_doubles(), dw);
}

TEST_F(Hooks, WhatIsPackedMayBeOverwritten) {
  const Tensor x = leaf({3});
  const Tensor y = x * 1.0;
  Tensor z;
  {
    const autograd::SavedTensorHooks copy(
        {.pack = [](const Tensor& t) { return std::any(t.detach().clone()); },
         .unpack = [](const std::any& packed) { return std::any_cast<Tensor>(packed); }});
    z = square(y);
  }
  y.zero_();
  z.backward();
  EXPECT_EQ(x.grad().item<double>(), 6);
}

TEST_F(Hooks, WhatIsUnpackedKeepsItsCategory) {
  const Tensor x = leaf({3});
  Tensor y;
  {
    const autograd::SavedTensorHooks copy(
        {.pack = [](const Tensor& t) { return std::any(t.detach().clone()); },
         .unpack =
             [](const std::any& packed) {
               Tensor back = std::any_cast<Tensor>(packed).clone();
               EXPECT_EQ(back.storage().category(), memory::Category::kActivation);
               return back;
             }});
    y = square(x);
  }
  y.backward();
}

// The write has happened; what was there before must not get a gradient as if it had not.
TEST_F(Hooks, AWriteThatCouldNotBeSavedIsNotPassed) {
  const Tensor x = leaf({3});
  const Tensor y = x * 1.0;
  {
    const autograd::SavedTensorHooks fail(
        {.pack = [](const Tensor&) -> std::any { throw Error("disk full"); },
         .unpack = [](const std::any&) { return Tensor(); }});
    EXPECT_EQ(message_of([&] { y.exp_(); }), "disk full");
  }
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "backward: exp_ wrote to its tensor but failed to save what its backward needs");
}

TEST_F(Hooks, WhatIsUnpackedMustFit) {
  const Tensor x = leaf({3});
  Tensor y;
  {
    const autograd::SavedTensorHooks wrong(
        {.pack = [](const Tensor&) { return std::any(1); },
         .unpack = [&](const std::any&) { return zeros({2}, world_.f64()); }});
    y = square(x);
  }
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "backward: an unpack hook gave f64[2] of backward for what square saved as f64[1]");
}

}  // namespace
}  // namespace headroom
