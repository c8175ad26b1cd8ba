// Arguments of the kernels of layers: convolution, pooling, norms, dropout, attention. All arrays
// are contiguous unless strides are given.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/element_args.h"
#include "headroom/tensor/shape.h"

namespace headroom::tensor {

using Pair = std::array<std::int64_t, 2>;  // of height and width

// --- Convolution --------------------------------------------------------------------------------

enum class ConvPass : std::uint8_t {
  kForward,  // y from x, weight and bias
  kInput,    // the gradient of x from weight and the gradient of y
  kWeight,   // the gradient of weight from x and the gradient of y
};

// Where the channels of an image, or the inputs of a weight, are in memory.
enum class ImageLayout : std::uint8_t {
  kChannelsFirst,  // [batch, channels, height, width]; a weight [outputs, inputs, height, width]
  kChannelsLast,   // [batch, height, width, channels]; a weight [outputs, height, width, inputs]
};

// x of groups * in channels, weight of groups * out outputs and `in` inputs each, y of groups * out
// channels.
struct Conv2dArgs {
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kF32;
  ImageLayout x_layout = ImageLayout::kChannelsFirst;
  ImageLayout weight_layout = ImageLayout::kChannelsFirst;
  ImageLayout y_layout = ImageLayout::kChannelsFirst;
  std::int64_t batch = 0;
  std::int64_t groups = 1;
  std::int64_t in = 1;   // channels of a group
  std::int64_t out = 1;  // of a group
  Pair in_size{};
  Pair out_size{};
  Pair kernel{};
  Pair stride{1, 1};
  Pair padding{};
  Pair dilation{1, 1};
  // Each stands for itself or for its gradient; the one that the pass computes is written.
  void* x = nullptr;
  void* weight = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  // forward: groups * out elements, or null
};

// Groups of one channel have no sums to make over channels.
[[nodiscard]] constexpr bool is_planewise(const Conv2dArgs& a) noexcept {
  return a.in == 1 && a.groups > 1;
}
[[nodiscard]] constexpr std::int64_t window_size(const Conv2dArgs& a) noexcept {
  return a.in * a.kernel[0] * a.kernel[1];
}

// --- Pooling ------------------------------------------------------------------------------------

enum class PoolOp : std::uint8_t {
  kMax,       // padding counts as minus infinity; the first among equals; NaN wins
  kAverage,   // padding counts as 0
  kAdaptive,  // windows from floor(i * in / out) to ceil((i + 1) * in / out)
};

// x [planes, in_size], y [planes, out_size].
struct Pool2dArgs {
  PoolOp op = PoolOp::kMax;
  bool is_backward = false;
  DType dtype = DType::kF32;
  std::int64_t planes = 0;
  Pair in_size{};
  Pair out_size{};
  Pair kernel{1, 1};
  Pair stride{1, 1};
  Pair padding{};
  const void* in = nullptr;  // forward: x; backward: the gradient of y
  void* out = nullptr;       // forward: y; backward: the gradient of x
  // Max: where in its window an output came from, row by row. Forward writes it unless null.
  void* index = nullptr;
  DType index_dtype = DType::kU8;  // or i32
};

// --- Norms --------------------------------------------------------------------------------------

// y = (x - mean) * rstd * weight + bias, where each row of x [rows, width] has its mean and rstd,
// kept in f32 (f64 where x is).
struct LayerNormArgs {
  bool is_backward = false;
  DType dtype = DType::kF32;            // of x, y and their gradients
  DType parameter_dtype = DType::kF32;  // of weight, bias and their gradients
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double eps = 0;
  const void* x = nullptr;
  const void* weight = nullptr;  // null for ones
  const void* bias = nullptr;    // null for zeros
  void* mean = nullptr;          // forward writes both; null where nobody asks
  void* rstd = nullptr;
  void* y = nullptr;
  // Of residual_layer_norm, forward only: what is normalised is x + residual, which goes into `sum`
  // of `dtype`. The residual is of that type, or of 16 bits beside f32.
  const void* residual = nullptr;
  DType residual_dtype = DType::kF32;
  void* sum = nullptr;
  // backward; a gradient that is not wanted is null
  const void* grad = nullptr;
  void* x_grad = nullptr;
  bool adds_x_grad = false;  // to what is in x_grad
  void* weight_grad = nullptr;
  void* bias_grad = nullptr;
};

// The same over x [batch, channels, inner], where each channel has its mean and rstd.
struct BatchNormArgs {
  bool is_backward = false;
  bool uses_batch = true;  // else mean and rstd are the running ones, and constants on the way back
  DType dtype = DType::kF32;
  DType parameter_dtype = DType::kF32;  // of weight, bias and their gradients
  DType running_dtype = DType::kF32;
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t inner = 1;
  double eps = 0;
  double momentum = 0;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* mean = nullptr;  // of the batch: forward writes both where somebody asks
  void* rstd = nullptr;
  // Read, or moved towards the batch's where that is used: the variance to the unbiased one. May be
  // null then.
  void* running_mean = nullptr;
  void* running_var = nullptr;
  std::int64_t running_mean_stride = 1;
  std::int64_t running_var_stride = 1;
  void* y = nullptr;
  const void* grad = nullptr;
  void* x_grad = nullptr;
  void* weight_grad = nullptr;
  void* bias_grad = nullptr;
};

// --- Dropout ------------------------------------------------------------------------------------

// y = x * scale where element i is kept, else 0. Word i % 4 of counter offset + i / 4 of the source
// makes a number in [0, 1), as for a random tensor in f32; the element is kept where that is at
// least p.
struct DropoutArgs {
  bool is_backward = false;  // what is kept is read from the bits
  DType dtype = DType::kF32;
  std::int64_t numel = 0;
  double p = 0;
  double scale = 1;
  RandomSource random{};
  const void* in = nullptr;  // x, or the gradient of y
  void* out = nullptr;
  void* bits = nullptr;  // forward writes them unless null
};

// --- Attention ----------------------------------------------------------------------------------

// Rows of a head are in one piece each, `stride` elements apart.
struct AttentionOperand {
  const void* data = nullptr;
  std::int64_t stride = 0;
  std::array<std::int64_t, kMaxDims> batch_strides{};
};

struct AttentionMask {
  const void* data = nullptr;      // null for none
  DType dtype = DType::kBool;      // true takes part; or floating, and is added to the scores
  std::int64_t row_stride = 0;     // of queries
  std::int64_t column_stride = 0;  // of keys
  std::array<std::int64_t, kMaxDims> batch_strides{};
};

// y = softmax(scale * q k^T + mask) v of each head, in tiles: never the whole product. A row with
// nothing to attend to is 0.
struct AttentionArgs {
  bool is_backward = false;
  bool is_causal = false;  // query i sees keys up to i
  DType dtype = DType::kF32;
  double scale = 1;
  Shape batch{};
  std::int64_t heads = 1;  // the product of batch
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t width = 0;        // of q and k
  std::int64_t value_width = 0;  // of v and y
  AttentionOperand q{};
  AttentionOperand k{};
  AttentionOperand v{};
  AttentionMask mask{};
  void* y = nullptr;
  // Of each row, in f32 (f64), for the way back; forward writes it unless null. Plus infinity for a
  // row with nothing to attend to, whose probabilities are then 0.
  void* log_sum_exp = nullptr;
  // backward; a gradient that is not wanted is null
  AttentionOperand grad{};
  void* q_grad = nullptr;
  void* k_grad = nullptr;
  void* v_grad = nullptr;
};

}  // namespace headroom::tensor
