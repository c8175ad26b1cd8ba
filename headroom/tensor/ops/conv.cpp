#include "headroom/tensor/ops/conv.h"

#include <algorithm>
#include <limits>

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/internal/sizes.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void check_conv_types(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating("conv2d", x);
  for (const Tensor* other : {&weight, &bias}) {
    if (!other->defined()) continue;
    check_same_device("conv2d", x, *other);
    if (other->dtype() == x.dtype()) continue;
    throw InvalidArgument("conv2d: types differ: " + std::string(to_string(x.dtype())) + " and " +
                          std::string(to_string(other->dtype())));
  }
}

void check_conv_options(const Conv2dOptions& o) {
  for (const std::size_t i : {0U, 1U}) {
    if (o.stride[i] >= 1 && o.dilation[i] >= 1 && o.padding[i] >= 0) continue;
    throw InvalidArgument("conv2d: stride " + std::to_string(o.stride[i]) + ", padding " +
                          std::to_string(o.padding[i]) + ", dilation " +
                          std::to_string(o.dilation[i]) + ": at least 1, 0 and 1 are wanted");
  }
}

void check_conv_shapes(const Tensor& x,
                       const Tensor& weight,
                       const Tensor& bias,
                       const Conv2dOptions& o) {
  if (x.dim() != 4 || weight.dim() != 4) {
    throw InvalidArgument("conv2d: four dimensions each are wanted, not " + to_string(x.shape()) +
                          " and weight " + to_string(weight.shape()));
  }
  if (weight.numel() == 0) {
    throw InvalidArgument("conv2d: weight " + to_string(weight.shape()) + " has no elements");
  }
  if (o.groups < 1 || weight.size(0) % o.groups != 0) {
    throw InvalidArgument("conv2d: " + std::to_string(weight.size(0)) +
                          " outputs do not make groups of " + std::to_string(o.groups));
  }
  if (x.size(1) != weight.size(1) * o.groups) {
    throw InvalidArgument("conv2d: input has " + std::to_string(x.size(1)) + " channels, weight " +
                          to_string(weight.shape()) + " wants " +
                          std::to_string(weight.size(1) * o.groups) + " (groups " +
                          std::to_string(o.groups) + ")");
  }
  if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
    throw InvalidArgument("conv2d: a bias of " + to_string(bias.shape()) + " for " +
                          std::to_string(weight.size(0)) + " outputs");
  }
}

// The product library counts in 32 bits.
void check_conv_sizes(const Conv2dArgs& a) {
  const auto plane = size_product(a.out_size[0], a.out_size[1]);
  if (!plane) {
    throw InvalidArgument("conv2d: an output of " + std::to_string(a.out_size[0]) + " x " +
                          std::to_string(a.out_size[1]) +
                          " has more pixels than 64 bits can count");
  }
  for (const std::int64_t size : {*plane, window_size(a), a.out}) {
    if (size <= std::numeric_limits<std::int32_t>::max()) continue;
    throw InvalidArgument("conv2d: a side of " + std::to_string(size) +
                          " is more than 32 bits can count");
  }
}

// The pixels that a kernel reaches over.
std::int64_t conv_window(const Conv2dArgs& a, std::size_t i) {
  const auto reach = size_product(a.dilation[i], a.kernel[i] - 1);
  const auto window = reach ? size_sum(*reach, 1) : std::nullopt;
  if (window) return *window;
  throw InvalidArgument("conv2d: a dilation of " + std::to_string(a.dilation[i]) +
                        " makes a kernel of " + std::to_string(a.kernel[i]) +
                        " longer than 64 bits can count");
}

std::int64_t conv_size(const Conv2dArgs& a, std::size_t i) {
  const std::int64_t window = conv_window(a, i);
  const std::int64_t room = padded_size("conv2d", a.in_size[i], a.padding[i]) - window;
  if (room >= 0) return room / a.stride[i] + 1;
  throw InvalidArgument("conv2d: a window of " + std::to_string(window) + " does not fit into " +
                        std::to_string(a.in_size[i]) + " with padding " +
                        std::to_string(a.padding[i]));
}

// All that shapes decide.
Conv2dArgs conv_args(const Shape& x, const Shape& weight, DType dtype, const Conv2dOptions& o) {
  Conv2dArgs a{.dtype = dtype,
               .batch = x[0],
               .groups = o.groups,
               .in = weight[1],
               .out = weight[0] / o.groups,
               .in_size = {x[2], x[3]},
               .kernel = {weight[2], weight[3]},
               .stride = o.stride,
               .padding = o.padding,
               .dilation = o.dilation};
  a.out_size = {conv_size(a, 0), conv_size(a, 1)};
  check_conv_sizes(a);
  return a;
}

void run_conv(Conv2dArgs a, ConvPass pass, const Tensor& x, const Tensor& weight, const Tensor& y) {
  a.pass = pass;
  a.x = pointer(x);
  a.weight = pointer(weight);
  a.y = pointer(y);
  launch("conv2d", y, &Kernels::conv2d, a);
}

Tensor conv_forward(const Conv2dArgs& a,
                    const Tensor& x,
                    const Tensor& weight,
                    const Tensor& bias) {
  const GradModeScope no_grad(false);
  Tensor y =
      new_output("conv2d", x, {a.batch, weight.size(0), a.out_size[0], a.out_size[1]}, a.dtype);
  if (y.numel() == 0) return y;
  const Tensor row = bias.defined() ? bias.contiguous() : Tensor();
  Conv2dArgs with_bias = a;
  if (row.defined()) with_bias.bias = pointer(row);
  run_conv(with_bias, ConvPass::kForward, x.contiguous(), weight.contiguous(), y);
  return y;
}

// The gradient of one operand from the other, each given as it was.
Tensor conv_gradient(const Conv2dArgs& a,
                     ConvPass pass,
                     const Tensor& grad,
                     const Tensor& other,
                     const Shape& shape) {
  refuse_second_derivative("conv2d", {&grad, &other});
  Tensor out = new_output("conv2d", grad, shape, a.dtype);
  if (out.numel() == 0) return out;
  const Tensor g = grad.contiguous();
  const Tensor dense = other.contiguous();
  const bool is_input = pass == ConvPass::kInput;
  run_conv(a, pass, is_input ? out : dense, is_input ? dense : out, g);
  return out;
}

}  // namespace

Tensor conv2d(const Tensor& x,
              const Tensor& weight,
              const Tensor& bias,
              const Conv2dOptions& options) {
  if (Autocast::is_enabled()) {
    return in_lower_type([&](auto&&... t) { return conv2d(t..., options); }, x, weight, bias);
  }
  check_conv_types(x, weight, bias);
  check_conv_options(options);
  check_conv_shapes(x, weight, bias, options);
  const Conv2dArgs args = conv_args(x.shape(), weight.shape(), x.dtype(), options);
  const Tensor y = conv_forward(args, x, weight, bias);
  return record({"conv2d", counted(2 * static_cast<double>(y.numel() * window_size(args)))},
                {&x, &weight, &bias},
                y,
                {save_input(x, needs_grad(weight)), save_input(weight, needs_grad(x))},
                [args, sx = x.shape(), sw = weight.shape()](BackwardArgs& b) {
                  const Tensor& g = b.grad();
                  if (b.needs(0))
                    b.set_grad(0, conv_gradient(args, ConvPass::kInput, g, b.saved(1), sx));
                  if (b.needs(1))
                    b.set_grad(1, conv_gradient(args, ConvPass::kWeight, g, b.saved(0), sw));
                  if (b.needs(2)) b.set_grad(2, sum(g, {0, 2, 3}));
                });
}

}  // namespace headroom
