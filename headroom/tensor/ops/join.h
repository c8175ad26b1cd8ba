// Several tensors into one.
#pragma once

#include <vector>

#include "headroom/tensor/tensor.h"

namespace headroom {

// Along a dimension there is; all other sizes are equal.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
// Along a new one; all shapes are equal.
[[nodiscard]] Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

}  // namespace headroom
