// What kernels are told: plain values, with the meaning of each op beside its name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/shape.h"

namespace headroom::tensor {

// What arithmetic is done in: f16 and bf16 in f32, all integers and bool in i64 (stores wrap).
// A complex result stored as real is its real part.
enum class ComputeType : std::uint8_t { kF32, kF64, kI64, kC64 };
[[nodiscard]] constexpr ComputeType compute_type(DType dtype) noexcept {
  if (dtype == DType::kF64) return ComputeType::kF64;
  if (is_complex(dtype)) return ComputeType::kC64;
  return is_floating(dtype) ? ComputeType::kF32 : ComputeType::kI64;
}

// --- Element by element -------------------------------------------------------------------------

// The operands in order a, b, c. A backward's first operand is the gradient g; x is the op's input,
// y its output.
enum class ElementOp : std::uint8_t {
  // one operand
  kCopy,
  kNeg,
  kAbs,
  kSign,
  kSquare,
  kFloor,
  kCeil,
  kRound,  // to even
  kTrunc,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTanh,
  kSigmoid,
  kErf,
  kRelu,
  kGelu,  // by erf
  kSilu,
  kLogicalNot,
  kIsNan,
  kConj,
  kReal,
  kImag,
  // two
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDivide,
  kRemainder,  // of floor division, as Python's %
  kPow,
  kMaximum,  // NaN wins
  kMinimum,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kXor,
  kComplex,             // of a real and an imaginary part
  kReluBackward,        // g, y
  kSqrtBackward,        // g, y
  kRsqrtBackward,       // g, y
  kReciprocalBackward,  // g, y
  kTanhBackward,        // g, y
  kSigmoidBackward,     // g, y
  kExpm1Backward,       // g, y
  kAbsBackward,         // g, x
  kSquareBackward,      // g, x
  kLog1pBackward,       // g, x
  kLog2Backward,        // g, x
  kSinBackward,         // g, x
  kCosBackward,         // g, x
  kErfBackward,         // g, x
  kGeluBackward,        // g, x
  kSiluBackward,        // g, x
  // three
  kWhere,             // condition, value, other
  kClamp,             // x, low, high; NaN stays
  kBetween,           // x, low, high: low <= x <= high
  kAddScaled,         // a + c * b
  kDivBackward,       // g, a, b: of a / b for b
  kPowBackward,       // g, x, e: of x ** e for x
  kPowBackwardPower,  // g, x, y: of y = x ** e for e
  // activations and losses, of floating numbers only
  kGeluTanh,  // one operand
  kSoftplus,  // x itself above 20
  kHardswish,
  kMish,
  kLogSigmoid,
  kLeakyRelu,  // x, slope
  kElu,        // x, alpha
  kSquaredDifference,
  kAbsoluteDifference,
  kLogitLoss,           // x, target: binary cross-entropy
  kGeluTanhBackward,    // g, x
  kSoftplusBackward,    // g, x
  kHardswishBackward,   // g, x
  kMishBackward,        // g, x
  kLogSigmoidBackward,  // g, x
  kInside,              // x, low, high: low < x < high
  kLeakyReluBackward,   // g, y (or x), slope
  kEluBackward,         // g, y, alpha
  kSquaredBackward,     // g, x, target
  kAbsoluteBackward,    // g, x, target
  kLogitLossBackward,   // g, x, target
};

inline constexpr std::size_t kElementOps =
    static_cast<std::size_t>(ElementOp::kLogitLossBackward) + 1;
// "gelu_backward": what messages and profiles call a launch.
[[nodiscard]] const char* to_string(ElementOp op) noexcept;

struct Operand {
  void* data = nullptr;
  DType dtype = DType::kF32;
  bool is_bits = false;  // element i is bit i % 8 of byte i / 8, in row-major order
  bool is_scalar = false;
  double floating = 0;  // the scalar, both ways
  std::int64_t integer = 0;
  std::array<std::int64_t, kMaxDims> strides{};  // in elements
};

// out[i] = op(in[0][i], ...) for i in row-major order over `shape`. The output may be the very
// operand that is read.
struct ElementArgs {
  ElementOp op = ElementOp::kCopy;
  ComputeType compute = ComputeType::kF32;
  int inputs = 1;
  std::int64_t numel = 0;
  Shape shape{};  // dimensions that every operand runs through in one stride are joined
  Operand out{};
  std::array<Operand, 3> in{};
};

// --- Numbers from nothing -----------------------------------------------------------------------

enum class GenerateOp : std::uint8_t {
  kArange,   // low + i * high
  kUniform,  // in [low, high), at most `most`
  kNormal,   // mean low, deviation high
  kInteger,  // in [integer_low, integer_low + integer_range)
};

// Element i of a random op comes from Philox4x32-10 with key `seed` and counter offset + i / 4
// (f64: i / 2), so any part can be computed by itself.
struct GenerateArgs {
  GenerateOp op = GenerateOp::kArange;
  std::int64_t numel = 0;
  Shape shape{};
  Operand out{};
  double low = 0;
  double high = 1;
  double most = 1;  // the last number of the type before high, which rounding may not reach
  std::int64_t integer_low = 0;
  std::uint64_t integer_range = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

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

// --- Matrices -----------------------------------------------------------------------------------

// A batch of matrices whose rows or columns are contiguous.
struct MatrixOperand {
  const void* data = nullptr;
  std::int64_t leading = 1;  // elements between rows; between columns when transposed
  bool is_transposed = false;
  bool is_conjugated = false;  // c64
  std::array<std::int64_t, kMaxDims> batch_strides{};
};

// out[b] = a[b] (m x k) * x[b] (k x n) + bias, contiguous; the bias is a row.
struct MatmulArgs {
  DType dtype = DType::kF32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Shape batch{};
  MatrixOperand a{};
  MatrixOperand b{};
  void* out = nullptr;
  const void* bias = nullptr;  // n elements, one after another; null for none
};

// For each of `batch`: the matrix (n x n, Hermitian, its lower triangle read) becomes its Cholesky
// factor L, unless it is one, and `out` (n x columns) what solves L L^H x = out. Not a number where
// the matrix is not positive definite.
struct SolveArgs {
  DType dtype = DType::kF32;  // f32, f64 or c64
  std::int64_t batch = 1;
  std::int64_t n = 0;
  std::int64_t columns = 0;
  void* factor = nullptr;
  void* out = nullptr;
  bool is_factored = false;
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
  // What a backend's forward leaves for its backward, a number a row; f32, f64 for f64. Null where
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
