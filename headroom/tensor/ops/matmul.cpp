#include "headroom/tensor/ops/matmul.h"

#include <algorithm>
#include <limits>

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

Tensor dense(const Tensor& x) {
  MatrixOperand unused;
  const GradModeScope no_grad(false);
  return describe(x, unused) ? x : x.clone();
}

MatrixOperand operand(const Tensor& x, const Shape& batch) {
  MatrixOperand out;
  (void)describe(x, out);
  out.data = pointer(x);
  Shape own = x.shape();
  Strides strides = x.strides();
  for (int i = 0; i < 2; ++i) {
    own.erase(own.size() - 1);
    strides.erase(strides.size() - 1);
  }
  const Strides spread = broadcast_strides(own, strides, batch);
  std::copy(spread.begin(), spread.end(), out.batch_strides.begin());
  return out;
}

Shape batch_of(const Tensor& x) {
  Shape out = x.shape();
  out.erase(out.size() - 1);
  out.erase(out.size() - 1);
  return out;
}

// f16 and bf16 are converted one product at a time; how much room that takes is a rule of shapes.
Tensor workspace_for(const char* op, const MatmulArgs& args, const Tensor& like) {
  if (args.dtype != DType::kF16 && args.dtype != DType::kBF16) return {};
  const std::int64_t elements = args.m * args.k + args.k * args.n + args.m * args.n;
  return new_workspace(op, like, {elements}, DType::kF32);
}

// Both have at least two dimensions.
Tensor multiply(const char* op, const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  MatmulArgs args;
  args.dtype = a.dtype();
  args.m = a.size(-2);
  args.k = a.size(-1);
  args.n = b.size(-1);
  if (args.k != b.size(-2)) refuse_inner(op, a, b);
  check_sizes(op, {args.m, args.k, args.n});
  args.batch = broadcast_shapes(op, batch_of(a), batch_of(b));
  Shape shape = args.batch;
  shape.push_back(args.m);
  shape.push_back(args.n);
  const Tensor y = new_output(op, a, shape, a.dtype());
  if (y.numel() == 0) return y;
  const Tensor left = dense(a);
  const Tensor right = dense(b);
  const Tensor row = bias.defined() ? bias.detach().contiguous() : Tensor();
  const Tensor workspace = workspace_for(op, args, a);
  args.a = operand(left, args.batch);
  args.b = operand(right, args.batch);
  args.out = pointer(y);
  if (row.defined()) args.bias = pointer(row);
  if (workspace.defined()) args.workspace = static_cast<float*>(pointer(workspace));
  launch(launch_on(y), &Kernels::matmul, args);
  return y;
}

Tensor turned(const Tensor& x) { return x.transpose(-2, -1); }

// Saved: a, where b wants a gradient, and the other way round.
Tensor product(const char* op, const Tensor& a, const Tensor& b) {
  const Tensor y = multiply(op, a, b);
  return record(op,
                {&a, &b},
                y,
                {save_input(a, needs_grad(b)), save_input(b, needs_grad(a))},
                [sa = a.shape(), sb = b.shape()](BackwardArgs& args) {
                  const Tensor& g = args.grad();
                  if (args.needs(0)) args.set_grad(0, sum_to(matmul(g, turned(args.saved(1))), sa));
                  if (args.needs(1)) args.set_grad(1, sum_to(matmul(turned(args.saved(0)), g), sb));
                });
}

void refuse_scalar(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dim() > 0 && b.dim() > 0) return;
  throw InvalidArgument(std::string(op) + ": a tensor of no dimensions is not a matrix: " +
                        to_string(a.shape()) + " x " + to_string(b.shape()));
}

// Batches of a times one b is one tall matrix times b: one product, and no batch of gradients.
Tensor fold_product(const Tensor& a, const Tensor& b) {
  Shape shape = a.shape();
  shape[shape.size() - 1] = b.size(-1);
  return product("matmul", a.reshape({-1, a.size(-1)}), b).view(shape);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_types("matmul", a, b);
  refuse_scalar("matmul", a, b);
  if (a.size(-1) != b.size(b.dim() == 1 ? 0 : -2)) refuse_inner("matmul", a, b);
  if (a.dim() == 1) {
    const Tensor row = matmul(a.unsqueeze(0), b);
    return row.squeeze(b.dim() == 1 ? 0 : row.dim() - 2);
  }
  if (b.dim() == 1) return matmul(a, b.unsqueeze(1)).squeeze(-1);
  if (a.dim() > 2 && b.dim() == 2 && a.numel() > 0) return fold_product(a, b);
  return product("matmul", a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_types("bmm", a, b);
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0)) {
    throw InvalidArgument("bmm: batches of matrices are wanted, not " + to_string(a.shape()) +
                          " x " + to_string(b.shape()));
  }
  return product("bmm", a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
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
  Shape shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  const std::int64_t rows =
      checked_numel("linear", shape) / std::max<std::int64_t>(weight.size(0), 1);
  Tensor y;
  {
    const GradModeScope no_grad(false);
    const Tensor flat =
        x.reshape({weight.size(0) == 0 ? x.numel() / std::max<std::int64_t>(x.size(-1), 1) : rows,
                   x.size(-1)});
    y = multiply("linear", flat, weight.t(), bias).view(shape);
    auto fresh = std::make_shared<Impl>(y.impl());
    fresh->base = nullptr;  // an output, not a view of one
    fresh->is_untracked = false;
    y = Tensor(std::move(fresh));
  }
  return record("linear",
                {&x, &weight, &bias},
                y,
                {save_input(x, needs_grad(weight)), save_input(weight, needs_grad(x))},
                [](BackwardArgs& args) {
                  const Tensor flat = args.grad().reshape({-1, args.grad().size(-1)});
                  if (args.needs(0)) args.set_grad(0, matmul(args.grad(), args.saved(1)));
                  if (args.needs(1)) {
                    const Tensor input = args.saved(0);
                    args.set_grad(1, matmul(flat.t(), input.reshape({-1, input.size(-1)})));
                  }
                  if (args.needs(2)) args.set_grad(2, sum(flat, {0}));
                });
}

}  // namespace headroom
