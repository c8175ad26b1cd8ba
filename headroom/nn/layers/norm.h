// Layers that normalise.
#pragma once

#include <cstdint>

#include "headroom/nn/module.h"
#include "headroom/tensor/ops/norm.h"

namespace headroom::nn {

struct LayerNormConfig {
  double eps = 1e-5;
  bool has_weight = true;
  bool has_bias = true;
};

// Over the last dimensions, which are `normalized`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized,
                     const LayerNormConfig& config = {},
                     const TensorOptions& options = {});
  explicit LayerNorm(std::int64_t width,
                     const LayerNormConfig& config = {},
                     const TensorOptions& options = {})
      : LayerNorm(Shape{width}, config, options) {}
  Tensor forward(const Tensor& x) override;
  // x + residual and its norm, in one launch where the backend has one. Under the layer's name.
  [[nodiscard]] ResidualNorm after_residual(const Tensor& x, const Tensor& residual);

  Tensor weight;
  Tensor bias;

 private:
  Shape normalized_;
  double eps_;
};

struct BatchNormConfig {
  double eps = 1e-5;
  double momentum = 0.1;  // the part of a batch in the running statistics
};

// Over all but dimension 1. In training by the statistics of the batch, afterwards by running ones.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels,
                       const BatchNormConfig& config = {},
                       const TensorOptions& options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  Tensor num_batches_tracked;  // i64, one element

 private:
  BatchNormConfig config_;
};

}  // namespace headroom::nn
