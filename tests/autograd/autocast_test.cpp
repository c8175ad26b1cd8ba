// Which type ops choose, and what is cast how often.
#include <thread>

#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::message_of;
using testing::World;

class AutocastTest : public ::testing::Test {
 protected:
  [[nodiscard]] static std::uint64_t casts_of(const std::function<void()>& action) {
    const std::uint64_t before = Autocast::casts();
    action();
    return Autocast::casts() - before;
  }

  World world_{};
  Tensor x_ = randn({4, 8}, world_.f32());
  Tensor weight_ = randn({6, 8}, world_.f32(/*requires_grad=*/true));
  Tensor bias_ = randn({6}, world_.f32(/*requires_grad=*/true));
};

TEST_F(AutocastTest, ListsSayWhichTypeAnOpComputesIn) {
  const Tensor half = x_.to(kBF16);
  const std::vector<std::tuple<const char*, DType, std::function<Tensor()>>> cases = {
      {"matmul", kBF16, [&] { return matmul(x_, x_.t()); }},
      {"adjoint_matmul", kBF16, [&] { return adjoint_matmul(x_, x_); }},
      {"bmm", kBF16, [&] { return bmm(x_.unsqueeze(0), x_.t().unsqueeze(0)); }},
      {"linear", kBF16, [&] { return linear(x_, weight_, bias_); }},
      {"linear of both types", kBF16, [&] { return linear(half, weight_, bias_); }},
      {"conv2d",
       kBF16,
       [&] {
         return conv2d(x_.view({1, 2, 4, 4}), weight_.view({6, 2, 2, 2}), bias_);
       }},
      {"attention",
       kBF16,
       [&] {
         return scaled_dot_product_attention(x_, x_, half, ones({4, 4}, world_.f32()));
       }},
      {"layer_norm", kF32, [&] { return layer_norm(half, {8}, ones({8}, world_.f32())); }},
      {"softplus", kF32, [&] { return softplus(half); }},
      {"mse_loss", kF32, [&] { return mse_loss(half, x_); }},
      {"dropout takes what comes", kBF16, [&] { return dropout(half, 0.5); }},
      {"exp", kF32, [&] { return exp(half); }},
      {"log", kF32, [&] { return log(half); }},
      {"rsqrt", kF32, [&] { return rsqrt(half); }},
      {"pow", kF32, [&] { return pow(half, 2); }},
      {"softmax", kF32, [&] { return softmax(half, 1); }},
      {"log_softmax", kF32, [&] { return log_softmax(half, 1); }},
      {"norm", kF32, [&] { return norm(half, 2); }},
      {"cross_entropy",
       kF32,
       [&] {
         return cross_entropy(half, arange(4, {kI64, world_.allocator()}));
       }},
      {"relu takes what comes", kBF16, [&] { return relu(half); }},
      {"mul takes what comes", kBF16, [&] { return half * half; }},
      {"add promotes", kF32, [&] { return half + x_; }},
      {"cat promotes",
       kF32,
       [&] {
         return cat({half, x_}, 0);
       }},
  };
  const AutocastScope autocast;
  for (const auto& [name, dtype, call] : cases) EXPECT_EQ(call().dtype(), dtype) << name;
}

TEST_F(AutocastTest, GradientsComeBackInTheTypeOfTheirTensor) {
  Tensor loss;
  {
    const AutocastScope autocast;
    loss = mean(square(linear(x_, weight_, bias_)));
  }
  EXPECT_EQ(loss.dtype(), kBF16);
  loss.backward();
  EXPECT_EQ(weight_.grad().dtype(), kF32);
  EXPECT_EQ(bias_.grad().dtype(), kF32);
  const Tensor exact = 2 * adjoint_matmul(linear(x_, weight_, bias_).detach(), x_) / 24;
  EXPECT_LT(max(abs(weight_.grad() - exact)).item<double>(), 0.05 * max(abs(exact)).item<double>());
}

TEST_F(AutocastTest, NestsAndGoesBack) {
  EXPECT_FALSE(Autocast::is_enabled());
  {
    const AutocastScope outer(kBF16);
    {
      const AutocastScope off(kBF16, false);
      EXPECT_EQ(matmul(x_, x_.t()).dtype(), kF32);
      const AutocastScope inner(kF16);
      EXPECT_EQ(matmul(x_, x_.t()).dtype(), kF16);
    }
    EXPECT_EQ(matmul(x_, x_.t()).dtype(), kBF16);
  }
  EXPECT_EQ(matmul(x_, x_.t()).dtype(), kF32);
}

TEST_F(AutocastTest, LeavesOtherTypesAlone) {
  const AutocastScope autocast;
  const Tensor wide = x_.to(kF64);
  EXPECT_EQ(matmul(wide, wide.t()).dtype(), kF64);
  const Tensor complex = x_.to(kC64);
  EXPECT_EQ(matmul_adjoint(complex, complex).dtype(), kC64);
  EXPECT_EQ(softmax(wide, 0).dtype(), kF64);
}

TEST_F(AutocastTest, RefusesATypeThatIsNotLower) {
  EXPECT_EQ(message_of([] { const AutocastScope autocast(kF32); }),
            "AutocastScope: bf16 or f16 is wanted, not f32");
  EXPECT_FALSE(Autocast::is_enabled());
}

TEST_F(AutocastTest, IsOfItsThreadAndIsCarriedToAnother) {
  const AutocastScope autocast(kF16);
  const ThreadState state = ThreadState::capture();
  std::thread([&] {
    EXPECT_EQ(matmul(x_, x_.t()).dtype(), kF32);
    const ThreadStateScope scope(state);
    EXPECT_EQ(matmul(x_, x_.t()).dtype(), kF16);
  }).join();
}

// --- The cache -----------------------------------------------------------------------------------

TEST_F(AutocastTest, CastsAWeightOnceInAScope) {
  const AutocastScope autocast;
  const Tensor half = x_.to(kBF16);
  EXPECT_EQ(casts_of([&] { (void)linear(half, weight_); }), 1U);
  EXPECT_EQ(casts_of([&] {
              (void)linear(half, weight_);
              const AutocastScope inner;
              (void)linear(half, weight_);
            }),
            0U);
  const AutocastScope other(kF16);
  EXPECT_EQ(casts_of([&] { (void)linear(half, weight_); }), 2U) << "of another type, with x";
}

TEST_F(AutocastTest, KeepsNothingBeyondTheOutermostScope) {
  const std::int64_t before = world_.allocated_bytes();
  {
    const AutocastScope autocast;
    {
      const AutocastScope inner;
      (void)linear(x_, weight_);
    }
    EXPECT_GT(world_.allocated_bytes(), before) << "the weight in bf16";
  }
  EXPECT_EQ(world_.allocated_bytes(), before);
  const AutocastScope again;
  EXPECT_EQ(casts_of([&] { (void)linear(x_, weight_); }), 2U);
}

TEST_F(AutocastTest, CastsAWeightAgainOnceItIsWritten) {
  const AutocastScope autocast;
  const Tensor before = linear(x_, weight_).detach();
  {
    const NoGradScope no_grad;
    weight_.mul_(2);
  }
  const Tensor after = linear(x_, weight_).detach();
  EXPECT_TRUE(equal(before * 2, after));
}

TEST_F(AutocastTest, AWeightInThePlaceOfAnotherIsNotTakenForIt) {
  const AutocastScope autocast;
  for (int i = 0; i < 20; ++i) {
    const Tensor weight = full({6, 8}, i, world_.f32(/*requires_grad=*/true));
    EXPECT_EQ(linear(ones({1, 8}, world_.f32()), weight).detach().to_doubles()[0], 8.0 * i);
  }
}

// PyTorch keeps such a cast, and whoever finds it later gets no gradient.
TEST_F(AutocastTest, ACastUnderNoGradIsNotKeptForWhatIsRecorded) {
  const AutocastScope autocast;
  {
    const NoGradScope no_grad;
    (void)linear(x_, weight_);
  }
  sum(linear(x_, weight_)).backward();
  EXPECT_TRUE(weight_.grad().defined());
}

TEST_F(AutocastTest, SeveralBackwardsMayShareACast) {
  const AutocastScope autocast;
  sum(linear(x_, weight_)).backward();
  const Tensor once = weight_.grad().clone();
  sum(linear(x_, weight_)).backward();
  EXPECT_TRUE(equal(weight_.grad(), once * 2));
}

// --- Backward ------------------------------------------------------------------------------------

TEST_F(AutocastTest, BackwardFunctionsRunWithout) {
  const AutocastScope autocast;
  const Tensor y = linear(x_, weight_);
  bool is_enabled = true;
  const auto handle = autograd::register_hook(y, [&](const Tensor&) {
    is_enabled = Autocast::is_enabled();
    return Tensor();
  });
  sum(y).backward();
  EXPECT_FALSE(is_enabled);
  EXPECT_TRUE(Autocast::is_enabled()) << "and goes on after it";
}

TEST_F(AutocastTest, ARecomputationSeesTheStateOfTheForward) {
  ThreadState state;
  Tensor y;
  {
    const AutocastScope autocast(kF16);
    state = ThreadState::capture();
    y = linear(x_, weight_);
  }
  DType again = kF32;
  std::int64_t kept_bytes = -1;
  const auto handle = autograd::register_hook(y, [&](const Tensor&) {
    const std::int64_t before = world_.allocated_bytes();
    {
      const EnableGradScope grad;
      const ThreadStateScope scope(state);
      again = linear(x_, weight_).dtype();
    }
    kept_bytes = world_.allocated_bytes() - before;
    return Tensor();
  });
  sum(y).backward();
  EXPECT_EQ(again, kF16);
  EXPECT_EQ(kept_bytes, 0) << "its cache ends with it, not with the backward";
}

TEST_F(AutocastTest, WhatIsSavedHalves) {
  x_.requires_grad_();
  const auto saved = [&] {
    const Tensor y = linear(x_, weight_);
    return autograd::grad_fn(y)->saved_bytes();
  };
  EXPECT_EQ(saved(), x_.size_bytes() + weight_.size_bytes());
  const AutocastScope autocast;
  EXPECT_EQ(saved(), (x_.size_bytes() + weight_.size_bytes()) / 2);
}

}  // namespace
}  // namespace headroom
