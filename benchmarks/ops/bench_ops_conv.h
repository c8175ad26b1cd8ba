// The convolution that ours is compared with: image by image, all windows of one laid out and
// multiplied by OpenBLAS. Square images and kernels, no groups.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::cli::plain {

struct Conv {
  std::int64_t batch = 1;
  std::int64_t in = 1;
  std::int64_t size = 1;
  std::int64_t out = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  int threads = 1;

  [[nodiscard]] std::int64_t padding() const { return kernel / 2; }
  [[nodiscard]] std::int64_t out_size() const {
    return (size + 2 * padding() - kernel) / stride + 1;
  }
  [[nodiscard]] std::int64_t window() const { return in * kernel * kernel; }
  // A window is a pixel, and x itself is the matrix.
  [[nodiscard]] bool is_pixels() const { return kernel == 1 && stride == 1; }
  [[nodiscard]] double operations() const {
    return 2.0 * static_cast<double>(batch * out * window() * out_size() * out_size());
  }
};

struct ConvArrays {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* grad = nullptr;
  float* y = nullptr;
  float* x_grad = nullptr;
  float* weight_grad = nullptr;
  std::vector<float> columns{};  // window() x out_size()^2
};

void conv_forward(const Conv& conv, ConvArrays& arrays);
void conv_backward(const Conv& conv, ConvArrays& arrays);

}  // namespace headroom::cli::plain
