// Systems of linear equations.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// x with a x = b, for a batch of Hermitian positive definite a [..., n, n] and b [..., n, m], by
// Cholesky. Only the lower triangle of a is read; the gradient of a is Hermitian. Where a is not
// positive definite, x is not a number. Of f32, f64 and c64.
[[nodiscard]] Tensor solve_positive(const Tensor& a, const Tensor& b);

}  // namespace headroom
