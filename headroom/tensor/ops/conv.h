// Convolution over images.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/tensor/tensor.h"

namespace headroom {

// Of height and width, each.
struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
};

// Of x [batch, channels, height, width] with weight [out, channels / groups, kernel height, kernel
// width] and, where given, bias [out]. Windows are laid out a few rows of the output at a time, in
// a workspace of at most 2 MiB in f32 unless a single row takes more; a kernel of 1 x 1 over every
// pixel, and groups of one channel, take none. f16 and bf16 are computed in f32: there the
// workspace also holds the weight and one image of each side. Saved: x where the weight wants a
// gradient, the weight where x does.
[[nodiscard]] Tensor conv2d(const Tensor& x,
                            const Tensor& weight,
                            const Tensor& bias = {},
                            const Conv2dOptions& options = {});

}  // namespace headroom
