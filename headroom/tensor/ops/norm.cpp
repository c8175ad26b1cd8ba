#include "headroom/tensor/ops/norm.h"

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/binary.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

DType statistics_type(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Null for a tensor that is not there.
void* pointer_or_null(const Tensor& tensor) { return tensor.defined() ? pointer(tensor) : nullptr; }

Tensor dense_or_none(const Tensor& tensor) {
  const GradModeScope no_grad(false);
  return tensor.defined() ? tensor.contiguous() : Tensor();
}

void check_parameter_shape(
    const char* op, const char* what, const Tensor& x, const Tensor& own, const Shape& shape) {
  check_same_device(op, x, own);
  if (own.shape() == shape) return;
  throw InvalidArgument(std::string(op) + ": a " + what + " of " + to_string(own.shape()) +
                        " for " + to_string(shape));
}

// Of the type of x, or f32 where that has 16 bits.
void check_parameter(
    const char* op, const char* what, const Tensor& x, const Tensor& own, const Shape& shape) {
  if (!own.defined()) return;
  check_parameter_shape(op, what, x, own, shape);
  if (own.dtype() == x.dtype() || own.dtype() == statistics_type(x.dtype())) return;
  throw InvalidArgument(std::string(op) + ": a " + what + " of " +
                        std::string(to_string(own.dtype())) + " for " +
                        std::string(to_string(x.dtype())));
}

// Of any floating type.
void check_running(const char* what, const Tensor& x, const Tensor& own) {
  if (!own.defined()) return;
  check_floating("batch_norm", own);
  check_parameter_shape("batch_norm", what, x, own, {x.size(1)});
}

void check_pair(
    const char* op, const char* first, const Tensor& a, const char* second, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.dtype() == b.dtype()) return;
  throw InvalidArgument(std::string(op) + ": types of " + first + " and " + second +
                        " differ: " + std::string(to_string(a.dtype())) + " and " +
                        std::string(to_string(b.dtype())));
}

DType parameter_type(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) return weight.dtype();
  return bias.defined() ? bias.dtype() : x.dtype();
}

// A gradient for input `at` of the op, where one is wanted.
Tensor gradient_for(
    const char* op, BackwardArgs& b, std::size_t at, const Shape& shape, DType dtype) {
  return b.needs(at) ? new_output(op, b.grad(), shape, dtype) : Tensor();
}

void set_gradients(BackwardArgs& b, std::initializer_list<const Tensor*> gradients) {
  std::size_t at = 0;
  for (const Tensor* gradient : gradients) {
    if (gradient->defined()) b.set_grad(at, *gradient);
    ++at;
  }
}

// --- Layer norm
// -----------------------------------------------------------------------------------

void check_layer_norm(const Tensor& x,
                      const Shape& normalized,
                      const Tensor& weight,
                      const Tensor& bias) {
  check_floating("layer_norm", x);
  const int skip = x.dim() - normalized.size();
  bool fits = skip >= 0 && !normalized.empty();
  for (int i = 0; fits && i < normalized.size(); ++i) fits = x.shape()[skip + i] == normalized[i];
  if (!fits) {
    throw InvalidArgument("layer_norm: " + to_string(x.shape()) + " does not end with " +
                          to_string(normalized));
  }
  check_parameter("layer_norm", "weight", x, weight, normalized);
  check_parameter("layer_norm", "bias", x, bias, normalized);
  check_pair("layer_norm", "weight", weight, "bias", bias);
}

LayerNormArgs layer_args(const Tensor& x, const Shape& normalized, DType parameters, double eps) {
  LayerNormArgs args{.dtype = x.dtype(), .parameter_dtype = parameters, .rows = 1, .eps = eps};
  args.width = checked_numel("layer_norm", normalized);
  for (int i = 0; i < x.dim() - normalized.size(); ++i) args.rows *= x.shape()[i];
  return args;
}

void run_layer_norm(LayerNormArgs args,
                    const Tensor& x,
                    const Tensor& weight,
                    const Tensor& like,
                    Kernel<LayerNormArgs> Kernels::*kernel = &Kernels::layer_norm) {
  if (args.width == 0) return;
  const Tensor dense = dense_or_none(x);
  const Tensor w = dense_or_none(weight);
  args.x = pointer_or_null(dense);
  args.weight = pointer_or_null(w);
  launch("layer_norm", like, kernel, args);
}

// Saved: x, weight, and of each row the mean and 1 / deviation.
void layer_norm_backward(LayerNormArgs args, const Shape& normalized, BackwardArgs& b) {
  const Tensor x = b.saved(0);
  const Tensor weight = b.saved(1);
  refuse_second_derivative("layer_norm", {&b.grad(), &x, &weight});
  const Tensor grad = b.grad().contiguous();
  const Tensor mean = b.saved(2);
  const Tensor rstd = b.saved(3);
  args.is_backward = true;
  args.adds_x_grad = true;
  Tensor dx;
  if (b.needs(0) && accepts(grad.storage().allocator(), &Kernels::layer_norm, args)) {
    dx = b.sum_so_far(0);
  }
  args.adds_x_grad = dx.defined();
  if (!dx.defined()) dx = gradient_for("layer_norm", b, 0, grad.shape(), args.dtype);
  const Tensor dw = gradient_for("layer_norm", b, 1, normalized, args.parameter_dtype);
  const Tensor db = gradient_for("layer_norm", b, 2, normalized, args.parameter_dtype);
  args.grad = pointer(grad);
  args.mean = pointer(mean);
  args.rstd = pointer(rstd);
  args.x_grad = pointer_or_null(dx);
  args.weight_grad = pointer_or_null(dw);
  args.bias_grad = pointer_or_null(db);
  run_layer_norm(args, x, weight, grad);
  if (args.adds_x_grad) dx.storage().bump_version();
  set_gradients(b, {&dx, &dw, &db});
}

// --- Batch norm
// -----------------------------------------------------------------------------------

void check_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var) {
  check_floating("batch_norm", x);
  if (x.dim() < 2) {
    throw InvalidArgument("batch_norm: [batch, channels, ...] is wanted, not " +
                          to_string(x.shape()));
  }
  if (running_mean.defined() == running_var.defined()) return;
  throw InvalidArgument("batch_norm: running mean and variance go together");
}

void check_channels(const Tensor& x,
                    const Tensor& weight,
                    const Tensor& bias,
                    const Tensor& running_mean,
                    const Tensor& running_var) {
  const Shape channels{x.size(1)};
  check_parameter("batch_norm", "weight", x, weight, channels);
  check_parameter("batch_norm", "bias", x, bias, channels);
  check_running("running mean", x, running_mean);
  check_running("running variance", x, running_var);
  check_pair("batch_norm", "weight", weight, "bias", bias);
  check_pair("batch_norm", "running mean", running_mean, "variance", running_var);
}

BatchNormArgs channel_args(const Tensor& x, const BatchNormOptions& options) {
  BatchNormArgs args{.dtype = x.dtype(),
                     .batch = x.size(0),
                     .channels = x.size(1),
                     .eps = options.eps,
                     .momentum = options.momentum};
  for (int i = 2; i < x.dim(); ++i) args.inner *= x.shape()[i];
  return args;
}

void check_batch(const Tensor& x, const BatchNormArgs& args) {
  if (!args.uses_batch || args.batch * args.inner != 1) return;
  throw InvalidArgument(
      "batch_norm: the batch's own statistics want more than one value a "
      "channel, not " +
      to_string(x.shape()));
}

void set_running(BatchNormArgs& args, const Tensor& mean, const Tensor& var) {
  if (!mean.defined()) return;
  args.running_dtype = mean.dtype();
  args.running_mean = pointer(mean);
  args.running_var = pointer(var);
  args.running_mean_stride = mean.strides()[0];
  args.running_var_stride = var.strides()[0];
}

void run_batch_norm(BatchNormArgs args, const Tensor& x, const Tensor& weight, const Tensor& like) {
  const Tensor dense = dense_or_none(x);
  const Tensor w = dense_or_none(weight);
  args.x = pointer_or_null(dense);
  args.weight = pointer_or_null(w);
  launch("batch_norm", like, &Kernels::batch_norm, args);
}

// Saved: x, weight, and of each channel the mean and 1 / deviation, or the running statistics.
void batch_norm_backward(BatchNormArgs args, BackwardArgs& b) {
  const Tensor x = b.saved(0);
  const Tensor weight = b.saved(1);
  refuse_second_derivative("batch_norm", {&b.grad(), &x, &weight});
  const Tensor grad = b.grad().contiguous();
  const Tensor mean = b.saved(2);
  const Tensor scale = b.saved(3);
  const Shape channels{args.channels};
  const Tensor dx = gradient_for("batch_norm", b, 0, grad.shape(), args.dtype);
  const Tensor dw = gradient_for("batch_norm", b, 1, channels, args.parameter_dtype);
  const Tensor db = gradient_for("batch_norm", b, 2, channels, args.parameter_dtype);
  args.is_backward = true;
  args.grad = pointer(grad);
  if (args.uses_batch) {
    args.mean = pointer(mean);
    args.rstd = pointer(scale);
  } else {
    set_running(args, mean, scale);
  }
  args.x_grad = pointer_or_null(dx);
  args.weight_grad = pointer_or_null(dw);
  args.bias_grad = pointer_or_null(db);
  run_batch_norm(args, x, weight, grad);
  set_gradients(b, {&dx, &dw, &db});
}

}  // namespace

namespace {

// The result of layer_norm for x, or with a residual, for x + residual.
struct NormForward {
  Tensor y{};
  Tensor mean{};  // undefined where nobody wants a gradient
  Tensor rstd{};
};

NormForward norm_forward(LayerNormArgs args,
                         const Tensor& x,
                         const Tensor& weight,
                         const Tensor& bias,
                         bool wants_grad,
                         Kernel<LayerNormArgs> Kernels::*kernel = &Kernels::layer_norm) {
  NormForward out{.y = new_output("layer_norm", x, x.shape(), x.dtype())};
  if (wants_grad) {
    const DType wide = statistics_type(x.dtype());
    out.mean = new_output("layer_norm", x, {args.rows}, wide);
    out.rstd = new_output("layer_norm", x, {args.rows}, wide);
  }
  const Tensor row = dense_or_none(bias);
  args.bias = pointer_or_null(row);
  args.mean = pointer_or_null(out.mean);
  args.rstd = pointer_or_null(out.rstd);
  args.y = pointer(out.y);
  run_layer_norm(args, x, weight, out.y, kernel);
  return out;
}

// x is what was normalised.
Tensor record_layer_norm(const LayerNormArgs& args,
                         const Shape& normalized,
                         const NormForward& made,
                         const Tensor& x,
                         const Tensor& weight,
                         const Tensor& bias) {
  return record({"layer_norm", kEachOutput},
                {&x, &weight, &bias},
                made.y,
                {save_input(x),
                 save_input(weight, weight.defined() && needs_grad(x)),
                 save_output(made.mean, made.mean.defined()),
                 save_output(made.rstd, made.rstd.defined())},
                [args, normalized](BackwardArgs& b) { layer_norm_backward(args, normalized, b); });
}

// In one launch: what the kernel takes, and a backend that has it.
bool is_fusible(const Tensor& x, const Tensor& residual) {
  const bool fits = x.shape() == residual.shape() && x.is_contiguous() &&
                    residual.is_contiguous() && is_floating(residual.dtype()) &&
                    promote_types(x.dtype(), residual.dtype()) == x.dtype() &&
                    (x.dtype() == residual.dtype() || x.dtype() == DType::kF32);
  return fits && x.numel() > 0 && &x.device() == &residual.device() &&
         backend_of(x.device()).kernels.residual_layer_norm.run != nullptr;
}

}  // namespace

Tensor layer_norm(const Tensor& x,
                  const Shape& normalized,
                  const Tensor& weight,
                  const Tensor& bias,
                  double eps) {
  if (Autocast::is_enabled()) {
    const auto run = [&](auto&& in, auto&&... t) { return layer_norm(in, normalized, t..., eps); };
    return in_f32(run, x, weight, bias);
  }
  check_layer_norm(x, normalized, weight, bias);
  const LayerNormArgs args = layer_args(x, normalized, parameter_type(x, weight, bias), eps);
  const NormForward made =
      norm_forward(args, x, weight, bias, any_needs_grad({&x, &weight, &bias}));
  return record_layer_norm(args, normalized, made, x, weight, bias);
}

ResidualNorm residual_layer_norm(const Tensor& x,
                                 const Tensor& residual,
                                 const Shape& normalized,
                                 const Tensor& weight,
                                 const Tensor& bias,
                                 double eps) {
  // Under autocast a norm is computed in f32: what is not of that type is cast by the ops.
  const bool is_cast = Autocast::is_enabled() && x.dtype() != DType::kF32;
  if (is_cast || !is_fusible(x, residual)) {
    const Tensor sum = x + residual;
    return {.sum = sum, .normed = layer_norm(sum, normalized, weight, bias, eps)};
  }
  check_layer_norm(x, normalized, weight, bias);
  LayerNormArgs args = layer_args(x, normalized, parameter_type(x, weight, bias), eps);
  const Tensor sum = new_output("add", x, x.shape(), x.dtype());
  LayerNormArgs fused = args;
  fused.residual = pointer(residual);
  fused.residual_dtype = residual.dtype();
  fused.sum = pointer(sum);
  const NormForward made = norm_forward(fused,
                                        x,
                                        weight,
                                        bias,
                                        any_needs_grad({&x, &residual, &weight, &bias}),
                                        &Kernels::residual_layer_norm);
  const Tensor recorded = record(
      {"add", kEachOutput}, {&x, &residual}, sum, {}, [own = residual.dtype()](BackwardArgs& b) {
        if (b.needs(0)) b.set_grad(0, b.grad());
        if (b.needs(1)) b.set_grad(1, gradient_as(b.grad(), own));
      });
  return {.sum = recorded,
          .normed = record_layer_norm(args, normalized, made, recorded, weight, bias)};
}

Tensor batch_norm(const Tensor& x,
                  const Tensor& weight,
                  const Tensor& bias,
                  const Tensor& running_mean,
                  const Tensor& running_var,
                  const BatchNormOptions& options) {
  check_batch_norm(x, running_mean, running_var);
  check_channels(x, weight, bias, running_mean, running_var);
  BatchNormArgs args = channel_args(x, options);
  args.parameter_dtype = parameter_type(x, weight, bias);
  args.uses_batch = options.training || !running_mean.defined();
  check_batch(x, args);
  // Computed again for a backward, the batch has been counted.
  const bool moves = options.training && running_mean.defined() && !Region::is_again();
  for (const Tensor* own : {&running_mean, &running_var}) {
    const LastingEffect statistics;
    if (moves) check_in_place("batch_norm", *own);
  }
  const Tensor y = new_output("batch_norm", x, x.shape(), x.dtype());
  Tensor mean;
  Tensor rstd;
  if (args.uses_batch && any_needs_grad({&x, &weight, &bias})) {
    const DType wide = statistics_type(x.dtype());
    mean = new_output("batch_norm", x, {args.channels}, wide);
    rstd = new_output("batch_norm", x, {args.channels}, wide);
  }
  const Tensor row = dense_or_none(bias);
  BatchNormArgs forward = args;
  forward.bias = pointer_or_null(row);
  forward.mean = pointer_or_null(mean);
  forward.rstd = pointer_or_null(rstd);
  forward.y = pointer(y);
  if (moves || !args.uses_batch) set_running(forward, running_mean, running_var);
  if (x.numel() > 0) run_batch_norm(forward, x, weight, y);
  for (const Tensor* own : {&running_mean, &running_var}) {
    if (moves) own->storage().bump_version();
  }
  const bool keeps_running = !args.uses_batch;
  return record({"batch_norm", kEachOutput},
                {&x, &weight, &bias},
                y,
                {save_input(x, args.uses_batch || needs_grad(weight)),
                 save_input(weight, weight.defined() && needs_grad(x)),
                 keeps_running ? save_input(running_mean) : save_output(mean, mean.defined()),
                 keeps_running ? save_input(running_var) : save_output(rstd, rstd.defined())},
                [args](BackwardArgs& b) { batch_norm_backward(args, b); });
}

}  // namespace headroom
