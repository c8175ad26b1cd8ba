// Layers of weights: linear, convolution, embedding.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/nn/module.h"
#include "headroom/tensor/ops/conv.h"

namespace headroom::nn {

// y = x W^T + b over the last dimension.
class Linear : public Module {
 public:
  Linear(std::int64_t in,
         std::int64_t out,
         bool has_bias = true,
         const TensorOptions& options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [out, in]
  Tensor bias;    // [out]; undefined without
};

enum class Gelu : std::uint8_t {
  kErf,
  kTanh,  // its approximation
};

// gelu(x W^T + b): as a Linear with an activation behind it, in one launch where the backend has
// one.
class LinearGelu : public Linear {
 public:
  LinearGelu(std::int64_t in,
             std::int64_t out,
             Gelu gelu = Gelu::kErf,
             const TensorOptions& options = {})
      : Linear(in, out, true, options), gelu_(gelu) {}
  Tensor forward(const Tensor& x) override;

 private:
  Gelu gelu_;
};

// Height and width; one number is both.
struct Size2 {
  // NOLINTBEGIN(google-explicit-constructor): 3 is a kernel of 3 x 3
  constexpr Size2(std::int64_t both) noexcept : sizes{both, both} {}
  constexpr Size2(std::int64_t height, std::int64_t width) noexcept : sizes{height, width} {}
  // NOLINTEND(google-explicit-constructor)

  std::array<std::int64_t, 2> sizes;
};

struct Conv2dConfig {
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
  bool has_bias = true;
};

// Over images [batch, channels, height, width].
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in,
         std::int64_t out,
         Size2 kernel,
         const Conv2dConfig& config = {},
         const TensorOptions& options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [out, in / groups, kernel height, kernel width]
  Tensor bias;    // [out]; undefined without

 private:
  Conv2dOptions options_;
};

// Rows of a table, by i64 indices.
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, const TensorOptions& options = {});
  Tensor forward(const Tensor& index) override;

  Tensor weight;  // [count, width]
};

}  // namespace headroom::nn
