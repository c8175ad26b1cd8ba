// Products of matrices. Operands have one type; f16 and bf16 are computed in f32.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// As PyTorch's: a vector is a row on the left and a column on the right; leading dimensions are
// batches and broadcast.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);
// a^H b and a b^H: the transpose, of c64 also conjugated. Neither makes a copy of what it turns.
[[nodiscard]] Tensor adjoint_matmul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor matmul_adjoint(const Tensor& a, const Tensor& b);
// Of [b, m, k] and [b, k, n].
[[nodiscard]] Tensor bmm(const Tensor& a, const Tensor& b);
// x of [..., in] with a weight of [out, in] and a bias of [out], which may be left out.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace headroom
