// Tensors from nothing. Their category is data, unless a CategoryScope says otherwise.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "headroom/tensor/tensor.h"

namespace headroom {

// Its elements are not set.
[[nodiscard]] Tensor empty(const Shape& shape, const TensorOptions& options = {});
[[nodiscard]] Tensor zeros(const Shape& shape, const TensorOptions& options = {});
[[nodiscard]] Tensor ones(const Shape& shape, const TensorOptions& options = {});
[[nodiscard]] Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
// Of the shape, type and device of another. An output, so its category is activation.
[[nodiscard]] Tensor empty_like(const Tensor& like);
[[nodiscard]] Tensor zeros_like(const Tensor& like);
[[nodiscard]] Tensor ones_like(const Tensor& like);

// start, start + step, ... before `end`.
[[nodiscard]] Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options);
// 0, 1, ... end - 1, as i64 unless the options say otherwise.
[[nodiscard]] Tensor arange(std::int64_t end, TensorOptions options = {.dtype = DType::kI64});

// Uniform in [0, 1), in steps that the type takes evenly (2^-11 in f16, 2^-8 in bf16); normal (of
// c64: of variance 1, half a part); integers in [low, high) that the type can hold, i64 by default.
[[nodiscard]] Tensor rand(const Shape& shape, const TensorOptions& options = {});
[[nodiscard]] Tensor randn(const Shape& shape, const TensorOptions& options = {});
[[nodiscard]] Tensor randint(std::int64_t low,
                             std::int64_t high,
                             const Shape& shape,
                             const TensorOptions& options = {.dtype = DType::kI64});

// The values in row-major order; as many as the shape says. Converted to the options' type.
[[nodiscard]] Tensor from(std::span<const double> values,
                          const Shape& shape,
                          const TensorOptions& options = {});
[[nodiscard]] Tensor from(std::span<const std::int64_t> values,
                          const Shape& shape,
                          const TensorOptions& options = {.dtype = DType::kI64});
[[nodiscard]] Tensor from(std::span<const Complex64> values,
                          const Shape& shape,
                          const TensorOptions& options = {.dtype = DType::kC64});
[[nodiscard]] inline Tensor from(std::initializer_list<double> values, TensorOptions options = {}) {
  return from(std::span(values.begin(), values.size()),
              Shape{static_cast<std::int64_t>(values.size())},
              options);
}
// One number, of no dimensions.
[[nodiscard]] Tensor scalar_tensor(Scalar value, const TensorOptions& options = {});

}  // namespace headroom
