// Layers that normalise. Statistics are kept in f32 (f64 for f64); weight and bias have the type of
// x, or f32 where x is of 16 bits.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// Over the last dimensions, `normalized`, which are the shape of weight and bias. Saved: x, and the
// mean and 1 / deviation of each row.
[[nodiscard]] Tensor layer_norm(const Tensor& x,
                                const Shape& normalized,
                                const Tensor& weight = {},
                                const Tensor& bias = {},
                                double eps = 1e-5);

struct ResidualNorm {
  Tensor sum{};
  Tensor normed{};
};
// x + residual, and layer_norm of that, in one launch where the backend has one. Recorded, and
// saved, as the two ops.
[[nodiscard]] ResidualNorm residual_layer_norm(const Tensor& x,
                                               const Tensor& residual,
                                               const Shape& normalized,
                                               const Tensor& weight = {},
                                               const Tensor& bias = {},
                                               double eps = 1e-5);

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // the part of a batch in the running statistics
  double eps = 1e-5;
};

// Of each channel of [batch, channels, ...]. In training by the statistics of the batch, towards
// which the running ones are moved in place; otherwise by the running ones. Any operand but x may
// be left out; without running statistics the batch's are used. Saved: x, and the mean and 1 /
// deviation of each channel.
[[nodiscard]] Tensor batch_norm(const Tensor& x,
                                const Tensor& weight,
                                const Tensor& bias,
                                const Tensor& running_mean,
                                const Tensor& running_var,
                                const BatchNormOptions& options = {});

}  // namespace headroom
