#include "headroom/tensor/ops/matmul.h"

#include <algorithm>
#include <limits>

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void check_types(const char* op, const Tensor& a, const Tensor& b) {
  check_same_device(op, a, b);
  if (a.dtype() != b.dtype()) {
    throw InvalidArgument(std::string(op) + ": types differ: " + std::string(to_string(a.dtype())) +
                          " and " + std::string(to_string(b.dtype())));
  }
  if (a.dtype() == DType::kBool) refuse_dtype(op, a.dtype());
}

[[noreturn]] void refuse_inner(const char* op, const Tensor& a, const Tensor& b) {
  throw InvalidArgument(std::string(op) + ": inner sizes differ: " + to_string(a.shape()) + " x " +
                        to_string(b.shape()));
}

// The libraries count in 32 bits.
void check_sizes(const char* op, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) {
    if (size <= std::numeric_limits<std::int32_t>::max()) continue;
    throw InvalidArgument(std::string(op) + ": a side of " + std::to_string(size) +
                          " is more than 32 bits can count");
  }
}

// A layout that needs no copy: rows or columns in one piece, far enough apart.
bool has_layout(std::int64_t step, std::int64_t stride, std::int64_t length, std::int64_t count) {
  return (step == 1 || length <= 1) && (stride >= std::max<std::int64_t>(length, 1) || count <= 1);
}

// How the last two dimensions are laid out. False where neither rows nor columns are in one piece.
bool describe(const Tensor& x, MatrixOperand& out) {
  const int rank = x.dim();
  const std::int64_t rows = x.shape()[rank - 2];
  const std::int64_t columns = x.shape()[rank - 1];
  const std::int64_t down = x.strides()[rank - 2];
  const std::int64_t right = x.strides()[rank - 1];
  if (has_layout(right, down, columns, rows)) {
    out.leading = std::max({down, columns, std::int64_t{1}});
  } else if (has_layout(down, right, rows, columns)) {
    out.leading = std::max({right, rows, std::int64_t{1}});
    out.is_transposed = true;
  } else {
    return false;
  }
  return out.leading <= std::numeric_limits<std::int32_t>::max();
}

Shape batch_of(const Tensor& x) {
  Shape out = x.shape();
  out.erase(out.size() - 1);
  out.erase(out.size() - 1);
  return out;
}

// The matrices of x. Where their layout needs a copy, `copy` holds it.
MatrixOperand operand(const Tensor& x, const Shape& batch, bool is_conjugated, Tensor& copy) {
  MatrixOperand out;
  if (!describe(x, out)) {
    const GradModeScope no_grad(false);
    copy = x.clone();
    return operand(copy, batch, is_conjugated, copy);
  }
  out.is_conjugated = is_conjugated && is_complex(x.dtype());
  out.data = pointer(x);
  if (batch.empty()) return out;
  Strides strides = x.strides();
  strides.erase(strides.size() - 1);
  strides.erase(strides.size() - 1);
  const Strides spread = broadcast_strides(batch_of(x), strides, batch);
  std::copy(spread.begin(), spread.end(), out.batch_strides.begin());
  return out;
}

// Which sides are conjugated: a flag of the library's, no copy. Nothing to real ones.
struct Conjugated {
  bool a = false;
  bool b = false;
};

// Both have at least two dimensions.
Tensor multiply(const char* op,
                const Tensor& a,
                const Tensor& b,
                const Tensor& bias = {},
                Conjugated with = {}) {
  MatmulArgs args;
  args.dtype = a.dtype();
  args.m = a.shape()[a.dim() - 2];
  args.k = a.shape()[a.dim() - 1];
  args.n = b.shape()[b.dim() - 1];
  if (args.k != b.shape()[b.dim() - 2]) refuse_inner(op, a, b);
  check_sizes(op, {args.m, args.k, args.n});
  if (a.dim() > 2 || b.dim() > 2) {
    args.batch = broadcast_shapes(op, batch_of(a), batch_of(b));
  }
  Shape shape = args.batch;
  shape.push_back(args.m);
  shape.push_back(args.n);
  Tensor y = new_output(op, a, shape, a.dtype());
  if (y.numel() == 0) return y;
  Tensor left;
  Tensor right;
  args.a = operand(a, args.batch, with.a, left);
  args.b = operand(b, args.batch, with.b, right);
  const Tensor row = bias.defined() ? bias.detach().contiguous() : Tensor();
  args.out = pointer(y);
  if (row.defined()) args.bias = pointer(row);
  launch(op, y, &Kernels::matmul, args);
  return y;
}

Tensor turned(const Tensor& x) { return x.transpose(-2, -1); }

Tensor matmul_with(const char* op, const Tensor& a, const Tensor& b, Conjugated with);

// Saved: a, where b wants a gradient, and the other way round. The gradient of A in A B is g B^H,
// and that of a where A is its conjugate is the conjugate of that: both are products again.
Tensor product(const char* op, const Tensor& a, const Tensor& b, Conjugated with = {}) {
  const Tensor y = multiply(op, a, b, {}, with);
  return record(
      op,
      {&a, &b},
      y,
      {save_input(a, needs_grad(b)), save_input(b, needs_grad(a))},
      [sa = a.shape(), sb = b.shape(), with](BackwardArgs& args) {
        const Tensor& g = args.grad();
        const auto take = [](const Tensor& x, const Tensor& z, Conjugated how, const Shape& to) {
          return sum_to(matmul_with("matmul", x, z, how), to);
        };
        const bool differ = with.a != with.b;
        if (args.needs(0)) {
          args.set_grad(0, take(g, turned(args.saved(1)), {.a = with.a, .b = !differ}, sa));
        }
        if (args.needs(1)) {
          args.set_grad(1, take(turned(args.saved(0)), g, {.a = !differ, .b = with.b}, sb));
        }
      });
}

void refuse_scalar(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dim() > 0 && b.dim() > 0) return;
  throw InvalidArgument(std::string(op) + ": a tensor of no dimensions is not a matrix: " +
                        to_string(a.shape()) + " x " + to_string(b.shape()));
}

// Batches of a times one b is one tall matrix times b: one product, and no batch of gradients.
Tensor fold_product(const char* op, const Tensor& a, const Tensor& b, Conjugated with) {
  Shape shape = a.shape();
  shape[shape.size() - 1] = b.size(-1);
  return product(op, a.reshape({-1, a.size(-1)}), b, with).view(shape);
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  refuse_complex("linear", x.dtype());
  check_types("linear", x, weight);
  if (bias.defined()) check_types("linear", x, bias);
  if (weight.dim() != 2 || x.dim() == 0 || x.size(-1) != weight.size(1)) {
    throw InvalidArgument("linear: inner sizes differ: " + to_string(x.shape()) + " x weight " +
                          to_string(weight.shape()));
  }
  if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
    throw InvalidArgument("linear: a bias of " + to_string(bias.shape()) + " for " +
                          std::to_string(weight.size(0)) + " outputs");
  }
}

// All leading dimensions as one; -1 would not know how many rows of nothing there are.
Tensor as_rows(const Tensor& x) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return x.reshape({rows, x.shape().back()});
}

// The output in the shape of x: it is one, so it is made that way, not viewed.
Tensor linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const GradModeScope no_grad(false);
  Tensor y = multiply("linear", as_rows(x), weight.t(), bias);
  Shape shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  y.impl().strides = contiguous_strides(shape);
  y.impl().shape = shape;
  return y;
}

Tensor matmul_with(const char* op, const Tensor& a, const Tensor& b, Conjugated with) {
  check_types(op, a, b);
  if (a.dim() == 2 && b.dim() == 2) return product(op, a, b, with);
  refuse_scalar(op, a, b);
  if (a.size(-1) != b.size(b.dim() == 1 ? 0 : -2)) refuse_inner(op, a, b);
  if (a.dim() == 1) {
    const Tensor row = matmul_with(op, a.unsqueeze(0), b, with);
    return row.squeeze(b.dim() == 1 ? 0 : row.dim() - 2);
  }
  if (b.dim() == 1) return matmul_with(op, a, b.unsqueeze(1), with).squeeze(-1);
  if (a.dim() > 2 && b.dim() == 2 && a.numel() > 0) return fold_product(op, a, b, with);
  return product(op, a, b, with);
}

// Before it is turned: a vector has nothing to turn.
void refuse_vector(const char* op, const Tensor& x) {
  if (x.dim() >= 2) return;
  throw InvalidArgument(std::string(op) + ": a matrix is wanted to turn, not " +
                        to_string(x.shape()));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (Autocast::is_enabled()) return in_lower_type([](auto&&... x) { return matmul(x...); }, a, b);
  return matmul_with("matmul", a, b, {});
}

Tensor adjoint_matmul(const Tensor& a, const Tensor& b) {
  if (Autocast::is_enabled()) {
    return in_lower_type([](auto&&... x) { return adjoint_matmul(x...); }, a, b);
  }
  refuse_vector("adjoint_matmul", a);
  return matmul_with("adjoint_matmul", turned(a), b, {.a = true});
}

Tensor matmul_adjoint(const Tensor& a, const Tensor& b) {
  if (Autocast::is_enabled()) {
    return in_lower_type([](auto&&... x) { return matmul_adjoint(x...); }, a, b);
  }
  refuse_vector("matmul_adjoint", b);
  return matmul_with("matmul_adjoint", a, turned(b), {.b = true});
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  if (Autocast::is_enabled()) return in_lower_type([](auto&&... x) { return bmm(x...); }, a, b);
  check_types("bmm", a, b);
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0)) {
    throw InvalidArgument("bmm: batches of matrices are wanted, not " + to_string(a.shape()) +
                          " x " + to_string(b.shape()));
  }
  return product("bmm", a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (Autocast::is_enabled()) {
    return in_lower_type([](auto&&... t) { return linear(t...); }, x, weight, bias);
  }
  check_linear(x, weight, bias);
  const Tensor y = linear_forward(x, weight, bias);
  return record("linear",
                {&x, &weight, &bias},
                y,
                {save_input(x, needs_grad(weight)), save_input(weight, needs_grad(x))},
                [](BackwardArgs& args) {
                  const Tensor rows = as_rows(args.grad());
                  if (args.needs(0)) args.set_grad(0, matmul(args.grad(), args.saved(1)));
                  if (args.needs(1)) args.set_grad(1, matmul(rows.t(), as_rows(args.saved(0))));
                  if (args.needs(2)) args.set_grad(2, sum(rows, {0}));
                });
}

}  // namespace headroom
