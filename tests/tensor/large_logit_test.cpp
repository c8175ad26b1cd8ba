// Losses and probabilities far from 0, where a logarithm that is rounded beside the logits would
// leave nothing of what tells them apart (#21).
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tensor/op_suite.h"

namespace headroom::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Layout kEveryLayout[] = {Layout::kContiguous, Layout::kTransposed, Layout::kStepped};

// What a few roundings of a result near 1 cost.
double few_roundings(DType dtype) {
  switch (dtype) {
    case kF64:
      return 1e-14;
    case kF32:
      return 3e-6;
    default:
      return dtype == kF16 ? 2e-3 : 1e-2;
  }
}

void expect_close(const Tensor& got, const Array& wanted, double tolerance) {
  ASSERT_EQ(got.shape(), wanted.shape);
  const Array found = take(got);
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    if (found.values[i] == wanted.values[i]) continue;  // infinities too
    ASSERT_NEAR(found.values[i], wanted.values[i], tolerance * (1 + std::abs(wanted.values[i])))
        << "at " << i;
  }
}

// Logits a few apart on top of `base`, as the type can hold them; every tenth far below.
Array logits_at(double base, const Shape& shape, DType dtype) {
  const double step = std::max(1.0, std::abs(base) * (dtype == kBF16 ? 0x1p-7 : 0x1p-10));
  int at = 0;
  return make(shape, [&](const Dims&) {
    ++at;
    const double below = at % 10 == 0 ? std::max(40.0, 8 * step) : (at * 7 % 5) * step;
    return take(full({}, base - below, {.dtype = dtype, .device = "cpu"})).values[0];
  });
}

Array log_softmax_of(const Array& x, int dim) {
  const Array largest = fold(x, {dim}, true, [](const auto& group) {
    return *std::max_element(group.begin(), group.end());
  });
  const Array shifted = zip(x, largest, [](double a, double b) { return a - b; });
  const Array sums = fold(shifted, {dim}, true, [](const auto& group) {
    double sum = 0;
    for (const double value : group) sum += std::exp(value);
    return std::log(sum);
  });
  return zip(shifted, sums, [](double a, double b) { return a - b; });
}

class LargeLogits : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor of(const std::vector<double>& values, DType dtype = kF32) const {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    return from(values, shape, {.dtype = dtype, .device = world_.allocator()});
  }
  [[nodiscard]] Tensor targets(const std::vector<std::int64_t>& values, const Shape& shape) const {
    return from(values, shape, {.dtype = kI64, .device = world_.allocator()});
  }
  [[nodiscard]] std::vector<double> bases(DType dtype) const {
    if (dtype == kF16) return {0, 1000, -30000, 60000};
    if (dtype == kF64) return {0, 1e5, -1e9, 1e12};
    return {0, 1000, 1e5, -1e5, 1e6, 1e7};
  }

  World world_ = tensor_backends()[0].make();
};

TEST_F(LargeLogits, LoseNothingInCrossEntropy) {
  const Tensor target = targets({0}, {1});
  for (const double base : {1e5, -1e5, 1e6}) {
    const Tensor x = of({base, base - 5}).view({1, 2}).requires_grad_();
    const Tensor loss = cross_entropy(x, target);
    EXPECT_NEAR(loss.item<double>(), std::log1p(std::exp(-5)), 1e-9) << base;
    loss.backward();
    const double rest = std::exp(-5) / (1 + std::exp(-5));
    EXPECT_NEAR(x.grad().to_doubles()[0], -rest, 1e-7) << base;
    EXPECT_NEAR(x.grad().to_doubles()[1], rest, 1e-8) << base;
  }
}

TEST_F(LargeLogits, HaveTheLogSoftmaxOfTheirDifferences) {
  for (const DType dtype : {kF32, kF64, kF16, kBF16}) {
    for (const double base : bases(dtype)) {
      for (const int dim : {0, 1, 2}) {
        for (const Layout layout : kEveryLayout) {
          SCOPED_TRACE(std::string(to_string(dtype)) + " at " + std::to_string(base) + " along " +
                       std::to_string(dim));
          const Array values = logits_at(base, {3, 5, 4}, dtype);
          const Tensor x = put(values, dtype, layout, world_.allocator()).requires_grad_();
          const Array wanted = log_softmax_of(values, dim);
          const Tensor y = log_softmax(x, dim);
          expect_close(y, wanted, few_roundings(dtype));
          const Array shares = map(wanted, [](double v) { return std::exp(v); });
          expect_close(softmax(x.detach(), dim), shares, few_roundings(dtype));
          y.backward(ones_like(y));
          const double classes = static_cast<double>(y.size(dim));
          const Array grad = map(shares, [&](double share) { return 1 - share * classes; });
          expect_close(x.grad(), grad, 4 * few_roundings(dtype));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The gradient is right whether the target is the largest, near it or far below.
TEST_F(LargeLogits, HaveTheCrossEntropyOfTheirDifferences) {
  const Tensor target = targets({0, 9, 3, 1, 4, -100}, {3, 2});
  const std::vector<std::int64_t> classes = target.to_integers();
  for (const DType dtype : {kF32, kF64, kF16, kBF16}) {
    for (const double base : bases(dtype)) {
      for (const Layout layout : kEveryLayout) {
        SCOPED_TRACE(std::string(to_string(dtype)) + " at " + std::to_string(base));
        const Array values = logits_at(base, {3, 10, 2}, dtype);
        const Tensor x = put(values, dtype, layout, world_.allocator()).requires_grad_();
        const Array logs = log_softmax_of(values, 1);
        const auto chosen = [&](const Dims& at) {
          return classes[static_cast<std::size_t>(2 * at[0] + at.back())];
        };
        const Array losses = make({3, 2}, [&](const Dims& at) {
          return chosen(at) < 0 ? 0 : -logs.at({at[0], chosen(at), at[1]});
        });
        const Tensor loss = cross_entropy(x, target, {.reduction = Reduction::kNone});
        expect_close(loss, losses, few_roundings(dtype));
        loss.backward(ones_like(loss));
        const Array grad = make({3, 10, 2}, [&](const Dims& at) {
          if (chosen(at) < 0) return 0.0;
          return std::exp(logs.at(at)) - (chosen(at) == at[1] ? 1 : 0);
        });
        expect_close(x.grad(), grad, few_roundings(dtype));
        double sum = 0;
        for (const double value : losses.values) sum += value;
        const Array mean{.shape = {}, .values = {sum / 5}};
        expect_close(cross_entropy(x.detach(), target), mean, few_roundings(dtype));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(LargeLogits, HaveALongRowsGradientWhereTheTargetIsFarBelow) {
  std::vector<double> values(3000, 1e5 - 5);
  values[7] = 0;
  values[2500] = 1e5;
  const Tensor x = of(values).view({1, 3000}).requires_grad_();
  const Tensor loss = cross_entropy(x, targets({7}, {1}));
  EXPECT_NEAR(loss.item<double>(), 1e5 + std::log(1 + 2998 * std::exp(-5)), 0.01);
  loss.backward();
  const std::vector<double> grad = x.grad().to_doubles();
  const double sum = 1 + 2998 * std::exp(-5);
  EXPECT_EQ(grad[7], -1);
  EXPECT_NEAR(grad[2500], 1 / sum, 1e-7);
  EXPECT_NEAR(grad[0], std::exp(-5) / sum, 1e-9);
}

TEST_F(LargeLogits, LoseNothingInTheirGradientOfLogSumExp) {
  for (const DType dtype : {kF32, kF64, kF16, kBF16}) {
    for (const double base : bases(dtype)) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " at " + std::to_string(base));
      const Array values = logits_at(base, {2, 6, 3}, dtype);
      const Tensor x = put(values, dtype, Layout::kContiguous, world_.allocator()).requires_grad_();
      logsumexp(x, {1}).backward(full({2, 3}, 1, {.dtype = dtype, .device = world_.allocator()}));
      const Array shares = map(log_softmax_of(values, 1), [](double v) { return std::exp(v); });
      expect_close(x.grad(), shares, few_roundings(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LargeLogits, LoseNothingInBinaryCrossEntropy) {
  const std::vector<double> targets_near_ends{0, 0x1p-20, 0.25, 1 - 0x1p-20, 1};
  for (const double logit : {1e5, -1e5, 1e7, -1e7, 3.0, -3.0}) {
    for (const double t : targets_near_ends) {
      const double wanted =
          (logit > 0 ? logit * (1 - t) : -logit * t) + std::log1p(std::exp(-std::abs(logit)));
      const Tensor loss = binary_cross_entropy_with_logits(of({logit}), of({t}), Reduction::kNone);
      EXPECT_NEAR(loss.item<double>(), wanted, 3e-7 * wanted) << logit << " for " << t;
    }
  }
}

// --- Infinities, as in PyTorch -------------------------------------------------------------------

MATCHER(IsSame, "") {
  const auto [got, wanted] = arg;
  return got == wanted || (std::isnan(got) && std::isnan(wanted));
}

TEST_F(LargeLogits, OfInfinityHaveALogSumExp) {
  const struct {
    std::vector<double> x;
    double y;
    std::vector<double> grad;
  } cases[] = {
      {{kInf, 1}, kInf, {NAN, 0}},
      {{1, kInf}, kInf, {0, NAN}},
      {{kInf, kInf}, kInf, {NAN, NAN}},
      {{kInf, -kInf}, kInf, {NAN, 0}},
      {{-kInf, -kInf}, -kInf, {NAN, NAN}},
      {{-kInf, 3}, 3, {0, 1}},
      {{-kInf}, -kInf, {NAN}},
      {{NAN, kInf}, NAN, {NAN, NAN}},
      {{kInf, NAN}, NAN, {NAN, NAN}},
      {{NAN, 1}, NAN, {NAN, NAN}},
  };
  for (const DType dtype : {kF32, kF64, kF16, kBF16}) {
    for (const auto& one : cases) {
      SCOPED_TRACE(::testing::PrintToString(one.x));
      const Tensor x = of(one.x, dtype).requires_grad_();
      const Tensor y = logsumexp(x, {0});
      EXPECT_THAT(y.to_doubles(), ::testing::Pointwise(IsSame(), {one.y}));
      y.backward();
      EXPECT_THAT(x.grad().to_doubles(), ::testing::Pointwise(IsSame(), one.grad));
    }
  }
}

// However many blocks and parts they are spread over.
TEST_F(LargeLogits, OfInfinityAnywhereInALongRowHaveALogSumExp) {
  constexpr std::int64_t kMany = 200'000;
  for (const std::int64_t at : {0, 1023, 1024, 70'000, 199'999}) {
    const Tensor x = zeros({kMany}, {.device = world_.allocator()});
    x[at].fill_(kInf);
    EXPECT_EQ(logsumexp(x, {0}).item<double>(), kInf) << at;
    const Tensor low = full({kMany}, -kInf, {.device = world_.allocator()});
    EXPECT_EQ(logsumexp(low, {0}).item<double>(), -kInf);
    low[at].fill_(5);
    EXPECT_EQ(logsumexp(low, {0}).item<double>(), 5) << at;
  }
}

TEST_F(LargeLogits, OfNothingHaveALogSumExpWithoutGradient) {
  const Tensor x = zeros({2, 0}, {.device = world_.allocator(), .requires_grad = true});
  const Tensor y = logsumexp(x, {1});
  EXPECT_THAT(y.to_doubles(), ::testing::ElementsAre(-kInf, -kInf));
  y.backward(ones_like(y));
  EXPECT_EQ(x.grad().shape(), (Shape{2, 0}));
}

TEST_F(LargeLogits, OfInfinityHaveTheSoftmaxThatPyTorchGives) {
  const auto same = [](const Tensor& got, const std::vector<double>& wanted) {
    EXPECT_THAT(got.to_doubles(), ::testing::Pointwise(IsSame(), wanted));
  };
  for (const DType dtype : {kF32, kF64, kF16, kBF16}) {
    same(softmax(of({-kInf, 2, 2}, dtype), 0), {0, 0.5, 0.5});
    same(log_softmax(of({-kInf, 2}, dtype), 0), {-kInf, 0});
    same(softmax(of({kInf, 1}, dtype), 0), {NAN, NAN});
    same(log_softmax(of({kInf, 1}, dtype), 0), {NAN, NAN});
    same(softmax(of({-kInf, -kInf}, dtype), 0), {NAN, NAN});
    same(log_softmax(of({-kInf, -kInf}, dtype), 0), {NAN, NAN});
    const Tensor x = of({-kInf, 2, 2}, dtype).view({1, 3}).requires_grad_();
    const Tensor loss = cross_entropy(x, targets({0}, {1}));
    same(loss, {kInf});
    loss.backward();
    same(x.grad(), {-1, 0.5, 0.5});
  }
}

}  // namespace
}  // namespace headroom::testing
