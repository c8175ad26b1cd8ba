#include "headroom/nn/layers/norm.h"

#include "headroom/base/error.h"
#include "headroom/nn/init.h"
#include "headroom/tensor/region.h"

namespace headroom::nn {

LayerNorm::LayerNorm(const Shape& normalized,
                     const LayerNormConfig& config,
                     const TensorOptions& options)
    : normalized_(normalized), eps_(config.eps) {
  if (config.has_weight) weight = full_parameter(normalized, 1, options);
  if (config.has_bias) bias = full_parameter(normalized, 0, options);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_, weight, bias, eps_);
}

ResidualNorm LayerNorm::after_residual(const Tensor& x, const Tensor& residual) {
  const NameScope name(*this);
  return residual_layer_norm(x, residual, normalized_, weight, bias, eps_);
}

BatchNorm2d::BatchNorm2d(std::int64_t channels,
                         const BatchNormConfig& config,
                         const TensorOptions& options)
    : weight(full_parameter({channels}, 1, options)),
      bias(full_parameter({channels}, 0, options)),
      running_mean(full_buffer({channels}, 0, options)),
      running_var(full_buffer({channels}, 1, options)),
      num_batches_tracked(full_buffer({}, 0, {.dtype = DType::kI64, .device = options.device})),
      config_(config) {
  add_parameter("weight", weight);
  add_parameter("bias", bias);
  add_buffer("running_mean", running_mean);
  add_buffer("running_var", running_var);
  add_buffer("num_batches_tracked", num_batches_tracked);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (x.dim() != 4) {
    throw InvalidArgument("BatchNorm2d: [batch, channels, height, width] is wanted, not " +
                          to_string(x.shape()));
  }
  Tensor y =
      batch_norm(x,
                 weight,
                 bias,
                 running_mean,
                 running_var,
                 {.training = is_training(), .momentum = config_.momentum, .eps = config_.eps});
  if (is_training() && !tensor::Region::is_again()) {
    const tensor::LastingEffect count;
    num_batches_tracked.add_(1);
  }
  return y;
}

}  // namespace headroom::nn
