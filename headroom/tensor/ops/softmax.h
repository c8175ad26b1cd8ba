// Probabilities over a dimension, and the loss on them.
#pragma once

#include <cstdint>

#include "headroom/tensor/tensor.h"

namespace headroom {

[[nodiscard]] Tensor softmax(const Tensor& x, int dim);
[[nodiscard]] Tensor log_softmax(const Tensor& x, int dim);

enum class Reduction : std::uint8_t { kNone, kMean, kSum };

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;  // the mean is over targets that are not ignored
  std::int64_t ignore_index = -100;
};

// Of logits [N, classes] or [N, classes, ...] with i64 targets [N] or [N, ...]. Backward needs the
// logits themselves and one number a row: no second copy of them is made.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits,
                                   const Tensor& target,
                                   const CrossEntropyOptions& options = {});

}  // namespace headroom
