// Shared by ops of two operands: the shape and type of the result, and gradients in the backward.
#pragma once

#include <string_view>

#include "headroom/tensor/internal/op.h"

namespace headroom::tensor {

// The type of a result of both. A tensor of no dimensions counts as a number beside one that has
// some: it does not widen it within a kind, as in PyTorch.
[[nodiscard]] DType result_type(const Tensor& a, const Tensor& b);

struct ResultSpec {
  Shape shape{};
  DType dtype = DType::kF32;
};
// Checks devices and shapes.
[[nodiscard]] ResultSpec join(std::string_view op, const Tensor& a, const Tensor& b);

// Where a gradient goes back to: the shape and type of the operand.
struct GradientTarget {
  explicit GradientTarget(const Tensor& of) : shape(of.shape()), dtype(of.dtype()) {}
  [[nodiscard]] Tensor take(const Tensor& grad) const {
    return gradient_as(sum_to(grad, shape), dtype);
  }

  Shape shape;
  DType dtype;
};

}  // namespace headroom::tensor
