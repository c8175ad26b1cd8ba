// Comparisons and logic: bool tensors, without gradients. Any element but 0 counts as true.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

[[nodiscard]] Tensor eq(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor ne(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor lt(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor le(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor gt(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor ge(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor eq(const Tensor& a, Scalar b);
[[nodiscard]] Tensor ne(const Tensor& a, Scalar b);
[[nodiscard]] Tensor lt(const Tensor& a, Scalar b);
[[nodiscard]] Tensor le(const Tensor& a, Scalar b);
[[nodiscard]] Tensor gt(const Tensor& a, Scalar b);
[[nodiscard]] Tensor ge(const Tensor& a, Scalar b);
[[nodiscard]] Tensor logical_and(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_or(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_xor(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_not(const Tensor& x);
[[nodiscard]] Tensor isnan(const Tensor& x);

// Same shape, type and values. Waits for the current stream.
[[nodiscard]] bool equal(const Tensor& a, const Tensor& b);

}  // namespace headroom
