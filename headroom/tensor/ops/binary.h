// Arithmetic of two tensors, or a tensor and a number, element by element, with broadcasting.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// a + alpha * b.
[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b, Scalar alpha = 1);
[[nodiscard]] Tensor add(const Tensor& a, Scalar b);
[[nodiscard]] Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha = 1);
[[nodiscard]] Tensor sub(const Tensor& a, Scalar b);
[[nodiscard]] Tensor sub(Scalar a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, Scalar b);
// Of integers: f32.
[[nodiscard]] Tensor div(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor div(const Tensor& a, Scalar b);
[[nodiscard]] Tensor div(Scalar a, const Tensor& b);
[[nodiscard]] Tensor pow(const Tensor& base, const Tensor& power);
[[nodiscard]] Tensor pow(const Tensor& base, Scalar power);
// Without gradients: they are steps.
[[nodiscard]] Tensor floor_divide(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor remainder(const Tensor& a, const Tensor& b);

[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

}  // namespace headroom
