#include "headroom/tensor/ops/matmul.h"

#include <algorithm>
#include <limits>

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/reduce.h"
#include "headroom/tensor/ops/unary.h"

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

// A product to come: its arguments but for what it is written to, and what they point to.
struct Product {
  // Both have at least two dimensions. Throws where they do not go together.
  Product(const char* op_name, const Tensor& a, const Tensor& b, Conjugated with = {})
      : op(op_name), like(a) {
    args.dtype = a.dtype();
    args.compute = matmul_compute(a.dtype(), MatmulPrecision::allows_tf32());
    args.m = a.shape()[a.dim() - 2];
    args.k = a.shape()[a.dim() - 1];
    args.n = b.shape()[b.dim() - 1];
    if (args.k != b.shape()[b.dim() - 2]) refuse_inner(op, a, b);
    check_sizes(op, {args.m, args.k, args.n});
    if (a.dim() > 2 || b.dim() > 2) {
      args.batch = broadcast_shapes(op, batch_of(a), batch_of(b));
    }
    shape = args.batch;
    shape.push_back(args.m);
    shape.push_back(args.n);
    args.a.is_conjugated = with.a;
    args.b.is_conjugated = with.b;
    right = b;
  }

  [[nodiscard]] bool is_empty() const { return checked_numel(op, shape) == 0; }
  void set_bias(const Tensor& bias) {
    if (!bias.defined()) return;
    row = bias.detach().contiguous();
    args.bias = pointer(row);
  }
  [[nodiscard]] bool is_accepted() const {
    return accepts(like.storage().allocator(), &Kernels::matmul, args);
  }
  void run_into(const Tensor& out) {
    if (is_empty()) return;
    args.a = operand(like, args.batch, args.a.is_conjugated, left_copy);
    args.b = operand(right, args.batch, args.b.is_conjugated, right_copy);
    args.out = pointer(out);
    launch(op, out, &Kernels::matmul, args);
  }

  const char* op;
  Tensor like;  // the left operand
  Tensor right;
  MatmulArgs args{};
  Shape shape{};  // of the result
  Tensor row{};
  Tensor left_copy{};
  Tensor right_copy{};
};

Tensor multiply(const char* op,
                const Tensor& a,
                const Tensor& b,
                const Tensor& bias = {},
                Conjugated with = {}) {
  Product product(op, a, b, with);
  product.set_bias(bias);
  Tensor y = new_output(op, a, product.shape, a.dtype());
  product.run_into(y);
  return y;
}

// Adds a product to what is in `sum`, of as many elements. False where the backend cannot.
bool add_product(Product& product, const Tensor& sum) {
  product.args.adds = true;
  if (!product.is_accepted()) {
    product.args.adds = false;
    return false;
  }
  product.run_into(sum);
  sum.storage().bump_version();
  return true;
}

// Gives a b as the gradient of an input of their product's size: added to what there is of it by
// the same launch where it can be, else in a tensor of its own, of this shape.
void give_product(BackwardArgs& args, std::size_t input, Product product, const Shape& shape) {
  const Tensor sum = args.sum_so_far(input);
  if (sum.defined() && add_product(product, sum)) {
    args.set_grad(input, sum);
    return;
  }
  const Tensor out = new_output(product.op, product.like, shape, product.args.dtype);
  product.run_into(out);
  args.set_grad(input, out);
}

// A multiplication and an addition for each of the k products behind an element of the result.
double product_work(const Tensor& result, std::int64_t k) {
  return 2 * static_cast<double>(result.numel()) * static_cast<double>(k);
}

Tensor turned(const Tensor& x) { return x.transpose(-2, -1); }

Tensor matmul_with(const char* op, const Tensor& a, const Tensor& b, Conjugated with);

// Whether gradients are products as they are: of one matrix each, and nothing recorded.
bool is_plain(BackwardArgs& args, const Shape& a, const Shape& b) {
  return !GradMode::is_enabled() && a.size() == 2 && b.size() == 2 && args.grad().dim() == 2;
}

void give_plain_gradients(BackwardArgs& args, Conjugated with) {
  const Tensor& g = args.grad();
  const bool differ = with.a != with.b;
  if (args.needs(0)) {
    const Tensor other = turned(args.saved(1));
    Product product("matmul", g, other, {.a = with.a, .b = !differ});
    const Shape shape = product.shape;
    give_product(args, 0, std::move(product), shape);
  }
  if (args.needs(1)) {
    const Tensor other = turned(args.saved(0));
    Product product("matmul", other, g, {.a = !differ, .b = with.b});
    const Shape shape = product.shape;
    give_product(args, 1, std::move(product), shape);
  }
}

// Saved: a, where b wants a gradient, and the other way round. The gradient of A in A B is g B^H,
// and that of a where A is its conjugate is the conjugate of that: both are products again.
Tensor product(const char* op, const Tensor& a, const Tensor& b, Conjugated with = {}) {
  const Tensor y = multiply(op, a, b, {}, with);
  return record(
      {op, counted(product_work(y, a.size(-1)))},
      {&a, &b},
      y,
      {save_input(a, needs_grad(b)), save_input(b, needs_grad(a))},
      [sa = a.shape(), sb = b.shape(), with](BackwardArgs& args) {
        const Tensor& g = args.grad();
        const auto take = [](const Tensor& x, const Tensor& z, Conjugated how, const Shape& to) {
          return sum_to(matmul_with("matmul", x, z, how), to);
        };
        const bool differ = with.a != with.b;
        if (is_plain(args, sa, sb)) {
          give_plain_gradients(args, with);
          return;
        }
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

Shape linear_shape(const Tensor& x, const Tensor& weight) {
  Shape out = x.shape();
  out[out.size() - 1] = weight.size(0);
  return out;
}

Product linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Product out("linear", as_rows(x), weight.t());
  out.set_bias(bias);
  return out;
}

// Of y = x weight^T + bias for the gradient g of y: each where it is wanted. The bias's is a sum of
// what the weight's reads, so where the backend can, one launch does both.
void give_linear_gradients(BackwardArgs& args, const Tensor& g) {
  const GradModeScope no_grad(false);
  const Tensor rows = as_rows(g);
  if (args.needs(0)) {
    const Tensor weight = args.saved(1);
    Shape shape = g.shape();
    shape[shape.size() - 1] = weight.size(1);
    give_product(args, 0, Product("linear", rows, weight), shape);
  }
  Tensor bias_grad;
  if (args.needs(1)) {
    const Tensor x = args.saved(0);
    Product product("linear", rows.t(), as_rows(x));
    if (args.needs(2) && !product.is_empty()) {
      bias_grad = new_output("linear", g, {rows.size(1)}, g.dtype());
      product.args.row_sums = pointer(bias_grad);
      if (!product.is_accepted()) {
        product.args.row_sums = nullptr;
        bias_grad = {};
      }
    }
    const Shape shape = product.shape;
    give_product(args, 1, std::move(product), shape);
  }
  if (!args.needs(2)) return;
  args.set_grad(2, bias_grad.defined() ? bias_grad : sum(rows, {0}));
}

// The same by ops that are recorded themselves.
void give_recorded_linear_gradients(BackwardArgs& args) {
  const Tensor rows = as_rows(args.grad());
  if (args.needs(0)) args.set_grad(0, matmul(args.grad(), args.saved(1)));
  if (args.needs(1)) args.set_grad(1, matmul(rows.t(), as_rows(args.saved(0))));
  if (args.needs(2)) args.set_grad(2, sum(rows, {0}));
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
  const Tensor y = [&] {
    const GradModeScope no_grad(false);
    Product product = linear_product(x, weight, bias);
    Tensor out = new_output("linear", x, linear_shape(x, weight), x.dtype());
    product.run_into(out);
    return out;
  }();
  return record({"linear", counted(product_work(y, x.size(-1)))},
                {&x, &weight, &bias},
                y,
                {save_input(x, needs_grad(weight)), save_input(weight, needs_grad(x))},
                [](BackwardArgs& args) {
                  GradMode::is_enabled() ? give_recorded_linear_gradients(args)
                                         : give_linear_gradients(args, args.grad());
                });
}

namespace {

ElementOp gelu_backward_of(Activation activation) {
  return activation == Activation::kGelu ? ElementOp::kGeluBackward : ElementOp::kGeluTanhBackward;
}

// Saved: x, the weight, and what went into the activation.
void linear_gelu_backward(BackwardArgs& args, Activation activation) {
  const Tensor& g = args.grad();
  const Tensor kept = args.saved(2);
  refuse_second_derivative("linear_gelu", {&g, &kept});
  // Over the gradient itself, where nobody looks at that again.
  const Tensor before = args.owns_grad() ? g : new_output("linear_gelu", g, g.shape(), g.dtype());
  run_element(gelu_backward_of(activation), g.dtype(), before, {g, kept});
  give_linear_gradients(args, before);
}

Tensor fused_linear_gelu(Product product,
                         const Tensor& x,
                         const Tensor& weight,
                         const Tensor& bias,
                         const Tensor& kept) {
  const Tensor y = new_output("linear_gelu", x, linear_shape(x, weight), x.dtype());
  product.run_into(y);
  return record({"linear_gelu", counted(product_work(y, x.size(-1)))},
                {&x, &weight, &bias},
                y,
                {save_input(x, needs_grad(weight)),
                 save_input(weight, needs_grad(x)),
                 save_output(kept, kept.defined())},
                [activation = product.args.activation](BackwardArgs& args) {
                  linear_gelu_backward(args, activation);
                });
}

}  // namespace

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool is_tanh) {
  if (Autocast::is_enabled()) {
    return in_lower_type(
        [is_tanh](auto&&... t) { return linear_gelu(t..., is_tanh); }, x, weight, bias);
  }
  check_linear(x, weight, bias);
  check_floating("linear_gelu", x);
  Product product = [&] {
    const GradModeScope no_grad(false);
    return linear_product(x, weight, bias);
  }();
  product.args.activation = is_tanh ? Activation::kGeluTanh : Activation::kGelu;
  Tensor kept;
  if (product.is_accepted() && !product.is_empty()) {
    if (any_needs_grad({&x, &weight, &bias})) {
      kept = new_output("linear_gelu", x, linear_shape(x, weight), x.dtype());
      product.args.kept = pointer(kept);
    }
    if (product.is_accepted()) return fused_linear_gelu(std::move(product), x, weight, bias, kept);
  }
  const Tensor before = linear(x, weight, bias);
  return is_tanh ? gelu_tanh(before) : gelu(before);
}

}  // namespace headroom
