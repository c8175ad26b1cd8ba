#include "headroom/nn/layers/linear.h"

#include <string>

#include "headroom/base/error.h"
#include "headroom/nn/init.h"
#include "headroom/tensor/ops/index.h"
#include "headroom/tensor/ops/matmul.h"

namespace headroom::nn {
namespace {

void check_groups(std::int64_t in, std::int64_t out, std::int64_t groups) {
  if (groups > 0 && in % groups == 0 && out % groups == 0) return;
  throw InvalidArgument("Conv2d: " + std::to_string(groups) + " groups do not divide " +
                        std::to_string(in) + " and " + std::to_string(out) + " channels");
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool has_bias, const TensorOptions& options)
    : weight(uniform_parameter({out, in}, fan_in_bound(in), options)) {
  if (has_bias) bias = uniform_parameter({out}, fan_in_bound(in), options);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Tensor LinearGelu::forward(const Tensor& x) {
  return linear_gelu(x, weight, bias, gelu_ == Gelu::kTanh);
}

Conv2d::Conv2d(std::int64_t in,
               std::int64_t out,
               Size2 kernel,
               const Conv2dConfig& config,
               const TensorOptions& options)
    : options_{.stride = config.stride.sizes,
               .padding = config.padding.sizes,
               .dilation = config.dilation.sizes,
               .groups = config.groups} {
  check_groups(in, out, config.groups);
  const auto [height, width] = kernel.sizes;
  const std::int64_t each = in / config.groups;
  const double bound = fan_in_bound(each * height * width);
  weight = uniform_parameter({out, each, height, width}, bound, options);
  if (config.has_bias) bias = uniform_parameter({out}, bound, options);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

Embedding::Embedding(std::int64_t count, std::int64_t width, const TensorOptions& options)
    : weight(normal_parameter({count, width}, 1, options)) {
  add_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& index) { return embedding(weight, index); }

}  // namespace headroom::nn
