// Products of matrices. Operands have one type; f16 and bf16 are computed in f32.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

// As PyTorch's: a vector is a row on the left and a column on the right; leading dimensions are
// batches and broadcast.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);
// a^H b and a b^H: the transpose, of c64 also conjugated. Neither makes a copy of what it turns.
[[nodiscard]] Tensor adjoint_matmul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor matmul_adjoint(const Tensor& a, const Tensor& b);
// Of [b, m, k] and [b, k, n].
[[nodiscard]] Tensor bmm(const Tensor& a, const Tensor& b);
// x of [..., in] with a weight of [out, in] and a bias of [out], which may be left out.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// gelu (by erf, or its approximation by tanh) of that, in one launch where the backend has one.
// Saved: x, the weight, and what went into the activation.
[[nodiscard]] Tensor linear_gelu(const Tensor& x,
                                 const Tensor& weight,
                                 const Tensor& bias = {},
                                 bool is_tanh = false);

// Whether products of f32 may round their factors to 10 bits of fraction (TF32), where a GPU is
// quicker with these. By default they may not.
class MatmulPrecision {
 public:
  [[nodiscard]] static bool allows_tf32() noexcept { return allows_tf32_; }

 private:
  friend class MatmulPrecisionScope;
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline thread_local constinit bool allows_tf32_ = false;
};

// For the products of this thread while it lives; a backward is asked when it runs.
class MatmulPrecisionScope {
 public:
  explicit MatmulPrecisionScope(bool allows_tf32) noexcept : outer_(MatmulPrecision::allows_tf32_) {
    MatmulPrecision::allows_tf32_ = allows_tf32;
  }
  ~MatmulPrecisionScope() { MatmulPrecision::allows_tf32_ = outer_; }
  MatmulPrecisionScope(const MatmulPrecisionScope&) = delete;
  MatmulPrecisionScope& operator=(const MatmulPrecisionScope&) = delete;

 private:
  bool outer_;
};

}  // namespace headroom
