// Layers without parameters: activations, pooling, dropout, shapes.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/nn/layers/linear.h"
#include "headroom/nn/module.h"
#include "headroom/tensor/ops/dropout.h"
#include "headroom/tensor/ops/pool.h"
#include "headroom/tensor/ops/unary.h"

namespace headroom::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};
class GELU : public Module {  // by erf
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
};
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};
class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

// Sets elements to 0 with probability p while training, and scales the others to keep the mean.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) noexcept : p_(p) {}
  Tensor forward(const Tensor& x) override { return dropout(x, p_, is_training()); }

 private:
  double p_;
};

// Dimensions `start` to `end` as one; all but the batch by default.
class Flatten : public Module {
 public:
  explicit Flatten(int start = 1, int end = -1) noexcept : start_(start), end_(end) {}
  Tensor forward(const Tensor& x) override { return x.flatten(start_, end_); }

 private:
  int start_;
  int end_;
};

// A stride of 0 is that of the kernel.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2 kernel, Size2 stride = 0, Size2 padding = 0) noexcept
      : options_{.kernel = kernel.sizes, .stride = stride.sizes, .padding = padding.sizes} {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2 kernel, Size2 stride = 0, Size2 padding = 0) noexcept
      : options_{.kernel = kernel.sizes, .stride = stride.sizes, .padding = padding.sizes} {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2 out) noexcept : out_(out.sizes) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, out_); }

 private:
  std::array<std::int64_t, 2> out_;
};

}  // namespace headroom::nn
