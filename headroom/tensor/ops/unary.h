// Functions of one tensor, element by element. Integers become f32 where the result is not whole.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

[[nodiscard]] Tensor neg(const Tensor& x);
[[nodiscard]] Tensor abs(const Tensor& x);
[[nodiscard]] Tensor sign(const Tensor& x);
[[nodiscard]] Tensor square(const Tensor& x);
[[nodiscard]] Tensor floor(const Tensor& x);
[[nodiscard]] Tensor ceil(const Tensor& x);
[[nodiscard]] Tensor round(const Tensor& x);  // halves to even
[[nodiscard]] Tensor trunc(const Tensor& x);
[[nodiscard]] Tensor exp(const Tensor& x);
[[nodiscard]] Tensor expm1(const Tensor& x);
[[nodiscard]] Tensor log(const Tensor& x);
[[nodiscard]] Tensor log1p(const Tensor& x);
[[nodiscard]] Tensor log2(const Tensor& x);
[[nodiscard]] Tensor sqrt(const Tensor& x);
[[nodiscard]] Tensor rsqrt(const Tensor& x);
[[nodiscard]] Tensor reciprocal(const Tensor& x);
[[nodiscard]] Tensor sin(const Tensor& x);
[[nodiscard]] Tensor cos(const Tensor& x);
[[nodiscard]] Tensor tanh(const Tensor& x);
[[nodiscard]] Tensor sigmoid(const Tensor& x);
[[nodiscard]] Tensor erf(const Tensor& x);
[[nodiscard]] Tensor relu(const Tensor& x);
[[nodiscard]] Tensor gelu(const Tensor& x);       // by erf
[[nodiscard]] Tensor gelu_tanh(const Tensor& x);  // PyTorch's approximate="tanh"
[[nodiscard]] Tensor silu(const Tensor& x);
[[nodiscard]] Tensor softplus(const Tensor& x);  // x itself above 20
[[nodiscard]] Tensor hardswish(const Tensor& x);
[[nodiscard]] Tensor mish(const Tensor& x);
[[nodiscard]] Tensor log_sigmoid(const Tensor& x);

[[nodiscard]] inline Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace headroom
