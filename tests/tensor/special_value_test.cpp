// Numbers at the ends of what ops are defined for: ties, zeros, the last number before a bound
// (#21).
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/tensor/internal/representable.h"

#include "tests/tensor/op_suite.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Lt;
using ::testing::NanSensitiveDoubleEq;
using ::testing::Pointwise;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

class SpecialValues : public ::testing::Test {
 protected:
  [[nodiscard]] TensorOptions in(DType dtype) const {
    return {.dtype = dtype, .device = world_.allocator()};
  }
  [[nodiscard]] Tensor of(const std::vector<double>& values, DType dtype = kF64) const {
    return from(values, {static_cast<std::int64_t>(values.size())}, in(dtype));
  }
  // By every element of `x`, of the sum of f(x).
  template <class F>
  [[nodiscard]] std::vector<double> gradient(const std::vector<double>& x,
                                             F&& f,
                                             DType dtype = kF64) const {
    const Tensor leaf = of(x, dtype).requires_grad_();
    const Tensor y = f(leaf);
    y.backward(ones_like(y));
    return leaf.grad().to_doubles();
  }

  World world_ = tensor_backends()[0].make();
};

// --- Random numbers ------------------------------------------------------------------------------

TEST_F(SpecialValues, RandStaysBelowOneInEveryType) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64, kC64}) {
    const Tensor x = rand({1 << 20}, in(dtype));
    for (const Tensor& part : {real(x), is_complex(dtype) ? imag(x) : x}) {
      EXPECT_GE(min(part).item<double>(), 0) << to_string(dtype);
      EXPECT_LT(max(part).item<double>(), 1) << to_string(dtype);
      EXPECT_NEAR(mean(part.to(kF64)).item<double>(), 0.5, 0.004) << to_string(dtype);
    }
  }
}

// Every multiple of 2^-11 of f16 and of 2^-8 of bf16, as often as the next.
TEST_F(SpecialValues, RandOfSixteenBitsIsEven) {
  for (const auto& [dtype, cells] : {std::pair{kF16, 2048}, std::pair{kBF16, 256}}) {
    std::vector<int> found(static_cast<std::size_t>(cells));
    for (const double value : rand({1 << 20}, in(dtype)).to_doubles()) {
      ASSERT_EQ(value * cells, std::floor(value * cells));
      ++found[static_cast<std::size_t>(value * cells)];
    }
    const double each = static_cast<double>(1 << 20) / cells;
    for (const int count : found) ASSERT_NEAR(count, each, 8 * std::sqrt(each));
  }
}

TEST_F(SpecialValues, UniformStaysInsideItsBounds) {
  const std::pair<double, double> bounds[] = {{0, 1},
                                              {-1, 1},
                                              {1, 2},
                                              {0.1, 0.3},
                                              {-0.3, -0.1},
                                              {1000, 1001},
                                              {-1001, -1000},
                                              {1, 1 + 1e-6},
                                              {0, 6e-8},
                                              {-6e-8, 0},
                                              {5, 5},
                                              {0, 0}};
  for (const DType dtype : {kF16, kBF16, kF32, kF64}) {
    for (const auto& [low, high] : bounds) {
      const Tensor x = empty({1 << 16}, in(dtype));
      x.uniform_(low, high);
      const double first = tensor::stored(dtype, low);
      const double end = tensor::stored(dtype, high);
      const double largest = max(x).item<double>();
      EXPECT_GE(min(x).item<double>(), first) << to_string(dtype) << " from " << low;
      if (first == end) {
        EXPECT_EQ(largest, first) << to_string(dtype) << " to " << high;
      } else {
        EXPECT_LT(largest, end) << to_string(dtype) << " to " << high;
      }
    }
  }
}

TEST_F(SpecialValues, RandnIsFinite) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64}) {
    const Tensor x = randn({1 << 20}, in(dtype)).to(kF64);
    EXPECT_LT(max(abs(x)).item<double>(), 10);
    EXPECT_NEAR(mean(x).item<double>(), 0, 0.01);
    EXPECT_NEAR(var(x).item<double>(), 1, 0.01);
  }
}

TEST_F(SpecialValues, RandintStaysInsideItsBoundsAfterRounding) {
  const std::pair<std::int64_t, std::int64_t> bounds[] = {
      {0, 4096}, {-4099, 4096}, {2047, 2050}, {-70, 257}, {511, 514}, {3, 4}};
  for (const DType dtype : {kF16, kBF16, kF32, kF64, kI32, kI64}) {
    for (const auto& [low, high] : bounds) {
      const Tensor x = randint(low, high, {1 << 14}, in(dtype)).to(kF64);
      EXPECT_GE(min(x).item<double>(), static_cast<double>(low)) << to_string(dtype);
      EXPECT_LT(max(x).item<double>(), static_cast<double>(high)) << to_string(dtype);
    }
  }
}

TEST_F(SpecialValues, RandintDrawsFromAllOfSixtyFourBits) {
  const Tensor x = randint(kLeast, kMost, {1000}, in(kI64));
  int below = 0;
  for (const std::int64_t value : x.to_integers()) below += static_cast<int>(value < 0);
  EXPECT_NEAR(below, 500, 100);
  EXPECT_THAT(randint(kMost - 1, kMost, {9}, in(kI64)).to_integers(), Each(kMost - 1));
  EXPECT_THAT(randint(kLeast, kLeast + 1, {9}, in(kI64)).to_integers(), Each(kLeast));
  const Tensor wide = randint(kLeast, kMost, {1000}, in(kF32));
  EXPECT_LT(max(wide).item<double>(), 0x1p63);
  EXPECT_GE(min(wide).item<double>(), -0x1p63);
}

TEST_F(SpecialValues, DropoutKeepsAsManyAsItsProbabilitySays) {
  for (const DType dtype : {kF16, kBF16, kF32}) {
    const Tensor ones_in = ones({1 << 18}, in(dtype));
    for (const double p : {0.001, 0.5, 0.999}) {
      const Tensor kept = sum(ne(dropout(ones_in, p), 0));
      EXPECT_NEAR(kept.item<double>(), (1 - p) * (1 << 18), 1500) << p;
    }
    EXPECT_EQ(sum(ne(dropout(ones_in, 1), 0)).item<double>(), 0);
    EXPECT_EQ(sum(ne(dropout(ones_in, std::nextafter(1.0, 0.0)), 0)).item<double>(), 0);
  }
}

// --- Norms ---------------------------------------------------------------------------------------

TEST_F(SpecialValues, NormInfSharesItsGradientAmongTies) {
  const auto norm_inf = [](const Tensor& x) { return norm(x, INFINITY); };
  EXPECT_THAT(gradient({3, -3, 1}, norm_inf), ElementsAre(0.5, -0.5, 0));
  EXPECT_THAT(gradient({2, 2, -2, 2}, norm_inf), ElementsAre(0.25, 0.25, -0.25, 0.25));
  EXPECT_THAT(gradient({5, 1}, norm_inf), ElementsAre(1, 0));
  EXPECT_THAT(gradient({0, 0}, norm_inf), ElementsAre(0, 0));
  EXPECT_THAT(gradient({INFINITY, 1}, norm_inf), ElementsAre(1, 0));
  for (const DType dtype : {kF32, kF16, kBF16}) {
    EXPECT_THAT(gradient({3, -3, 1}, norm_inf, dtype), ElementsAre(0.5, -0.5, 0));
  }
}

TEST_F(SpecialValues, NormInfSharesRowByRow) {
  const Tensor x = of({1, -1, 0, 2, 2, 2}).view({2, 3}).requires_grad_();
  norm(x, INFINITY, {1}).backward(of({1, 6}));
  EXPECT_THAT(x.grad().to_doubles(), ElementsAre(0.5, -0.5, 0, 2, 2, 2));
  const Tensor kept = x.detach().requires_grad_();
  norm(kept, INFINITY, {0, 1}, true).backward(of({3}).view({1, 1}));
  EXPECT_THAT(kept.grad().to_doubles(), ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST_F(SpecialValues, NormsHaveNoGradientAtZero) {
  for (const double order : {0.5, 1.0, 1.5, 2.0, 3.0, static_cast<double>(INFINITY)}) {
    const auto norm_of_order = [order](const Tensor& x) { return norm(x, order); };
    EXPECT_THAT(gradient({0, 0}, norm_of_order), ElementsAre(0, 0)) << order;
    EXPECT_EQ(gradient({0, 4}, norm_of_order)[0], 0) << order;
    EXPECT_DOUBLE_EQ(gradient({0, 4}, norm_of_order)[1], 1) << order;
  }
}

TEST_F(SpecialValues, NormsOfF16LeaveItsRangeWithTheResultOnly) {
  EXPECT_NEAR(norm(of({50, -50, 50}, kF16), 3).item<double>(), 50 * std::cbrt(3), 0.05);
  EXPECT_EQ(norm(of({60000}, kF16), 3).item<double>(), 60000);
  EXPECT_EQ(norm(of({300, 400}, kF16), 2).item<double>(), 500);
}

// --- Powers --------------------------------------------------------------------------------------

struct PowerCase {
  double base;
  double power;
  double by_base;
  double by_power;
};

// What PyTorch answers.
TEST_F(SpecialValues, PowersHaveTheGradientsThatPyTorchGives) {
  const double inf = INFINITY;
  const PowerCase cases[] = {
      {0, 0, 0, 0},
      {-0.0, 0, 0, 0},
      {0, 0.5, inf, 0},
      {0, 1, 1, 0},
      {0, 2, 0, 0},
      {0, 1e300, 0, 0},
      {0, -1, -inf, -inf},
      {0, -2, -inf, -inf},
      {1, 0, 0, 0},
      {2, 0, 0, std::log(2)},
      {2, 3, 12, 8 * std::log(2)},
      {-2, 0, 0, NAN},
      {-2, 3, 12, NAN},
      {-2, 2, -4, NAN},
      {-2, 0.5, NAN, NAN},
      {0.5, 4000, 0, 0},
      {NAN, 0, 0, NAN},
      {0, NAN, NAN, NAN},
  };
  for (const DType dtype : {kF64, kF32, kF16, kBF16}) {
    for (const PowerCase& one : cases) {
      if (dtype != kF64 && one.power == 1e300) continue;
      SCOPED_TRACE(std::to_string(one.base) + " ** " + std::to_string(one.power) + " " +
                   std::string(to_string(dtype)));
      const Tensor base = of({one.base}, dtype).requires_grad_();
      const Tensor power = of({one.power}, dtype).requires_grad_();
      pow(base, power).backward();
      const auto expect_same = [&](const Tensor& got, double wanted) {
        const double value = got.item<double>();
        if (std::isfinite(wanted)) {
          EXPECT_NEAR(value, wanted, (dtype == kF64 ? 1e-14 : 1e-2) * std::abs(wanted));
        } else {
          EXPECT_THAT(value, NanSensitiveDoubleEq(wanted));
        }
      };
      expect_same(base.grad(), one.by_base);
      expect_same(power.grad(), one.by_power);
      const Tensor alone = of({one.base}, dtype).requires_grad_();
      pow(alone, one.power).backward();
      expect_same(alone.grad(), one.by_base);
    }
  }
}

// --- Ranges --------------------------------------------------------------------------------------

TEST_F(SpecialValues, ArangeCountsWholeNumbersExactly) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;  // the first that an f64 does not have
  EXPECT_THAT(arange(large, large + 3, 1, in(kI64)).to_integers(),
              ElementsAre(large, large + 1, large + 2));
  EXPECT_THAT(arange(kMost - 2, kMost, 1, in(kI64)).to_integers(),
              ElementsAre(kMost - 2, kMost - 1));
  EXPECT_THAT(arange(kLeast, kMost, kMost, in(kI64)).to_integers(),
              ElementsAre(kLeast, -1, kMost - 1));
  EXPECT_THAT(arange(kMost, kLeast, kLeast, in(kI64)).to_integers(), ElementsAre(kMost, -1));
  EXPECT_THAT(arange(5, 0, -2, in(kI64)).to_integers(), ElementsAre(5, 3, 1));
  EXPECT_EQ(arange(7, 7, kMost, in(kI64)).numel(), 0);
}

}  // namespace
}  // namespace headroom::testing
