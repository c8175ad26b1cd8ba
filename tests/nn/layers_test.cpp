// How layers start, what they allocate, and a block under autocast.
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "headroom/nn.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::EventLog;
using testing::message_of;
using testing::World;

// --- Initialisation: PyTorch's -------------------------------------------------------------------

// Even in [-bound, bound]: the ends are reached, the variance is bound^2 / 3.
void expect_uniform(const Tensor& x, double bound) {
  const Tensor values = x.detach();
  EXPECT_LE(max(abs(values)).item<double>(), bound);
  EXPECT_GT(max(values).item<double>(), 0.9 * bound);
  EXPECT_LT(min(values).item<double>(), -0.9 * bound);
  EXPECT_NEAR(mean(values).item<double>(), 0, 0.1 * bound);
  EXPECT_NEAR(var(values).item<double>(), bound * bound / 3, 0.05 * bound * bound);
}

TEST(LayerInit, LinearAndConvolutionAreEvenByFanIn) {
  manual_seed(11);
  const nn::Linear linear(100, 50);
  expect_uniform(linear.weight, 0.1);
  EXPECT_LE(max(abs(linear.bias.detach())).item<double>(), 0.1);
  const nn::Conv2d conv(8, 64, {3, 2}, {.groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{64, 4, 3, 2}));
  expect_uniform(conv.weight, 1 / std::sqrt(4 * 3 * 2.0));
  EXPECT_LE(max(abs(conv.bias.detach())).item<double>(), 1 / std::sqrt(24.0));
}

TEST(LayerInit, EmbeddingIsNormalAndNormsAreOneAndZero) {
  manual_seed(12);
  const nn::Embedding embedding(200, 30);
  EXPECT_NEAR(mean(embedding.weight.detach()).item<double>(), 0, 0.05);
  EXPECT_NEAR(var(embedding.weight.detach()).item<double>(), 1, 0.06);
  const nn::LayerNorm layer(7);
  const nn::BatchNorm2d batch(5);
  for (const Tensor& weight : {layer.weight, batch.weight, batch.running_var}) {
    EXPECT_TRUE(equal(weight.detach(), ones(weight.shape())));
  }
  for (const Tensor& bias : {layer.bias, batch.bias, batch.running_mean}) {
    EXPECT_TRUE(equal(bias.detach(), zeros(bias.shape())));
  }
}

TEST(Layers, RefuseWhatCannotWork) {
  EXPECT_EQ(message_of([] { const nn::MultiHeadAttention attention(10, 3); }),
            "MultiHeadAttention: 3 heads do not divide a width of 10");
  EXPECT_EQ(message_of([] { const nn::Conv2d conv(6, 4, 3, {.groups = 3}); }),
            "Conv2d: 3 groups do not divide 6 and 4 channels");
  nn::BatchNorm2d norm(3);
  EXPECT_EQ(message_of([&] {
              (void)norm(zeros({2, 3}));
            }),
            "BatchNorm2d: [batch, channels, height, width] is wanted, not [2, 3]");
}

TEST(Layers, BatchNormCountsItsBatches) {
  nn::BatchNorm2d norm(3);
  const Tensor x = randn({2, 3, 4, 4});
  (void)norm(x);
  (void)norm(x);
  norm.eval();
  (void)norm(x);
  EXPECT_EQ(norm.num_batches_tracked.item<int>(), 2);
}

// --- A block -------------------------------------------------------------------------------------

constexpr std::int64_t kWidth = 32;
constexpr nn::AttentionConfig kCausal{.is_causal = true};

TEST(TransformerBlock, MetaAllocatesTheSameEventForEvent) {
  const auto events = [](World::Kind kind) {
    const World world(kind);
    nn::TransformerBlock block(kWidth, 4, kCausal, world.f32());
    const EventLog log(world.allocator());
    for (const bool is_lower : {false, true}) {
      const AutocastScope autocast(kBF16, is_lower);
      const Tensor y = block(ones({2, 9, kWidth}, world.f32(true)));
      mean(y).backward();
    }
    return log.lines();
  };
  const std::vector<std::string> meta = events(World::Kind::kMeta);
  const std::vector<std::string> cpu = events(World::Kind::kReal);
  for (std::size_t i = 0; i < std::min(meta.size(), cpu.size()); ++i) {
    ASSERT_EQ(meta[i], cpu[i]) << "event " << i;
  }
  EXPECT_EQ(meta.size(), cpu.size());
}

struct BlockRun {
  std::vector<double> output;
  std::vector<Tensor> gradients;
  std::uint64_t saved_bytes = 0;
  std::uint64_t casts = 0;
};

std::uint64_t saved_by(const autograd::NodePtr& node, std::set<const autograd::Node*>& seen) {
  if (!node || !seen.insert(node.get()).second) return 0;
  std::uint64_t sum = node->saved_bytes();
  for (const auto& input : node->inputs()) sum += saved_by(input, seen);
  return sum;
}

BlockRun run_block(nn::TransformerBlock& block, const Tensor& x, bool is_lower, int times = 1) {
  block.zero_grad();
  BlockRun out;
  const std::uint64_t before = Autocast::casts();
  Tensor loss;
  {
    const AutocastScope autocast(kBF16, is_lower);
    Tensor y = block(x);
    for (int i = 1; i < times; ++i) y = block(y);
    out.output = y.detach().to(kF64).to_doubles();
    loss = mean(square(y));
  }
  std::set<const autograd::Node*> seen;
  out.saved_bytes = saved_by(autograd::grad_fn(loss), seen);
  loss.backward();
  out.casts = Autocast::casts() - before;
  for (const Tensor& parameter : block.parameters()) out.gradients.push_back(parameter.grad());
  return out;
}

double largest(const std::vector<double>& values) {
  double out = 0;
  for (const double value : values) out = std::max(out, std::abs(value));
  return out;
}

TEST(TransformerBlock, UnderBf16IsWithinAHundredthOfF32) {
  manual_seed(5);
  nn::TransformerBlock block(kWidth, 4, kCausal);
  const Tensor x = randn({2, 16, kWidth});
  const BlockRun exact = run_block(block, x, false);
  const BlockRun lower = run_block(block, x, true);
  EXPECT_EQ(exact.casts, 0U);
  double error = 0;
  for (std::size_t i = 0; i < exact.output.size(); ++i) {
    error = std::max(error, std::abs(exact.output[i] - lower.output[i]));
  }
  EXPECT_LT(error, 1e-2 * largest(exact.output));
  EXPECT_GT(error, 0) << "bf16 was not used";
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    EXPECT_EQ(lower.gradients[i].dtype(), kF32);
    const Tensor difference = abs(lower.gradients[i] - exact.gradients[i]);
    EXPECT_LT(max(difference).item<double>(),
              4e-2 * max(abs(exact.gradients[i])).item<double>() + 1e-4);
  }
}

// Eight weights and biases of linear layers, once each however often the block runs; beside them
// each op's own input: 4 of linear layers that are f32 (ln1, ln2, and none of what is bf16
// already).
TEST(TransformerBlock, CastsEachWeightOnceAStep) {
  nn::TransformerBlock block(kWidth, 4, kCausal);
  const Tensor x = randn({2, 16, kWidth});
  const std::uint64_t once = run_block(block, x, true, 1).casts;
  const std::uint64_t twice = run_block(block, x, true, 2).casts;
  const std::uint64_t thrice = run_block(block, x, true, 3).casts;
  EXPECT_EQ(twice - once, thrice - twice);
  const std::uint64_t each = twice - once;  // casts that are not of weights
  EXPECT_EQ(once - each, 8U);
}

TEST(TransformerBlock, SavesHalfOfWhatTheListsLower) {
  const nn::AttentionConfig causal{.is_causal = true};
  nn::TransformerBlock block(kWidth, 4, causal);
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kTokens = 16;
  const Tensor x = randn({kBatch, kTokens, kWidth}).requires_grad_();
  const auto saved = [&](bool is_lower) {
    std::map<std::string, std::uint64_t> out;
    const AutocastScope autocast(kBF16, is_lower);
    const Tensor y = block(x);
    std::set<const autograd::Node*> seen;
    std::vector<autograd::NodePtr> todo{autograd::grad_fn(y)};
    while (!todo.empty()) {
      const autograd::NodePtr node = todo.back();
      todo.pop_back();
      if (!node || !seen.insert(node.get()).second) continue;
      out[node->name()] += node->saved_bytes();
      for (const auto& input : node->inputs()) todo.push_back(input);
    }
    return out;
  };
  const auto exact = saved(false);
  const auto lower = saved(true);
  EXPECT_EQ(lower.at("linear") * 2, exact.at("linear"));
  EXPECT_EQ(lower.at("linear_gelu") * 2, exact.at("linear_gelu"));
  EXPECT_EQ(lower.at("layer_norm"), exact.at("layer_norm")) << "of the f32 list";
  constexpr std::uint64_t kRows = kBatch * kTokens;
  constexpr std::uint64_t kWeights = 12 * kWidth * kWidth;
  constexpr std::uint64_t kInputs = kRows * (kWidth * 3 + 4 * kWidth);
  constexpr std::uint64_t kActivated = kRows * 4 * kWidth;
  EXPECT_EQ(exact.at("linear") + exact.at("linear_gelu"), 4 * (kWeights + kInputs + kActivated));
}

// Computed again for the backward, a batch is not counted again.
TEST(BatchNorm2d, CountsABatchOnceUnderACheckpoint) {
  nn::BatchNorm2d kept(3);
  nn::BatchNorm2d again(3);
  const Tensor x = randn({4, 3, 2, 2}).requires_grad_();
  tanh(kept(x)).sum().backward();
  checkpoint([&](const Tensor& in) { return tanh(again(in)); }, x).sum().backward();
  EXPECT_EQ(again.num_batches_tracked.item<int>(), 1);
  EXPECT_EQ(again.running_mean.to_doubles(), kept.running_mean.to_doubles());
  EXPECT_EQ(again.running_var.to_doubles(), kept.running_var.to_doubles());
}

}  // namespace
}  // namespace headroom
