// Losses of two tensors of one shape and type; that on classes is in softmax.h. Saved: both, and no
// copy of either.
#pragma once

#include "headroom/tensor/ops/softmax.h"
#include "headroom/tensor/tensor.h"

namespace headroom {

// (x - target)^2.
[[nodiscard]] Tensor mse_loss(const Tensor& x,
                              const Tensor& target,
                              Reduction reduction = Reduction::kMean);
// |x - target|.
[[nodiscard]] Tensor l1_loss(const Tensor& x,
                             const Tensor& target,
                             Reduction reduction = Reduction::kMean);
// -(t log(s) + (1 - t) log(1 - s)) for s = sigmoid(x) and targets t in [0, 1].
[[nodiscard]] Tensor binary_cross_entropy_with_logits(const Tensor& x,
                                                      const Tensor& target,
                                                      Reduction reduction = Reduction::kMean);

}  // namespace headroom
