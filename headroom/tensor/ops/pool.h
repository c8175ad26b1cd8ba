// Pooling over images [..., height, width] of three or four dimensions.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/tensor/tensor.h"

namespace headroom {

struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel{1, 1};
  std::array<std::int64_t, 2> stride{0, 0};  // 0 for that of the kernel
  std::array<std::int64_t, 2> padding{0, 0};
};

// Padding counts as minus infinity. Saved: where in its window each output came from, one byte each
// for windows of at most 256 elements, and no input.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
// Padding counts as 0, and is counted. Saves nothing.
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
// Windows that cover the input evenly, as PyTorch cuts them. Saves nothing.
[[nodiscard]] Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> out);

}  // namespace headroom
