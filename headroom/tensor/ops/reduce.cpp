#include "headroom/tensor/ops/reduce.h"

#include <array>
#include <cmath>

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/compare.h"
#include "headroom/tensor/ops/conditional.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/ops/index.h"
#include "headroom/tensor/ops/unary.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// Which dimensions go, and what is left.
struct Plan {
  std::array<bool, kMaxDims> goes{};
  Shape kept{};      // without the reduced ones
  Shape kept_all{};  // with 1 in their place
  std::int64_t count = 1;

  [[nodiscard]] bool reduces(int dim) const { return goes[static_cast<std::size_t>(dim)]; }
  [[nodiscard]] const Shape& shape(bool keepdim) const { return keepdim ? kept_all : kept; }
};

Dims all_dims(const Tensor& x) {
  Dims out;
  for (int i = 0; i < x.dim(); ++i) out.push_back(i);
  return out;
}

Plan plan_for(const char* op, const Tensor& x, const Dims& dims) {
  Plan plan;
  for (const std::int64_t dim : dims) {
    auto& goes = plan.goes[static_cast<std::size_t>(normalize_dim(op, dim, x.shape()))];
    if (goes) {
      throw InvalidArgument(std::string(op) + ": a dimension comes twice in " + to_string(dims));
    }
    goes = true;
  }
  plan.kept_all = x.shape();
  for (int i = 0; i < x.dim(); ++i) {
    if (plan.reduces(i)) {
      plan.count *= x.shape()[i];
      plan.kept_all[i] = 1;
    } else {
      plan.kept.push_back(x.shape()[i]);
    }
  }
  return plan;
}

// Neighbours that lie one behind the other are one dimension.
void append_joined(Shape& shape,
                   std::array<std::int64_t, kMaxDims>& strides,
                   int from,
                   std::int64_t size,
                   std::int64_t stride) {
  if (size == 1) return;
  const int last = shape.size() - 1;
  if (last >= from && strides[static_cast<std::size_t>(last)] == stride * size) {
    shape[last] *= size;
    strides[static_cast<std::size_t>(last)] = stride;
    return;
  }
  strides[static_cast<std::size_t>(shape.size())] = stride;
  shape.push_back(size);
}

ReduceArgs reduce_args(ReduceOp op, const Tensor& x, const Plan& plan) {
  ReduceArgs args;
  args.op = op;
  args.compute = compute_type(x.dtype());
  args.in = {.data = pointer(x), .dtype = x.dtype()};
  Shape joined;
  for (const bool wanted : {false, true}) {
    const int from = joined.size();
    for (int i = 0; i < x.dim(); ++i) {
      if (plan.reduces(i) != wanted) continue;
      append_joined(joined, args.in.strides, from, x.shape()[i], x.strides()[i]);
    }
    Shape& side = wanted ? args.reduced : args.kept;
    for (int i = from; i < joined.size(); ++i) side.push_back(joined[i]);
  }
  return args;
}

// Of complex numbers each part by itself: a last dimension of two, which is kept.
void split_parts(ReduceArgs& args) {
  const int kept = args.kept.size();
  for (std::int64_t& stride : args.in.strides) stride *= 2;
  std::copy_backward(args.in.strides.begin() + kept,
                     args.in.strides.begin() + kept + args.reduced.size(),
                     args.in.strides.begin() + kept + args.reduced.size() + 1);
  args.in.strides[static_cast<std::size_t>(kept)] = 1;
  args.kept.push_back(2);
  args.in.dtype = DType::kF32;
  args.compute = ComputeType::kF32;
  args.out_dtype = DType::kF32;
}

// Sums and means alone have a meaning for them.
void check_complex(const char* name, ReduceOp op, const Tensor& x) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) refuse_complex(name, x.dtype());
  if (is_complex(x.dtype()) && x.dim() == kMaxDims) {
    throw InvalidArgument(std::string(name) + ": at most 7 dimensions of c64, not " +
                          to_string(x.shape()));
  }
}

Tensor reduce_to(const char* name,
                 ReduceOp op,
                 const Tensor& x,
                 const Plan& plan,
                 bool keepdim,
                 DType dtype,
                 const Tensor& index = {},
                 double parameter = 0) {
  check_complex(name, op, x);
  Tensor y = new_output(name, x, plan.shape(keepdim), dtype);
  if (y.numel() == 0) return y;
  ReduceArgs args = reduce_args(op, x, plan);
  args.out = pointer(y);
  args.out_dtype = dtype;
  if (index.defined()) args.index_out = static_cast<std::int64_t*>(pointer(index));
  args.parameter = parameter;
  if (is_complex(x.dtype())) split_parts(args);
  launch(name, x, &Kernels::reduce, args);
  return y;
}

DType added(DType dtype) { return is_differentiable(dtype) ? dtype : DType::kI64; }

void refuse_nothing(const char* name, const Plan& plan, const Tensor& x) {
  refuse_complex(name, x.dtype());
  if (plan.count > 0) return;
  throw InvalidArgument(std::string(name) + ": nothing to choose from in " + to_string(x.shape()));
}

Tensor sum_named(const Tensor& x, const Dims& dims, bool keepdim) {
  const Plan plan = plan_for("sum", x, dims);
  const Tensor y = reduce_to("sum", ReduceOp::kSum, x, plan, keepdim, added(x.dtype()));
  return record(
      {"sum", kEachInput}, {&x}, y, {}, [own = x.shape(), as = plan.kept_all](BackwardArgs& b) {
        b.set_grad(0, b.grad().reshape(as).expand(own));
      });
}

// The place of the extreme among the reduced elements is all a backward needs.
auto extreme_backward(const Tensor& x, const Plan& plan) {
  Dims order;
  for (int i = 0; i < x.dim(); ++i) {
    if (!plan.reduces(i)) order.push_back(i);
  }
  const int kept = order.size();
  for (int i = 0; i < x.dim(); ++i) {
    if (plan.reduces(i)) order.push_back(i);
  }
  return [own = x.shape(), order, kept](BackwardArgs& b) {
    // A gradient laid out kept dimensions first, so that the reduced ones are one; then turned
    // back.
    Shape turned;
    Shape flat;
    Dims inverse = Dims::filled(order.size(), 0);
    std::int64_t count = 1;
    for (int i = 0; i < order.size(); ++i) {
      const std::int64_t size = own[static_cast<int>(order[i])];
      inverse[static_cast<int>(order[i])] = i;
      turned.push_back(size);
      i < kept ? flat.push_back(size) : static_cast<void>(count *= size);
    }
    Shape picked = flat;
    picked.push_back(1);
    flat.push_back(count);
    const Tensor grad = new_output("max", b.grad(), flat, b.grad().dtype());
    grad.fill_(0);
    grad.scatter_(kept, b.saved(0).reshape(picked), b.grad().reshape(picked));
    b.set_grad(0, grad.view(turned).permute(inverse));
  };
}

// Values, with indices where somebody wants them: the caller, or a backward.
std::pair<Tensor, Tensor> choose(const char* name,
                                 ReduceOp op,
                                 const Tensor& x,
                                 const Dims& dims,
                                 bool keepdim,
                                 bool wants_index) {
  const Plan plan = plan_for(name, x, dims);
  refuse_nothing(name, plan, x);
  Tensor index;
  if (wants_index || needs_grad(x)) {
    index = new_output(name, x, plan.shape(keepdim), DType::kI64);
  }
  const Tensor y = reduce_to(name, op, x, plan, keepdim, x.dtype(), index);
  return {record({name, kEachOutput},
                 {&x},
                 y,
                 {save_output(index, index.defined())},
                 extreme_backward(x, plan)),
          index};
}

Tensor choose_index(
    const char* name, ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim) {
  const Plan plan = plan_for(name, x, dims);
  refuse_nothing(name, plan, x);
  return reduce_to(name, op, x, plan, keepdim, DType::kI64);
}

Tensor reduce_test(const char* name, ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce_to(name, op, x, plan_for(name, x, dims), keepdim, DType::kBool);
}

// Those that are as large as the largest share its gradient.
Tensor norm_inf_backward(const Tensor& g, const Tensor& x, const Tensor& y, const Dims& dims) {
  const Tensor hits = logical_or(eq(abs(x), y), isnan(x));
  const Tensor share = div(g, sum(hits, dims, true));
  return mul(sign(x), where(hits, share, 0));
}

// 0 / 0 where both are 0, which has the gradient 0; so has 0 itself below order 1, where the slope
// is infinite.
Tensor norm_backward(
    double order, const Tensor& g, const Tensor& x, const Tensor& y, const Dims& dims) {
  if (order == 1) return mul(g, sign(x));
  if (std::isinf(order)) return norm_inf_backward(g, x, y, dims);
  const Tensor zero = eq(order < 1 ? x : y, 0);
  if (order == 2) return where(zero, 0, mul(g, div(x, y)));
  const Tensor scaled = mul(sign(x), pow(div(abs(x), y), order - 1));
  return where(zero, 0, mul(g, scaled));
}

Tensor any_norm(const Tensor& x, double order, const Plan& plan, bool keepdim) {
  if (order == 1) return reduce_to("norm", ReduceOp::kNorm1, x, plan, keepdim, x.dtype());
  if (order == 2) return reduce_to("norm", ReduceOp::kNorm2, x, plan, keepdim, x.dtype());
  if (std::isinf(order)) return reduce_to("norm", ReduceOp::kNormInf, x, plan, keepdim, x.dtype());
  // In f32 at least: powers leave the range of 16 bits long before the norm does.
  const DType wide = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor powers = pow(abs(x.detach()).to(wide), order);
  const Tensor total = reduce_to("norm", ReduceOp::kSum, powers, plan, keepdim, wide);
  return total.pow_(1 / order).to(x.dtype());
}

// The share of each in the sum of exponentials. Taken relative to the largest, as y is rounded more
// than the shares may be. An infinite largest has no sum, and shares that are 0 or not a number.
Tensor logsumexp_backward(const Tensor& g, const Tensor& x, const Dims& dims) {
  if (x.numel() == 0) return zeros_like(x);
  const Tensor largest = amax(x.detach(), dims, true);
  const Tensor parts = exp(sub(x, largest));
  const Tensor total = where(eq(abs(largest), INFINITY), 1, sum(parts, dims, true));
  return mul(div(g, total), parts);
}

// Division by the factor itself, save where that is 0: there, the product of the others.
Tensor prod_backward(const Tensor& g, const Tensor& x, const Tensor& y, const Dims& dims) {
  const Tensor zero = eq(x, 0);
  const Tensor zeros = sum(zero, dims, true);
  const Tensor others = prod(where(zero, 1, x), dims, true);
  const Tensor alone = logical_and(zero, eq(zeros, 1));
  const Tensor factors = where(alone, others, div(y, where(zero, 1, x)));
  return mul(g, factors);
}

}  // namespace

Tensor sum(const Tensor& x) { return sum_named(x, all_dims(x), false); }
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) { return sum_named(x, dims, keepdim); }

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  if (!is_complex(x.dtype())) check_floating("mean", x);
  const Plan plan = plan_for("mean", x, dims);
  const Tensor y = reduce_to("mean", ReduceOp::kMean, x, plan, keepdim, x.dtype());
  return record({"mean", kEachInput},
                {&x},
                y,
                {},
                [own = x.shape(), as = plan.kept_all, count = plan.count](BackwardArgs& b) {
                  b.set_grad(0, div(b.grad(), count).reshape(as).expand(own));
                });
}
Tensor mean(const Tensor& x) { return mean(x, all_dims(x)); }

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  const Plan plan = plan_for("prod", x, dims);
  const Tensor y = reduce_to("prod", ReduceOp::kProd, x, plan, keepdim, added(x.dtype()));
  return record(
      {"prod", kEachInput},
      {&x},
      y,
      {save_input(x), save_output(y)},
      [dims, as = plan.kept_all](BackwardArgs& b) {
        b.set_grad(0,
                   prod_backward(b.grad().reshape(as), b.saved(0), b.saved(1).reshape(as), dims));
      });
}
Tensor prod(const Tensor& x) { return prod(x, all_dims(x)); }

Tensor max(const Tensor& x) {
  return choose("max", ReduceOp::kMax, x, all_dims(x), false, false).first;
}
Tensor min(const Tensor& x) {
  return choose("min", ReduceOp::kMin, x, all_dims(x), false, false).first;
}
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return choose("amax", ReduceOp::kMax, x, dims, keepdim, false).first;
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return choose("amin", ReduceOp::kMin, x, dims, keepdim, false).first;
}
std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim) {
  return choose("max", ReduceOp::kMax, x, {dim}, keepdim, true);
}
std::pair<Tensor, Tensor> min(const Tensor& x, int dim, bool keepdim) {
  return choose("min", ReduceOp::kMin, x, {dim}, keepdim, true);
}
Tensor argmax(const Tensor& x) {
  return choose_index("argmax", ReduceOp::kArgmax, x, all_dims(x), false);
}
Tensor argmin(const Tensor& x) {
  return choose_index("argmin", ReduceOp::kArgmin, x, all_dims(x), false);
}
Tensor argmax(const Tensor& x, int dim, bool keepdim) {
  return choose_index("argmax", ReduceOp::kArgmax, x, {dim}, keepdim);
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
  return choose_index("argmin", ReduceOp::kArgmin, x, {dim}, keepdim);
}

Tensor any(const Tensor& x) { return reduce_test("any", ReduceOp::kAny, x, all_dims(x), false); }
Tensor all(const Tensor& x) { return reduce_test("all", ReduceOp::kAll, x, all_dims(x), false); }
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce_test("any", ReduceOp::kAny, x, dims, keepdim);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce_test("all", ReduceOp::kAll, x, dims, keepdim);
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_floating("var", x);
  const Plan plan = plan_for("var", x, dims);
  const Tensor y = reduce_to("var", ReduceOp::kVar, x, plan, keepdim, x.dtype(), {}, correction);
  const double divisor = static_cast<double>(plan.count) - correction;
  // The mean is had again: it costs a pass, and no memory until then.
  return record({"var", kEachInput},
                {&x},
                y,
                {save_input(x)},
                [dims, divisor, as = plan.kept_all](BackwardArgs& b) {
                  const Tensor input = b.saved(0);
                  const Tensor scaled = mul(b.grad().reshape(as), 2 / divisor);
                  b.set_grad(0, mul(sub(input, mean(input, dims, true)), scaled));
                });
}
Tensor var(const Tensor& x) { return var(x, all_dims(x)); }

Tensor norm(const Tensor& x, double order, const Dims& dims, bool keepdim) {
  check_floating("norm", x);
  if (Autocast::is_enabled()) {
    return in_f32([&](auto&& t) { return norm(t, order, dims, keepdim); }, x);
  }
  if (!(order > 0))
    throw InvalidArgument("norm: order " + to_string(Scalar(order)) + " is not above 0");
  const Plan plan = plan_for("norm", x, dims);
  const Tensor y = any_norm(x, order, plan, keepdim);
  return record({"norm", kEachInput},
                {&x},
                y,
                {save_input(x), save_output(y, order != 1)},
                [order, dims, as = plan.kept_all](BackwardArgs& b) {
                  const Tensor out = order == 1 ? Tensor() : b.saved(1).reshape(as);
                  const Tensor grad = b.grad().reshape(as);
                  b.set_grad(0, norm_backward(order, grad, b.saved(0), out, dims));
                });
}
Tensor norm(const Tensor& x, double order) { return norm(x, order, all_dims(x)); }

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  check_floating("logsumexp", x);
  const Plan plan = plan_for("logsumexp", x, dims);
  const Tensor y = reduce_to("logsumexp", ReduceOp::kLogSumExp, x, plan, keepdim, x.dtype());
  return record({"logsumexp", kEachInput},
                {&x},
                y,
                {save_input(x)},
                [dims, as = plan.kept_all](BackwardArgs& b) {
                  b.set_grad(0, logsumexp_backward(b.grad().reshape(as), b.saved(0), dims));
                });
}

Tensor Tensor::sum() const { return headroom::sum(*this); }
Tensor Tensor::sum(const Dims& dims, bool keepdim) const {
  return headroom::sum(*this, dims, keepdim);
}
Tensor Tensor::mean() const { return headroom::mean(*this); }
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
  return headroom::mean(*this, dims, keepdim);
}

}  // namespace headroom
