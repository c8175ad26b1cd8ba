// Dropout.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// Each element is 0 with probability p, else x / (1 - p). What is kept is a function of the state
// of the device's generator (headroom/tensor/generator.h): where `rand` of that state would be at
// least p. Saved: one bit an element. Without training, or for p = 0, this is x itself, and nothing
// is drawn.
[[nodiscard]] Tensor dropout(const Tensor& x, double p, bool training = true);

}  // namespace headroom
