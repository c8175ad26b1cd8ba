// Arguments of element-wise and generating kernels: the op, its operands and, for random numbers,
// where to draw from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/shape.h"

namespace headroom::tensor {

// The type of the arithmetic: f32 for f16 and bf16, i64 for all integers and bool (stores wrap).
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

// Where a random op draws: Philox4x32-10 with a key and a first counter. A step that is to be
// replayed with other numbers keeps both in device memory, where the kernel reads them.
struct RandomSource {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  // Unless null, in device memory: the seed, instead of `seed`, and what is added to `offset`.
  const std::uint64_t* state = nullptr;
};

// Element i of a random op comes from counter offset + i / 4 of its source (f64, integers: i / 2),
// so any part can be computed by itself.
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
  RandomSource random{};
};

}  // namespace headroom::tensor
