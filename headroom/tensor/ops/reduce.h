// Reductions over some dimensions or all of them.
#pragma once

#include <utility>

#include "headroom/tensor/tensor.h"

namespace headroom {

// Integers and bool add up in i64.
[[nodiscard]] Tensor sum(const Tensor& x);
[[nodiscard]] Tensor sum(const Tensor& x, const Dims& dims, bool keepdim = false);
[[nodiscard]] Tensor mean(const Tensor& x);
[[nodiscard]] Tensor mean(const Tensor& x, const Dims& dims, bool keepdim = false);
[[nodiscard]] Tensor prod(const Tensor& x);
[[nodiscard]] Tensor prod(const Tensor& x, const Dims& dims, bool keepdim = false);

// The largest. Among equals the first has the gradient; NaN wins.
[[nodiscard]] Tensor max(const Tensor& x);
[[nodiscard]] Tensor min(const Tensor& x);
[[nodiscard]] Tensor amax(const Tensor& x, const Dims& dims, bool keepdim = false);
[[nodiscard]] Tensor amin(const Tensor& x, const Dims& dims, bool keepdim = false);
// Values, and where they were (i64).
[[nodiscard]] std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim = false);
[[nodiscard]] std::pair<Tensor, Tensor> min(const Tensor& x, int dim, bool keepdim = false);
// Of the flattened tensor, or along a dimension.
[[nodiscard]] Tensor argmax(const Tensor& x);
[[nodiscard]] Tensor argmin(const Tensor& x);
[[nodiscard]] Tensor argmax(const Tensor& x, int dim, bool keepdim = false);
[[nodiscard]] Tensor argmin(const Tensor& x, int dim, bool keepdim = false);

[[nodiscard]] Tensor any(const Tensor& x);
[[nodiscard]] Tensor all(const Tensor& x);
[[nodiscard]] Tensor any(const Tensor& x, const Dims& dims, bool keepdim = false);
[[nodiscard]] Tensor all(const Tensor& x, const Dims& dims, bool keepdim = false);

// Divided by the count less `correction`, which is 1 for all elements.
[[nodiscard]] Tensor var(const Tensor& x);
[[nodiscard]] Tensor var(const Tensor& x,
                         const Dims& dims,
                         double correction = 1,
                         bool keepdim = false);
// Of order 1, 2 or infinity, or any other power above 0. Elements as large as the norm of order
// infinity share its gradient.
[[nodiscard]] Tensor norm(const Tensor& x, double order = 2);
[[nodiscard]] Tensor norm(const Tensor& x, double order, const Dims& dims, bool keepdim = false);
// Of infinities as PyTorch has it; the gradient is exact however large x is.
[[nodiscard]] Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace headroom
