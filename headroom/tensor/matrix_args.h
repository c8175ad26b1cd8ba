// Arguments of the kernels of matrices: products with their epilogues, and solving.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/shape.h"

namespace headroom::tensor {

// A batch of matrices whose rows or columns are contiguous.
struct MatrixOperand {
  const void* data = nullptr;
  std::int64_t leading = 1;  // elements between rows; between columns when transposed
  bool is_transposed = false;
  bool is_conjugated = false;  // c64
  std::array<std::int64_t, kMaxDims> batch_strides{};
};

// The arithmetic of a product: the operands' type decides, and what the user allows.
enum class MatmulCompute : std::uint8_t {
  kF32,      // f32 with all its digits
  kTf32,     // f32 whose factors may be rounded to 10 bits of fraction
  kF32Sums,  // f16 and bf16, added up in f32
  kF64,
  kC64,
  kI64,  // all integers; sums wrap
};
[[nodiscard]] constexpr MatmulCompute matmul_compute(DType dtype,
                                                     bool allows_tf32 = false) noexcept {
  switch (dtype) {
    case DType::kF32:
      return allows_tf32 ? MatmulCompute::kTf32 : MatmulCompute::kF32;
    case DType::kF64:
      return MatmulCompute::kF64;
    case DType::kC64:
      return MatmulCompute::kC64;
    case DType::kF16:
    case DType::kBF16:
      return MatmulCompute::kF32Sums;
    default:
      return MatmulCompute::kI64;
  }
}

enum class Activation : std::uint8_t {
  kNone,
  kGelu,      // by erf
  kGeluTanh,  // its approximation
};

// With p[b] = a[b] (m x k) * b[b] (k x n) + bias, where the bias is a row, and the activation f:
//
//   out = f(p)             and p into `kept`, unless that is null
//   out = p * f'(kept)     is_backward: the gradient of what went into f
//   out += p               adds: without a bias and without an activation
//
// All arrays but the operands are contiguous, of `dtype`. A backend need not accept epilogues
// (Kernel::accepts): the op layer then launches the rest by itself.
struct MatmulArgs {
  DType dtype = DType::kF32;
  MatmulCompute compute = MatmulCompute::kF32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Shape batch{};
  MatrixOperand a{};
  MatrixOperand b{};
  void* out = nullptr;
  const void* bias = nullptr;  // n elements; null for none
  bool adds = false;
  Activation activation = Activation::kNone;
  bool is_backward = false;
  void* kept = nullptr;
  // Of a single product; null where nobody asks. Bias gradients are sums of what a product reads or
  // writes anyhow.
  void* row_sums = nullptr;     // m elements: the sum of each row of a
  void* column_sums = nullptr;  // n elements: the sum of each column of out
};

// Whether a product does more than multiply and add a bias.
[[nodiscard]] constexpr bool has_epilogue(const MatmulArgs& args) noexcept {
  return args.activation != Activation::kNone || args.row_sums != nullptr ||
         args.column_sums != nullptr;
}

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

}  // namespace headroom::tensor
