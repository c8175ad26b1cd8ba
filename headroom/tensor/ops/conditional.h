// Choosing between values, element by element. What was chosen is saved for backward as one bit an
// element, not as the operands.
#pragma once

#include <optional>

#include "headroom/tensor/tensor.h"

namespace headroom {

// condition ? a : b, for a bool condition.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
[[nodiscard]] Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
// NaN wins. Of equal elements the first operand's has the gradient.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b);
// At least one bound. NaN stays.
[[nodiscard]] Tensor clamp(const Tensor& x,
                           std::optional<Scalar> low,
                           std::optional<Scalar> high = std::nullopt);

}  // namespace headroom
