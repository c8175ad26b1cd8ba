// Values to start from: as PyTorch's layers, by default.
#pragma once

#include <cstdint>

#include "headroom/tensor/tensor.h"

namespace headroom::nn {

// Parameters are of category parameter and need a gradient.
[[nodiscard]] Tensor uniform_parameter(const Shape& shape, double bound, TensorOptions options);
[[nodiscard]] Tensor normal_parameter(const Shape& shape, double deviation, TensorOptions options);
[[nodiscard]] Tensor full_parameter(const Shape& shape, double value, TensorOptions options);
// Of category parameter too, without a gradient.
[[nodiscard]] Tensor full_buffer(const Shape& shape, double value, TensorOptions options);

// 1 / sqrt(fan_in): PyTorch's bound for weights and biases of linear and convolutional layers.
[[nodiscard]] double fan_in_bound(std::int64_t fan_in);

}  // namespace headroom::nn
