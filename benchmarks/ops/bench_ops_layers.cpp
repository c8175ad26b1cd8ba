#include <cmath>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "headroom/tensor.h"
#include "headroom/tensor/tape.h"

#include "benchmarks/ops/bench_ops_conv.h"
#include "benchmarks/ops/bench_ops_duel.h"

namespace headroom::cli {
namespace {

// Runs `forward` with a graph and back; gradients are dropped, as a step would at its end.
template <class Forward>
OpWork with_backward(std::vector<Tensor> leaves, const Tensor& grad, Forward forward) {
  return [leaves = std::move(leaves), grad, forward] {
    const GradModeScope record(true);
    forward().backward(grad);
    for (const Tensor& leaf : leaves) leaf.set_grad({});
  };
}

// --- Convolutions
// ---------------------------------------------------------------------------------

Duel convolution_duel(const std::string& name, const plain::Conv& c, bool is_both) {
  const TensorOptions here{.device = "cpu"};
  const Tensor x = rand({c.batch, c.in, c.size, c.size}, here);
  const Tensor w = rand({c.out, c.in, c.kernel, c.kernel}, here);
  const Shape shape{c.batch, c.out, c.out_size(), c.out_size()};
  const Tensor grad = rand(shape, here);
  const Tensor outputs[] = {empty(shape, here), empty(x.shape(), here), empty(w.shape(), here)};
  const auto arrays = std::make_shared<plain::ConvArrays>();
  arrays->x = x.data<float>();
  arrays->weight = w.data<float>();
  arrays->grad = grad.data<float>();
  arrays->y = outputs[0].data<float>();
  arrays->x_grad = outputs[1].data<float>();
  arrays->weight_grad = outputs[2].data<float>();
  const std::int64_t columns = c.is_pixels() ? 0 : c.window() * c.out_size() * c.out_size();
  arrays->columns.resize(static_cast<std::size_t>(columns));
  const Conv2dOptions options{.stride = {c.stride, c.stride},
                              .padding = {c.padding(), c.padding()}};
  const auto forward = [x, w, options] { return conv2d(x, w, {}, options); };
  Duel duel{
      .name = name,
      .ours = [forward] { (void)forward(); },
      .plain =
          [c, arrays, outputs = std::vector<Tensor>(outputs, outputs + 3), x, w, grad, is_both] {
            plain::conv_forward(c, *arrays);
            if (is_both) plain::conv_backward(c, *arrays);
          },
      .wanted = 0.8,
      .amount = c.operations() * (is_both ? 3 : 1),
      .least_repeats = 2};
  if (is_both) {
    for (const Tensor& leaf : {x, w}) leaf.requires_grad_();
    duel.ours = with_backward({x, w}, grad, forward);
  }
  return duel;
}

// The distinct ones of ResNet-50.
std::vector<plain::Conv> resnet_convolutions(int threads) {
  std::vector<plain::Conv> out;
  const auto add = [&](std::int64_t in,
                       std::int64_t size,
                       std::int64_t outs,
                       std::int64_t kernel,
                       std::int64_t stride = 1) {
    out.push_back({.batch = 4,
                   .in = in,
                   .size = size,
                   .out = outs,
                   .kernel = kernel,
                   .stride = stride,
                   .threads = threads});
  };
  add(3, 224, 64, 7, 2);
  add(64, 56, 64, 1);
  add(256, 56, 64, 1);
  std::int64_t size = 56;
  for (std::int64_t width = 64; width <= 512; width *= 2, size /= 2) {
    add(width, size, width, 3);
    add(width, size, 4 * width, 1);
    if (width == 512) break;
    add(4 * width, size, 2 * width, 1);
    add(2 * width, size, 2 * width, 3, 2);
    add(4 * width, size, 8 * width, 1, 2);
    add(8 * width, size / 2, 2 * width, 1);
  }
  return out;
}

// --- Attention
// ------------------------------------------------------------------------------------

// Twelve heads of 64, as GPT-2 has, beside the ops it can be composed of.
Duel attention_duel(const std::string& name, std::int64_t tokens, bool is_causal, bool is_both) {
  constexpr std::int64_t kHeads = 12;
  constexpr std::int64_t kWidth = 64;
  const TensorOptions here{.device = "cpu"};
  const Shape shape{1, kHeads, tokens, kWidth};
  const std::vector<Tensor> in{randn(shape, here), randn(shape, here), randn(shape, here)};
  const Tensor grad = randn(shape, here);
  const Tensor at = arange(tokens, {.device = "cpu"});
  const Tensor never = full({tokens, tokens}, -std::numeric_limits<double>::infinity(), here);
  const Tensor mask = where(gt(at.unsqueeze(0), at.unsqueeze(1)), never, 0);
  const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
  const auto fused = [in, is_causal] {
    return scaled_dot_product_attention(in[0], in[1], in[2], {}, {.causal = is_causal});
  };
  const auto composed = [in, mask, is_causal, scale] {
    const Tensor scores = matmul(in[0] * scale, in[1].transpose(-2, -1));
    return matmul(softmax(is_causal ? scores + mask : scores, -1), in[2]);
  };
  // Of the whole product, whether or not half of it is left out.
  const double products = is_both ? 6 : 2;
  Duel duel{.name = name,
            .ours = [fused] { (void)fused(); },
            .plain = [composed] { (void)composed(); },
            .wanted = 1,
            .amount = products * 2 * static_cast<double>(kHeads * tokens * tokens * kWidth),
            .least_repeats = 3};
  if (is_both) {
    for (const Tensor& leaf : in) leaf.requires_grad_();
    duel.ours = with_backward(in, grad, fused);
    duel.plain = with_backward(in, grad, composed);
  }
  return duel;
}

}  // namespace

std::vector<DuelMaker> convolution_duels(int threads) {
  std::vector<DuelMaker> out;
  for (const plain::Conv& c : resnet_convolutions(threads)) {
    const std::string name = fmt::format("conv {0} x {0} of {1} x {2} x {2} to {3}{4}",
                                         c.kernel,
                                         c.in,
                                         c.size,
                                         c.out,
                                         c.stride == 1 ? "" : fmt::format(" / {}", c.stride));
    for (const bool is_both : {false, true}) {
      out.push_back({name + (is_both ? ", and back" : ""), [c, is_both](const std::string& own) {
                       return convolution_duel(own, c, is_both);
                     }});
    }
  }
  return out;
}

std::vector<DuelMaker> attention_duels() {
  std::vector<DuelMaker> out;
  for (const std::int64_t tokens : {256, 512, 1024}) {
    for (const bool is_causal : {false, true}) {
      for (const bool is_both : {false, true}) {
        out.push_back({fmt::format("attention of {} tokens{}{}",
                                   tokens,
                                   is_causal ? ", causal" : "",
                                   is_both ? ", and back" : ""),
                       [=](const std::string& own) {
                         return attention_duel(own, tokens, is_causal, is_both);
                       }});
      }
    }
  }
  return out;
}

}  // namespace headroom::cli
