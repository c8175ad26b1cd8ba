// What the table cannot say of layers: gradients of shapes too large for finite differences, states
// they change, and bounds on what they allocate.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/workspace.h"
#include "headroom/tensor/tape.h"

#include "tests/tensor/op_suite.h"

namespace headroom::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

class Layers : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor random(const Shape& shape, DType dtype = kF64) const {
    return randn(shape, {.dtype = dtype, .device = world_.allocator()});
  }
  [[nodiscard]] Tensor leaf(const Shape& shape, DType dtype = kF64) const {
    return random(shape, dtype).requires_grad_();
  }
  [[nodiscard]] Tensor of(const std::vector<double>& values, DType dtype = kF64) const {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    return from(values, shape, {.dtype = dtype, .device = world_.allocator()});
  }

  World world_ = tensor_backends()[0].make();
};

double dot(const Tensor& a, const Tensor& b) {
  const GradModeScope no_grad(false);
  return (a * b).sum().item<double>();
}

// y is linear in x and in the weight, so <y, g> = <x, dx> = <w, dw>.
void expect_adjoint(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  const Tensor y = conv2d(x, w, {}, options);
  const Tensor g = randn(y.shape(), {.dtype = y.dtype(), .device = y.storage().allocator()});
  y.backward(g);
  const double wanted = dot(y, g);
  const double allowed = 1e-9 * std::sqrt(static_cast<double>(y.numel() * w.numel()));
  EXPECT_NEAR(dot(x, x.grad()), wanted, allowed);
  EXPECT_NEAR(dot(w, w.grad()), wanted, allowed);
}

TEST_F(Layers, ConvolutionsInManyTilesHaveTheirGradients) {
  expect_adjoint(leaf({2, 40, 40, 37}), leaf({3, 40, 3, 3}), {.padding = {1, 1}});
  expect_adjoint(leaf({1, 60, 47, 61}),
                 leaf({4, 30, 5, 3}),
                 {.stride = {1, 2}, .padding = {0, 2}, .dilation = {2, 1}, .groups = 2});
  expect_adjoint(leaf({2, 24, 31, 30}), leaf({48, 1, 3, 3}), {.padding = {1, 1}, .groups = 24});
}

TEST_F(Layers, AConvolutionsWorkspaceIsBoundedWhateverTheBatch) {
  const World meta = tensor_backends()[0].make_meta();
  class Largest final : public memory::EventSink {
   public:
    void record(const memory::Event& event) noexcept override {
      if (event.category == memory::Category::kWorkspace) bytes = std::max(bytes, event.size_bytes);
    }
    std::uint64_t bytes = 0;
  };
  const TensorOptions options{.device = meta.allocator(), .requires_grad = true};
  const Tensor x = zeros({8, 64, 56, 56}, options);
  const Tensor w = zeros({64, 64, 3, 3}, options);
  Largest largest;
  meta.allocator().add_sink(largest);
  const Tensor y = conv2d(x, w, {}, {.padding = {1, 1}});
  y.backward(ones_like(y));
  meta.allocator().remove_sink(largest);
  EXPECT_GT(largest.bytes, 0U);
  EXPECT_LE(largest.bytes, 2 * kMiB);
}

// Values and gradients of strides, paddings and windows near the end of 64 (32) bits are those of
// the smallest ones that see the same pixels (#21).
TEST_F(Layers, SizesFarBeyondAnImageMeetTheSamePixels) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const Tensor values = random({2, 4, 5, 6});
  const auto expect_same = [&](const auto& far, const auto& near) {
    const Tensor a = values.clone().requires_grad_();
    const Tensor b = values.clone().requires_grad_();
    const Tensor y = far(a);
    const Tensor wanted = near(b);
    ASSERT_EQ(y.shape(), wanted.shape());
    y.backward(ones_like(y));
    wanted.backward(ones_like(wanted));
    EXPECT_TRUE(equal(y, wanted));
    EXPECT_TRUE(equal(a.grad(), b.grad()));
  };
  for (const std::int64_t groups : {1, 4}) {
    const Tensor w = random({4, 4 / groups, 3, 3});
    const auto conv = [&](std::int64_t stride, std::int64_t padding) {
      return [&w, stride, padding, groups](const Tensor& x) {
        const Conv2dOptions options{
            .stride = {stride, stride}, .padding = {padding, padding}, .groups = groups};
        return conv2d(x, w, {}, options);
      };
    };
    expect_same(conv(kFar, 1), conv(100, 1));
    // Only the middle one of three windows a side meets pixels.
    expect_same(conv(std::int64_t{1} << 61, std::int64_t{1} << 61), conv(40, 40));
  }
  const auto pool = [](auto op, const Pool2dOptions& options) {
    return [op, options](const Tensor& x) { return op(x, options); };
  };
  for (const auto op : {max_pool2d, avg_pool2d}) {
    expect_same(pool(op, {.kernel = {2, 3}, .stride = {kFar, kFar}, .padding = {1, 1}}),
                pool(op, {.kernel = {2, 3}, .stride = {100, 100}, .padding = {1, 1}}));
  }
  expect_same(
      pool(max_pool2d,
           {.kernel = {1, 2147483646}, .stride = {1, 2147483646}, .padding = {0, 1073741823}}),
      pool(max_pool2d, {.kernel = {1, 100}, .stride = {1, 100}, .padding = {0, 50}}));
}

// --- Norms
// ----------------------------------------------------------------------------------------

TEST_F(Layers, BatchNormMovesRunningStatisticsInTrainingOnly) {
  const Tensor x = of({1, 2, 3, 6}).view({4, 1});  // mean 3, variance 14 / 4, unbiased 14 / 3
  const Tensor mean = of({1});
  const Tensor var = of({2});
  (void)batch_norm(x, {}, {}, mean, var, {.training = false});
  EXPECT_EQ(mean.item<double>(), 1);
  EXPECT_EQ(mean.version(), 0U);
  (void)batch_norm(x, {}, {}, mean, var, {.momentum = 0.25});
  EXPECT_DOUBLE_EQ(mean.item<double>(), 0.75 * 1 + 0.25 * 3);
  EXPECT_DOUBLE_EQ(var.item<double>(), 0.75 * 2 + 0.25 * 14 / 3);
  EXPECT_EQ(mean.version(), 1U);
  EXPECT_EQ(var.version(), 1U);
}

TEST_F(Layers, NormsOfBFloat16TakeParametersInF32) {
  const Tensor x = leaf({4, 6}, kBF16);
  const Tensor w = leaf({6}, kF32);
  const Tensor b = leaf({6}, kF32);
  const Tensor y = layer_norm(x, {6}, w, b);
  EXPECT_EQ(y.dtype(), kBF16);
  y.backward(ones_like(y));
  EXPECT_EQ(w.grad().dtype(), kF32);
  EXPECT_EQ(x.grad().dtype(), kBF16);
  EXPECT_THAT(b.grad().to_doubles(), ::testing::Each(4.0));
}

TEST_F(Layers, ALargeMeanCostsNoDigitsOfTheVariance) {
  const Tensor x = random({3, 1000}, kF32);
  const Tensor y = layer_norm(x, {1000});
  const Tensor far = layer_norm((x.to(kF64) + 4096.0).to(kF32), {1000});
  // What is left is the rounding of x itself, 2^-12 at 4096.
  EXPECT_THAT(far.to_doubles(), Pointwise(DoubleNear(1e-3), y.to_doubles()));
  const Tensor same = layer_norm(full({1, 1000}, 1e6, {.device = world_.allocator()}), {1000});
  EXPECT_THAT(same.to_doubles(), ::testing::Each(0.0));
}

// --- Dropout
// --------------------------------------------------------------------------------------

TEST_F(Layers, DropoutDrawsTheSameFromTheSameState) {
  const Tensor x = ones_like(random({5000}));
  Generator& generator = default_generator(x.device());
  const Generator::State before = generator.state();
  const std::vector<double> first = dropout(x, 0.4).to_doubles();
  const Generator::State after = generator.state();
  EXPECT_EQ(after.offset, before.offset + 1250);
  EXPECT_NE(dropout(x, 0.4).to_doubles(), first);
  generator.set_state(before);
  EXPECT_EQ(dropout(x.to(kBF16).to(kF64), 0.4).to_doubles(), first);
  const auto kept = std::count_if(first.begin(), first.end(), [](double y) { return y != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / 5000, 0.6, 0.03);
}

TEST_F(Layers, DropoutAdvancesTheGeneratorOfMetaEqually) {
  const World meta = tensor_backends()[0].make_meta();
  const Tensor there = zeros({1001}, {.device = meta.allocator()});
  const Generator::State before = default_generator(there.device()).state();
  (void)dropout(there, 0.5);
  (void)dropout(there, 0.5, /*training=*/false);
  (void)dropout(there, 0);
  EXPECT_EQ(default_generator(there.device()).state().offset, before.offset + 251);
}

TEST_F(Layers, WhatIsAtABoundOfHardtanhHasNoGradient) {
  const Tensor x = of({-1, 0, 3, 6, 7}).requires_grad_();
  relu6(x).backward(of({1, 1, 1, 1, 1}));
  EXPECT_THAT(x.grad().to_doubles(), ::testing::ElementsAre(0, 0, 1, 0, 0));
}

// --- Attention
// ------------------------------------------------------------------------------------

struct Heads {
  Tensor q, k, v;
};

Tensor composed(const Heads& in, const Tensor& added) {
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.size(-1)));
  return matmul(softmax(matmul(in.q * scale, in.k.transpose(-2, -1)) + added, -1), in.v);
}

// Both ways to the same leaves, which are then left without gradients.
void expect_same_gradients(const Heads& in, const Tensor& ours, const Tensor& plain) {
  EXPECT_THAT(ours.to_doubles(), Pointwise(DoubleNear(1e-12), plain.to_doubles()));
  const Tensor g = randn(ours.shape(), {.dtype = kF64, .device = ours.storage().allocator()});
  ours.backward(g);
  std::vector<std::vector<double>> gradients;
  for (const Tensor* leaf : {&in.q, &in.k, &in.v}) {
    gradients.push_back(leaf->grad().to_doubles());
    leaf->set_grad({});
  }
  plain.backward(g);
  std::size_t at = 0;
  for (const Tensor* leaf : {&in.q, &in.k, &in.v}) {
    EXPECT_THAT(leaf->grad().to_doubles(), Pointwise(DoubleNear(1e-12), gradients[at++]));
    leaf->set_grad({});
  }
}

TEST_F(Layers, AttentionOverManyTilesHasItsGradients) {
  const std::int64_t tokens = 2 * tensor::cpu::kAttentionKeys + 17;
  const Heads in{leaf({2, tokens, 5}), leaf({2, tokens, 5}), leaf({2, tokens, 3})};
  const Tensor at = arange(tokens, {.device = world_.allocator()});
  const Tensor never = full({tokens, tokens},
                            -std::numeric_limits<double>::infinity(),
                            {.dtype = kF64, .device = world_.allocator()});
  const Tensor future = where(gt(at.unsqueeze(0), at.unsqueeze(1)), never, 0);
  expect_same_gradients(in,
                        scaled_dot_product_attention(in.q, in.k, in.v, {}, {.causal = true}),
                        composed(in, future));
  const Tensor bias = random({2, 1, tokens});
  expect_same_gradients(
      in, scaled_dot_product_attention(in.q, in.k, in.v, bias), composed(in, bias));
}

TEST_F(Layers, AQueryWithNoKeyLeftGetsZeroAndNoGradient) {
  const Heads in{leaf({1, 2, 3}), leaf({1, 4, 3}), leaf({1, 4, 3})};
  const Tensor mask = of({1, 0}).view({2, 1}).to(kBool);
  const Tensor y = scaled_dot_product_attention(in.q, in.k, in.v, mask);
  EXPECT_THAT(y[0][1].to_doubles(), ::testing::Each(0.0));
  y.backward(ones_like(y));
  EXPECT_THAT(in.q.grad()[0][1].to_doubles(), ::testing::Each(0.0));
  EXPECT_THAT(in.k.grad().to_doubles(),
              ::testing::Each(::testing::Truly([](double g) { return std::isfinite(g); })));
}

TEST_F(Layers, AttentionPassesOverTilesThatAMaskLeavesEmpty) {
  const std::int64_t keys = 3 * tensor::cpu::kAttentionKeys;
  const std::int64_t skipped = tensor::cpu::kAttentionKeys + 1;
  const Heads in{leaf({1, 3, 4}, kF32), leaf({1, keys, 4}, kF32), leaf({1, keys, 4}, kF32)};
  const Tensor mask = ge(arange(keys, {.device = world_.allocator()}), skipped);
  // Scores in the hundreds, which would overflow without the largest taken off.
  const Tensor ours = scaled_dot_product_attention(in.q, in.k, in.v, mask, {.scale = 100});
  const auto rest = [&](const Tensor& x) { return x.narrow(1, skipped, keys - skipped); };
  const Tensor part =
      scaled_dot_product_attention(in.q, rest(in.k), rest(in.v), {}, {.scale = 100});
  EXPECT_THAT(ours.to_doubles(), Pointwise(DoubleNear(1e-4), part.to_doubles()));
  ours.backward(ones_like(ours));
  EXPECT_THAT(in.v.grad().narrow(1, 0, skipped).to_doubles(), ::testing::Each(0.0));
  EXPECT_NEAR(in.v.grad().sum().item<double>(), 12, 1e-3);  // probabilities of each query add to 1
}

TEST_F(Layers, AttentionReadsHeadsThroughATransposeWithoutACopy) {
  const Tensor x = random({2, 7, 3, 4});  // batch, tokens, heads, d
  const Tensor heads = x.transpose(1, 2);
  EventLog log(world_.allocator());
  const Tensor y = scaled_dot_product_attention(heads, heads, heads);
  EXPECT_EQ(log.count(memory::Action::kAlloc), 2);  // the output and tiles
  const Tensor dense = heads.contiguous();
  EXPECT_EQ(y.to_doubles(), scaled_dot_product_attention(dense, dense, dense).to_doubles());
}

TEST_F(Layers, AttentionAllocatesNothingQuadraticInTheTokens) {
  constexpr std::int64_t kTokens = 8192;
  const World meta = tensor_backends()[0].make_meta();
  class Sizes final : public memory::EventSink {
   public:
    void record(const memory::Event& event) noexcept override {
      if (event.action == memory::Action::kAlloc) largest = std::max(largest, event.size_bytes);
    }
    std::uint64_t largest = 0;
  };
  for (const DType dtype : {kF32, kBF16}) {
    const TensorOptions options{.dtype = dtype, .device = meta.allocator(), .requires_grad = true};
    const Shape shape{1, 12, kTokens, 64};
    const Heads in{empty(shape, options), empty(shape, options), empty(shape, options)};
    Sizes sizes;
    meta.allocator().add_sink(sizes);
    const Tensor y = scaled_dot_product_attention(in.q, in.k, in.v, {}, {.causal = true});
    y.backward(ones_like(y));
    meta.allocator().remove_sink(sizes);
    // 12 x 8192 x 64 numbers in f32 are 24 MiB; one head's scores would be 256 MiB.
    EXPECT_EQ(in.q.grad().size_bytes(), in.q.size_bytes());
    EXPECT_LE(sizes.largest, 32 * kMiB) << to_string(dtype);
  }
}

// --- Threads
// --------------------------------------------------------------------------------------

// Keeps the threads that kernels share at something else, so that ops run on their caller alone.
class BusyPool {
 public:
  BusyPool() {
    holder_ = std::jthread([this] {
      tensor::cpu::ThreadPool::shared().run(
          1,
          [](void* self, std::int64_t) {
            auto* own = static_cast<BusyPool*>(self);
            own->state_.store(1);
            own->state_.notify_all();
            own->state_.wait(1);
          },
          this);
    });
    state_.wait(0);
  }
  ~BusyPool() {
    state_.store(2);
    state_.notify_all();
  }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;

 private:
  std::atomic<int> state_{0};
  std::jthread holder_;
};

TEST_F(Layers, GiveTheSameBitsWithThreadsAndWithout) {
  const Tensor image = random({2, 16, 40, 40}, kF32);
  const Tensor weight = random({8, 16, 3, 3}, kF32);
  const Tensor depth = random({16, 1, 3, 3}, kF32);
  const Tensor heads = random({2, 2, 200, 16}, kF32);
  const std::vector<std::function<Tensor(const Tensor&)>> ops{
      [&](const Tensor& x) {
        return conv2d(x, weight, {}, {.padding = {1, 1}});
      },
      [&](const Tensor& x) { return conv2d(x, depth, {}, {.groups = 16}); },
      [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}});
      },
      [](const Tensor& x) { return layer_norm(x, {40}); },
      [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}); },
      [&](const Tensor& x) {
        return scaled_dot_product_attention(heads, heads, heads + x[0][0][0][0], {}, {});
      }};
  const auto run = [&](const std::function<Tensor(const Tensor&)>& op) {
    const Tensor x = image.clone().requires_grad_();
    const Tensor y = op(x);
    y.backward(ones_like(y));
    return std::pair(y.to_doubles(), x.grad().to_doubles());
  };
  for (const auto& op : ops) {
    const auto together = run(op);
    const BusyPool busy;
    EXPECT_EQ(run(op), together);
  }
}

}  // namespace
}  // namespace headroom::testing
