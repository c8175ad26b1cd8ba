// Elements by index. Indices are i64 and are checked before anything is allocated: on the cpu that
// waits for the current stream.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// out[i][j] = x[index[i][j]][j] for dim 0; as large as the index.
[[nodiscard]] Tensor gather(const Tensor& x, int dim, const Tensor& index);
// A copy of x with out[index[i][j]][j] = source[i][j] for dim 0; the last of equals wins.
[[nodiscard]] Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
[[nodiscard]] Tensor scatter_add(const Tensor& x,
                                 int dim,
                                 const Tensor& index,
                                 const Tensor& source);
// Whole rows (for dim 0); the index has one dimension.
[[nodiscard]] Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// Rows of a table, in the shape of the indices: [3, 4] indices of a [10, 8] table give [3, 4, 8].
[[nodiscard]] Tensor embedding(const Tensor& table, const Tensor& index);

}  // namespace headroom
