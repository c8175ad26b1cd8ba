#include "headroom/tensor/ops/softmax.h"

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/index.h"
#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

RowsShape rows_of(const Shape& shape, int dim) {
  RowsShape rows;
  for (int i = 0; i < shape.size(); ++i) {
    (i < dim ? rows.outer : i > dim ? rows.inner : rows.classes) *= shape[i];
  }
  return rows;
}

// Saved: the output y.
Tensor softmax_backward(
    const char* name, const Tensor& grad, const Tensor& y, int dim, bool is_log) {
  refuse_second_derivative(name, {&grad, &y});
  const Tensor dense = grad.contiguous();
  Tensor out = new_output(name, y, y.shape(), y.dtype());
  if (out.numel() == 0) return out;
  const SoftmaxArgs args{.rows = rows_of(y.shape(), dim),
                         .is_log = is_log,
                         .dtype = y.dtype(),
                         .in = pointer(y),
                         .grad = pointer(dense),
                         .out = pointer(out)};
  launch(name, out, &Kernels::softmax_backward, args);
  return out;
}

Tensor softmax_named(const char* name, const Tensor& x, int dim, bool is_log) {
  check_floating(name, x);
  dim = normalize_dim(name, dim, x.shape());
  Tensor dense;
  {
    const GradModeScope no_grad(false);
    dense = x.contiguous();
  }
  const Tensor y = new_output(name, x, x.shape(), x.dtype());
  if (y.numel() > 0) {
    const SoftmaxArgs args{.rows = rows_of(x.shape(), dim),
                           .is_log = is_log,
                           .dtype = x.dtype(),
                           .in = pointer(dense),
                           .out = pointer(y)};
    launch(name, y, &Kernels::softmax, args);
  }
  return record(
      {name, kEachOutput}, {&x}, y, {save_output(y)}, [name, dim, is_log](BackwardArgs& b) {
        b.set_grad(0, softmax_backward(name, b.grad(), b.saved(0), dim, is_log));
      });
}

void check_target(const Tensor& logits, const Tensor& target, std::int64_t ignored) {
  check_floating("cross_entropy", logits);
  check_same_device("cross_entropy", logits, target);
  Shape expected = logits.shape();
  if (logits.dim() >= 2) expected.erase(1);
  if (logits.dim() < 2 || target.shape() != expected) {
    throw InvalidArgument("cross_entropy: logits of " + to_string(logits.shape()) +
                          " do not go with targets of " + to_string(target.shape()));
  }
  check_indices("cross_entropy", target, logits.size(1), ignored);
}

DType wide_type(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

CrossEntropyArgs loss_args(const Tensor& logits,
                           const Tensor& target,
                           const Tensor& kept,
                           const CrossEntropyOptions& options) {
  CrossEntropyArgs args;
  args.rows = rows_of(logits.shape(), 1);
  args.dtype = logits.dtype();
  args.logits = pointer(logits);
  args.target = static_cast<const std::int64_t*>(pointer(target));
  args.ignore_index = options.ignore_index;
  args.is_mean = options.reduction == Reduction::kMean;
  if (kept.defined()) args.kept = pointer(kept);
  return args;
}

// Saved: logits, targets, and a number of each row.
Tensor cross_entropy_backward(const Tensor& grad,
                              const Tensor& logits,
                              const Tensor& target,
                              const Tensor& kept,
                              const CrossEntropyOptions& options) {
  refuse_second_derivative("cross_entropy", {&grad, &logits});
  const Tensor x = logits.contiguous();
  const Tensor t = target.contiguous();
  const Tensor g = grad.contiguous();
  Tensor out = new_output("cross_entropy", x, x.shape(), x.dtype());
  if (out.numel() == 0) return out;
  CrossEntropyArgs args = loss_args(x, t, kept, options);
  args.is_backward = true;
  args.out = pointer(out);
  args.grad = pointer(g);
  args.grad_is_row = options.reduction == Reduction::kNone;
  launch("cross_entropy", out, &Kernels::cross_entropy, args);
  return out;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  if (Autocast::is_enabled()) return in_f32([dim](auto&& t) { return softmax(t, dim); }, x);
  return softmax_named("softmax", x, dim, false);
}
Tensor log_softmax(const Tensor& x, int dim) {
  if (Autocast::is_enabled()) return in_f32([dim](auto&& t) { return log_softmax(t, dim); }, x);
  return softmax_named("log_softmax", x, dim, true);
}

Tensor cross_entropy(const Tensor& logits,
                     const Tensor& target,
                     const CrossEntropyOptions& options) {
  if (Autocast::is_enabled()) {
    return in_f32([&](auto&& x) { return cross_entropy(x, target, options); }, logits);
  }
  check_target(logits, target, options.ignore_index);
  const bool is_row = options.reduction == Reduction::kNone;
  const DType wide = wide_type(logits.dtype());
  const Tensor y =
      new_output("cross_entropy", logits, is_row ? target.shape() : Shape(), logits.dtype());
  const Tensor losses = new_workspace("cross_entropy", logits, target.shape(), wide);
  Tensor kept;
  if (needs_grad(logits)) kept = new_output("cross_entropy", logits, target.shape(), wide);
  {
    const GradModeScope no_grad(false);
    const Tensor x = logits.contiguous();
    const Tensor t = target.contiguous();
    CrossEntropyArgs args = loss_args(x, t, kept, options);
    args.losses = pointer(losses);
    if (!is_row) args.out = pointer(y);
    launch("cross_entropy", y, &Kernels::cross_entropy, args);
    if (is_row) run_element(ElementOp::kCopy, wide, y, {losses});
  }
  return record(
      {"cross_entropy", kEachInput},
      {&logits},
      y,
      {save_input(logits), save_input(target), save_output(kept, kept.defined())},
      [options](BackwardArgs& b) {
        b.set_grad(0,
                   cross_entropy_backward(b.grad(), b.saved(0), b.saved(1), b.saved(2), options));
      });
}

}  // namespace headroom
