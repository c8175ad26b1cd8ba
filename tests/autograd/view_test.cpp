// Writes to views, and views of what was written to. Values of gradients: gradient_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

class Views : public ::testing::Test {
 protected:
  World world_{};
  Tensor x_ = from({1, 2, 3, 4}, world_.f64()).view({2, 2}).clone().requires_grad_();
  Tensor w_ = from({10, 20}, world_.f64()).requires_grad_();
};

TEST_F(Views, AWriteToOneGivesItsBaseAHistory) {
  const Tensor buffer = zeros({2, 2}, world_.f64());
  const Tensor early = buffer[0];
  const Tensor row = buffer[1];
  row.copy_(w_);
  EXPECT_TRUE(buffer.requires_grad());
  EXPECT_TRUE(early.requires_grad());
  EXPECT_FALSE(buffer.is_leaf());
  EXPECT_STREQ(autograd::grad_fn(buffer)->name(), "copy_");
  EXPECT_STREQ(autograd::grad_fn(row)->name(), "view");
  (buffer * 3.0).sum().backward();
  EXPECT_THAT(w_.grad().to_doubles(), ElementsAre(3, 3));
}

TEST_F(Views, AWriteToTheBaseIsSeenByThem) {
  const Tensor y = x_ * 2.0;
  const Tensor column = y.select(1, 0);
  y.mul_(3.0);
  column.sum().backward();
  EXPECT_THAT(x_.grad().to_doubles(), ElementsAre(6, 0, 6, 0));
}

TEST_F(Views, OfWhatLiesAnyWay) {
  // The base is itself transposed, and does not begin at the start of its storage.
  const Tensor storage = zeros({3, 4}, world_.f64());
  const Tensor base = storage.slice(0, 1).slice(1, 1, 4, 2).transpose(0, 1).detach();
  base[1].copy_(w_);
  base.select(1, 0).mul_(w_);
  (base * x_.detach()).sum().backward();
  // base = [[0, 0], [10 * 20, 20]]
  EXPECT_THAT(w_.grad().to_doubles(), ElementsAre(3 * 20, 3 * 10 + 4));
}

TEST_F(Views, OfALeafAreNotWrittenTo) {
  EXPECT_EQ(message_of([&] { x_[0].fill_(1); }),
            "fill_: f64[2] is a view of a leaf that needs a gradient and cannot be written to; use "
            "no_grad, or write to a clone");
  const NoGradScope no_grad;
  x_[0].fill_(1);
  EXPECT_THAT(x_.to_doubles(), ElementsAre(1, 1, 3, 4));
  EXPECT_TRUE(x_.is_leaf());
}

TEST_F(Views, MadeUnderNoGradHaveNoHistory) {
  const Tensor y = x_ * 1.0;
  Tensor row;
  {
    const NoGradScope no_grad;
    row = y[0];
  }
  EXPECT_FALSE(row.requires_grad());
  EXPECT_THAT(message_of([&] { row.mul_(2.0); }), HasSubstr("made under no_grad of something"));
}

TEST_F(Views, AsLeavesStandForThemselves) {
  const Tensor all = zeros({2, 2}, world_.f64());
  const Tensor row = all[0].requires_grad_();
  EXPECT_TRUE(row.is_leaf());
  EXPECT_FALSE(all.requires_grad());
  EXPECT_THAT(message_of([&] { row.slice(0, 1).fill_(0); }), HasSubstr("a view of a leaf"));
  square(row).sum().backward();
  EXPECT_TRUE(row.grad().defined());
}

TEST_F(Views, WhatTheySavedIsGuardedByTheBase) {
  const Tensor y = x_ * 1.0;
  const Tensor z = square(y[0]);
  y[1].zero_();  // another row, but one storage: refused, as in PyTorch
  EXPECT_THAT(message_of([&] { z.sum().backward(); }),
              HasSubstr("square saved f64[2] at version 0, but fill_ has since made it version 1"));
}

TEST_F(Views, NoSecondDerivativeThroughAWrite) {
  const Tensor y = x_ * x_;
  y[0].mul_(2.0);
  EXPECT_THAT(
      message_of([&] { (void)autograd::grad({(y * y).sum()}, {x_}, {.create_graph = true}); }),
      HasSubstr("a write to a view: its gradient cannot be differentiated again"));
}

}  // namespace
}  // namespace headroom
