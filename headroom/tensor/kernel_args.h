// Arguments of kernels: plain values, with the meaning of each op beside its name. Here are
// reductions, rows of classes and indices; element_args.h, matrix_args.h, layer_args.h and
// optim_args.h have the rest.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/element_args.h"
#include "headroom/tensor/matrix_args.h"
#include "headroom/tensor/shape.h"

namespace headroom::tensor {

// --- Reductions ---------------------------------------------------------------------------------

enum class ReduceOp : std::uint8_t {
  kSum,
  kMean,
  kProd,
  kMax,  // with an index, where one is wanted: of the first among equals; NaN wins
  kMin,
  kArgmax,
  kArgmin,
  kAny,
  kAll,
  kNorm1,
  kNorm2,
  kNormInf,
  kVar,  // divided by count - parameter
  kLogSumExp,
};

// out, contiguous over `kept`; each element reduces `reduced`, in row-major order.
struct ReduceArgs {
  ReduceOp op = ReduceOp::kSum;
  ComputeType compute = ComputeType::kF32;
  Operand in{};  // strides over kept dimensions, then reduced ones
  Shape kept{};
  Shape reduced{};
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t* index_out = nullptr;
  double parameter = 0;
};

// --- Rows of classes ----------------------------------------------------------------------------

// All are contiguous [outer, classes, inner]; a row runs over the classes.
struct RowsShape {
  std::int64_t outer = 1;
  std::int64_t classes = 1;
  std::int64_t inner = 1;
};

struct SoftmaxArgs {
  RowsShape rows{};
  bool is_log = false;
  DType dtype = DType::kF32;
  const void* in = nullptr;    // forward: x; backward: the output y
  const void* grad = nullptr;  // backward only
  void* out = nullptr;
};

// Loss of row i: log(sum(exp(logits - largest))) - (logits[target] - largest), 0 where the target
// is ignored.
struct CrossEntropyArgs {
  RowsShape rows{};
  DType dtype = DType::kF32;
  const void* logits = nullptr;
  const std::int64_t* target = nullptr;
  std::int64_t ignore_index = -100;
  bool is_backward = false;
  // A number per row that a backend's forward leaves for its backward; f32, f64 for f64. Null where
  // nobody asks.
  void* kept = nullptr;
  void* losses = nullptr;  // forward: f32 (f64), a row each; null when `out` is all
  // forward: the sum or mean of the losses (null for neither), of `dtype`.
  // backward: the gradient of the logits, of `dtype`.
  void* out = nullptr;
  bool is_mean = false;
  const void* grad = nullptr;  // backward: of `dtype`, one element, or a row each
  bool grad_is_row = false;
};

// --- Indices ------------------------------------------------------------------------------------

// gather:  to[i] = from[i with i[dim] = index[i]]
// scatter: to[i with i[dim] = index[i]] = from[i], or += where `is_add`; in row-major order
struct IndexArgs {
  bool is_add = false;
  DType dtype = DType::kF32;
  int dim = 0;
  Shape shape{};  // of the index
  const std::int64_t* index = nullptr;
  Strides index_strides{};
  const void* from = nullptr;
  Strides from_strides{};
  void* to = nullptr;
  Strides to_strides{};
  std::int64_t bound =
      0;  // indices are in [0, bound); not checked yet without Kernels::check_index
};

// Whether every index is in [0, bound), `ignored` apart.
struct IndexCheckArgs {
  const std::int64_t* index = nullptr;
  Shape shape{};
  Strides strides{};
  std::int64_t bound = 0;
  std::optional<std::int64_t> ignored{};
  std::int64_t bad = 0;  // the first that is not
  bool found = false;
};

}  // namespace headroom::tensor
