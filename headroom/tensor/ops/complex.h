// Complex numbers (c64: two f32). They add, multiply, divide, take part in sums and matrix
// products, and have gradients as PyTorch's: of a real loss L by z = x + iy it is dL/dx + i dL/dy,
// the direction of steepest ascent. What orders numbers, rounds them or wants a real one refuses
// them.
//
//   Tensor h = randn({64, 16}, {.dtype = kC64});
//   Tensor gram = adjoint_matmul(h, h);               // 16 x 16, no copy of h (ops/matmul.h)
//   Tensor power = mean(square(abs(h)));
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// Of f32 parts.
[[nodiscard]] Tensor complex(const Tensor& re, const Tensor& im);
// Copies, not views as in PyTorch. The real part of something real is itself.
[[nodiscard]] Tensor real(const Tensor& x);
[[nodiscard]] Tensor imag(const Tensor& x);
// Itself where it is real.
[[nodiscard]] Tensor conj(const Tensor& x);
// The conjugate of the last two dimensions turned; a view where it is real.
[[nodiscard]] Tensor adjoint(const Tensor& x);

}  // namespace headroom
