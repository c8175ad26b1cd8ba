#include "headroom/tensor/ops/linalg.h"

#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/complex.h"
#include "headroom/tensor/ops/matmul.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void check_system(const Tensor& a, const Tensor& b) {
  const DType dtype = a.dtype();
  if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kC64) {
    refuse_dtype("solve_positive", dtype);
  }
  if (b.dtype() != dtype) {
    throw InvalidArgument("solve_positive: types differ: " + std::string(to_string(dtype)) +
                          " and " + std::string(to_string(b.dtype())));
  }
  check_same_device("solve_positive", a, b);
  Shape wanted = a.shape();
  bool fits = a.dim() >= 2 && a.dim() == b.dim() && a.size(-1) == a.size(-2);
  if (fits) wanted[a.dim() - 1] = b.size(-1);
  fits = fits && wanted == b.shape();
  if (fits) return;
  throw InvalidArgument("solve_positive: [..., n, n] and [..., n, m] are wanted, not " +
                        to_string(a.shape()) + " and " + to_string(b.shape()));
}

// The matrices as they are, or their factors; b becomes x in a copy.
Tensor solved(const Tensor& factor, const Tensor& b, bool is_factored) {
  Tensor x = new_output("solve_positive", b, b.shape(), b.dtype());
  if (x.numel() == 0) return x;
  run_element(ElementOp::kCopy, b.dtype(), x, {b});
  const std::int64_t n = b.size(-2);
  launch("solve_positive",
         x,
         &Kernels::solve,
         SolveArgs{.dtype = b.dtype(),
                   .batch = factor.numel() / (n * n),
                   .n = n,
                   .columns = b.size(-1),
                   .factor = pointer(factor),
                   .out = pointer(x),
                   .is_factored = is_factored});
  return x;
}

Tensor room_for_factor(const Tensor& a, bool is_saved) {
  return is_saved ? new_output("solve_positive", a, a.shape(), a.dtype())
                  : new_workspace("solve_positive", a, a.shape(), a.dtype());
}

// The factor of each matrix, and two triangles for each column.
double solve_work(const Tensor& x, std::int64_t n) {
  const auto size = static_cast<double>(n);
  const double systems =
      static_cast<double>(x.numel()) / std::max(size * static_cast<double>(x.size(-1)), 1.0);
  return systems * size * size * size / 3 + 2 * static_cast<double>(x.numel()) * size;
}

}  // namespace

// Saved: the factor, and x where a wants a gradient.
Tensor solve_positive(const Tensor& a, const Tensor& b) {
  check_system(a, b);
  const bool is_saved = any_needs_grad({&a, &b});
  const Tensor factor = room_for_factor(a, is_saved);
  run_element(ElementOp::kCopy, a.dtype(), factor, {a});
  const Tensor x = solved(factor, b, false);
  return record({"solve_positive", counted(solve_work(x, a.size(-1)))},
                {&a, &b},
                x,
                {save_output(factor, is_saved), save_output(x, needs_grad(a))},
                [](BackwardArgs& args) {
                  const Tensor own = args.saved(0);
                  refuse_second_derivative("solve_positive", {&args.grad()});
                  const Tensor grad_b = solved(own, args.grad(), true);
                  if (args.needs(1)) args.set_grad(1, grad_b);
                  if (!args.needs(0)) return;
                  const Tensor outer = matmul_adjoint(grad_b, args.saved(1));
                  args.set_grad(0, mul(add(outer, adjoint(outer)), -0.5));
                });
}

}  // namespace headroom
