// Checks of indices, for every op that takes some.
#pragma once

#include <optional>

#include "headroom/tensor/tensor.h"

namespace headroom::tensor {

// That they are i64 and each in [0, bound), or `ignored`. Throws InvalidArgument: "gather: index 9
// is out of range for size 4". Where the processor can read them, this waits for the stream.
void check_indices(const char* op,
                   const Tensor& index,
                   std::int64_t bound,
                   std::optional<std::int64_t> ignored = std::nullopt);

}  // namespace headroom::tensor
