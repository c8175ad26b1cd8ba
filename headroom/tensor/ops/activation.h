// Activations with a parameter; those without are in unary.h. Of floating tensors.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// x above 0, else slope * x. Saved: the output, or x for a slope below 0.
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double slope = 0.01);
// x above 0, else alpha * (exp(x) - 1), for alpha of at least 0. Saved: the output.
[[nodiscard]] Tensor elu(const Tensor& x, double alpha = 1);
// As clamp, but what is at a bound has no gradient, as in PyTorch. Saved: one bit an element.
[[nodiscard]] Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);
[[nodiscard]] Tensor relu6(const Tensor& x);  // hardtanh between 0 and 6

}  // namespace headroom
