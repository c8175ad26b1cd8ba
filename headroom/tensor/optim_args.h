// The arguments of the kernel over lists of tensors: what optimisers do to all parameters at once.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/tensor/dtype.h"

namespace headroom::tensor {

// Elements of a piece, which one thread does at a time and of which norms keep a partial sum.
inline constexpr std::int64_t kMultiTensorPiece = 32768;

enum class MultiTensorOp : std::uint8_t {
  kSgd,
  kAdam,
  kScale,       // grad *= factor
  kUnscale,     // and *found = 1 where one is not finite
  kSquareSums,  // partial[piece] = the sum of squares of a piece of grad, in f64
};

// A tensor of the list: dense, all of one type.
struct MultiTensorEntry {
  DType dtype = DType::kF32;
  std::int64_t numel = 0;
  void* param = nullptr;
  void* grad = nullptr;
  void* first = nullptr;   // momentum
  void* second = nullptr;  // Adam's mean of squares
  std::int64_t step = 1;   // of this tensor; at 1 what is in the state is not read
};

// In PyTorch's words. f16 and bf16 compute in f32 and are rounded once.
struct MultiTensorArgs {
  MultiTensorOp op = MultiTensorOp::kScale;
  std::vector<MultiTensorEntry> entries{};
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;  // SGD
  double dampening = 0;
  bool is_nesterov = false;
  double beta1 = 0;  // Adam
  double beta2 = 0;
  double eps = 0;
  bool is_decoupled = false;  // weight decay apart from the gradient
  double factor = 1;
  float* found = nullptr;
  double* partial = nullptr;
};

[[nodiscard]] constexpr std::int64_t multi_tensor_pieces(std::int64_t numel) noexcept {
  return (numel + kMultiTensorPiece - 1) / kMultiTensorPiece;
}

}  // namespace headroom::tensor
