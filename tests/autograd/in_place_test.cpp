// Every op that writes, against a tensor that another has saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

struct Write {
  const char* name;
  std::function<void(const Tensor&)> run;
};

Tensor index_for(const Tensor& x) {
  return zeros({3}, {.dtype = DType::kI64, .device = x.storage().allocator()});
}
Tensor mask_for(const Tensor& x) {
  return ones({3}, {.dtype = DType::kBool, .device = x.storage().allocator()});
}

const std::vector<Write>& writes() {
  static const std::vector<Write> kWrites{
      {"fill_", [](const Tensor& x) { x.fill_(1); }},
      {"fill_", [](const Tensor& x) { x.zero_(); }},
      {"copy_", [](const Tensor& x) { x.copy_(ones_like(x)); }},
      {"add_", [](const Tensor& x) { x.add_(ones_like(x)); }},
      {"add_", [](const Tensor& x) { x.add_(1.0); }},
      {"add_", [](const Tensor& x) { x += 1.0; }},
      {"sub_", [](const Tensor& x) { x.sub_(ones_like(x)); }},
      {"sub_", [](const Tensor& x) { x.sub_(1.0); }},
      {"mul_", [](const Tensor& x) { x.mul_(ones_like(x)); }},
      {"mul_", [](const Tensor& x) { x.mul_(1.0); }},
      {"div_", [](const Tensor& x) { x.div_(ones_like(x)); }},
      {"div_", [](const Tensor& x) { x.div_(1.0); }},
      {"pow_", [](const Tensor& x) { x.pow_(1.0); }},
      {"neg_", [](const Tensor& x) { x.neg_(); }},
      {"abs_", [](const Tensor& x) { x.abs_(); }},
      {"exp_", [](const Tensor& x) { x.exp_(); }},
      {"log_", [](const Tensor& x) { x.log_(); }},
      {"sqrt_", [](const Tensor& x) { x.sqrt_(); }},
      {"rsqrt_", [](const Tensor& x) { x.rsqrt_(); }},
      {"reciprocal_", [](const Tensor& x) { x.reciprocal_(); }},
      {"square_", [](const Tensor& x) { x.square_(); }},
      {"sin_", [](const Tensor& x) { x.sin_(); }},
      {"cos_", [](const Tensor& x) { x.cos_(); }},
      {"tanh_", [](const Tensor& x) { x.tanh_(); }},
      {"sigmoid_", [](const Tensor& x) { x.sigmoid_(); }},
      {"relu_", [](const Tensor& x) { x.relu_(); }},
      {"floor_", [](const Tensor& x) { x.floor_(); }},
      {"ceil_", [](const Tensor& x) { x.ceil_(); }},
      {"round_", [](const Tensor& x) { x.round_(); }},
      {"trunc_", [](const Tensor& x) { x.trunc_(); }},
      {"clamp_", [](const Tensor& x) { x.clamp_(0.0, 1.0); }},
      {"masked_fill_", [](const Tensor& x) { x.masked_fill_(mask_for(x), 0); }},
      {"scatter_", [](const Tensor& x) { x.scatter_(0, index_for(x), ones_like(x)); }},
      {"scatter_add_", [](const Tensor& x) { x.scatter_add_(0, index_for(x), ones_like(x)); }},
      {"uniform_", [](const Tensor& x) { x.uniform_(); }},
      {"normal_", [](const Tensor& x) { x.normal_(); }},
      {"mul_", [](const Tensor& x) { x.slice(0, 0, 1).mul_(2.0); }},
      {"add_", [](const Tensor& x) { x.detach().add_(1.0); }},
      {"add_",
       [](const Tensor& x) {
         const NoGradScope no_grad;
         x.add_(1.0);
       }},
  };
  return kWrites;
}

class InPlace : public ::testing::Test {
 protected:
  World world_{};
  Tensor leaf_ = from({1, 2, 3}, world_.f64(/*requires_grad=*/true));
};

TEST_F(InPlace, EveryWriteToASavedInputIsCaught) {
  for (const Write& write : writes()) {
    const Tensor x = leaf_ * 1.0;
    const Tensor y = square(x);
    write.run(x);
    EXPECT_EQ(message_of([&] { y.sum().backward(); }),
              "backward: square saved f64[3] at version 0, but " + std::string(write.name) +
                  " has since made it version 1; do not write to it in place, or give square a "
                  "clone");
    EXPECT_FALSE(leaf_.grad().defined()) << write.name;
  }
}

TEST_F(InPlace, EveryWriteToASavedOutputIsCaught) {
  for (const Write& write : writes()) {
    const Tensor y = exp(leaf_);
    write.run(y);
    EXPECT_THAT(message_of([&] { y.sum().backward(); }),
                HasSubstr("backward: exp saved f64[3] at version 0, but " +
                          std::string(write.name) + " has since made it version 1"));
  }
}

TEST_F(InPlace, EveryWriteToALeafIsRefused) {
  for (const Write& write : writes()) {
    const Tensor x = from({1, 2, 3}, world_.f64(/*requires_grad=*/true));
    const std::string message = message_of([&] { write.run(x); });
    if (message.empty()) {
      // Those that say that they are not recorded.
      EXPECT_THAT(write.name, ::testing::StrEq("add_"));
      EXPECT_EQ(x.version(), 1U);
      continue;
    }
    EXPECT_THAT(message,
                HasSubstr("leaf that needs a gradient and cannot be written to; use "
                          "no_grad, or write to a clone"));
    EXPECT_EQ(x.version(), 0U) << write.name;
  }
}

// What nobody saved may be written to.
TEST_F(InPlace, EveryWriteIsFineWhereNothingWasSaved) {
  for (const Write& write : writes()) {
    const Tensor x = leaf_ * 1.0;
    const Tensor y = x + 1.0;
    write.run(y);
    write.run(x);
    EXPECT_EQ(message_of([&] { (x.sum() + y.sum()).backward(); }), "") << write.name;
  }
}

TEST_F(InPlace, ReluWhoseOutputIsSaved) {
  const Tensor x = leaf_ - 2.0;
  const Tensor y = relu(x);
  x.zero_();  // its input is not needed
  y.sum().backward();
  EXPECT_THAT(leaf_.grad().to_doubles(), ElementsAre(0, 0, 1));
}

TEST_F(InPlace, ChainsThatSaveWhatTheyMade) {
  const Tensor x = leaf_ * 2.0;
  x.relu_();
  const Tensor y = linear(x.view({1, 3}), ones({2, 3}, world_.f64()));  // the weight wants nothing
  x.add_(1.0);                                                          // relu_ saved it
  EXPECT_THAT(message_of([&] { y.sum().backward(); }),
              HasSubstr("relu_ saved f64[3] at version 1"));
  const Tensor z = (leaf_ * 2.0).exp_();
  EXPECT_EQ(message_of([&] { z.sum().backward(); }), "");
}

TEST_F(InPlace, AWriteAfterTheBackwardIsFine) {
  const Tensor x = leaf_ * 1.0;
  square(x).sum().backward();
  x.zero_();
  EXPECT_THAT(leaf_.grad().to_doubles(), ElementsAre(2, 4, 6));
}

TEST_F(InPlace, TheMessageNamesTheLayer) {
  Tensor x;
  {
    const memory::AnnotationScope layer("block2/attention");
    x = leaf_ * 1.0;
  }
  const Tensor y = tanh(x) * x;
  x.add_(1.0);
  x.mul_(2.0);
  EXPECT_EQ(message_of([&] { y.sum().backward(); }),
            "backward: mul saved f64[3] of block2/attention at version 0, but mul_ has since made "
            "it version 2; do not write to it in place, or give mul a clone");
}

// Nothing of it: what would have run before the overwritten tensor is reached has not run either.
TEST_F(InPlace, IsRefusedBeforeAnythingIsComputed) {
  const Tensor other = ones({3}, world_.f64(/*requires_grad=*/true));
  const Tensor x = leaf_ * 1.0;
  const Tensor y = exp(square(x) * other);
  x.zero_();
  const Tensor loss = y.sum();
  const std::int64_t allocations = world_.allocations();
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("square saved"));
  EXPECT_EQ(world_.allocations(), allocations);
  EXPECT_FALSE(other.grad().defined());
  // And only the part that needs it: nothing was freed.
  EXPECT_TRUE(autograd::grad({loss}, {other})[0].defined());
}

// A hook may write while the backward runs.
TEST_F(InPlace, IsRefusedOnTheWayToo) {
  const Tensor x = leaf_ * 1.0;
  const Tensor y = square(x) * 2.0;
  autograd::register_hook(y, [&](const Tensor&) {
    x.zero_();
    return Tensor();
  });
  EXPECT_THAT(message_of([&] { y.sum().backward(); }), HasSubstr("square saved f64[3]"));
}

}  // namespace
}  // namespace headroom
