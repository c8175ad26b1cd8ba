// Arguments of the kernels at a training step's end: lists of tensors, which an optimiser changes
// in one launch, and the few numbers that decide how. Everything that changes from step to step is
// in device memory, so that a step can be captured once and replayed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "headroom/tensor/dtype.h"

namespace headroom::tensor {

// Elements of a piece, which one thread does at a time and of which norms keep a partial sum.
inline constexpr std::int64_t kMultiTensorPiece = 32768;

[[nodiscard]] constexpr std::int64_t multi_tensor_pieces(std::int64_t numel) noexcept {
  return (numel + kMultiTensorPiece - 1) / kMultiTensorPiece;
}

enum class MultiTensorOp : std::uint8_t {
  kSgd,
  kAdam,
  kCountStep,   // *step += 1, once for each tensor
  kScale,       // grad *= *factor
  kUnscale,     // grad *= 1 / *factor, and *found = 1 where one was not finite
  kSquareSums,  // partial[piece] = the sum of squares of a piece of grad, in f64
};

// A tensor of the list: dense, all of one type. A row of a table in device memory, as it is.
struct MultiTensorEntry {
  DType dtype = DType::kF32;
  std::int64_t numel = 0;        // at least 1
  std::int64_t first_piece = 0;  // pieces of the tensors before it
  void* param = nullptr;
  void* grad = nullptr;
  void* first = nullptr;   // momentum
  void* second = nullptr;  // Adam's mean of squares
  // Steps that this tensor has taken. While it is 0 what is in the state is not read.
  std::int64_t* step = nullptr;

  friend bool operator==(const MultiTensorEntry&, const MultiTensorEntry&) = default;
};
static_assert(std::is_trivially_copyable_v<MultiTensorEntry>);

// In PyTorch's words. f16 and bf16 compute in f32 and are rounded once. Pointers are to device
// memory.
struct MultiTensorArgs {
  MultiTensorOp op = MultiTensorOp::kScale;
  const MultiTensorEntry* entries = nullptr;
  std::int64_t count = 0;   // of entries
  std::int64_t pieces = 0;  // of all of them
  // Unless null and 0, the launch changes nothing: an optimiser's step that is skipped.
  const double* skip = nullptr;
  const double* lr = nullptr;
  double weight_decay = 0;
  double momentum = 0;  // SGD
  double dampening = 0;
  bool is_nesterov = false;
  double beta1 = 0;  // Adam
  double beta2 = 0;
  double eps = 0;
  bool is_decoupled = false;  // weight decay apart from the gradient
  const double* factor = nullptr;
  double* found = nullptr;  // 0 or 1 before the launch; kUnscale writes 1, never 0
  double* partial = nullptr;
};

enum class StepNumberOp : std::uint8_t {
  kClip,   // *norm = the root of the sum of partial[0..count); *factor = min(1, most / (norm +
           // 1e-6)), not a number where the norm is not
  kScale,  // the loss scale after a step: * backoff where *found is not 0; * growth after
           // `growth_interval` steps without; then *found = 0
};

// A number or two out of others, all in device memory: the host never looks.
struct StepNumberArgs {
  StepNumberOp op = StepNumberOp::kClip;
  const double* partial = nullptr;  // kClip; added up in an order of the backend's own
  std::int64_t count = 0;
  double most = 0;
  double* norm = nullptr;
  double* factor = nullptr;
  double* scale = nullptr;  // kScale
  double* found = nullptr;
  double* good_steps = nullptr;  // since the scale changed
  double growth = 2;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;
};

}  // namespace headroom::tensor
