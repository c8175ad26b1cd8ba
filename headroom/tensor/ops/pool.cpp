#include "headroom/tensor/ops/pool.h"

#include <limits>

#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/internal/sizes.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void check_images(const char* op, const Tensor& x) {
  check_floating(op, x);
  if (x.dim() == 3 || x.dim() == 4) return;
  throw InvalidArgument(std::string(op) + ": images of three or four dimensions are wanted, not " +
                        to_string(x.shape()));
}

Pool2dArgs planes_of(PoolOp op, const Tensor& x) {
  Pool2dArgs args{.op = op, .dtype = x.dtype(), .planes = 1};
  for (int i = 0; i + 2 < x.dim(); ++i) args.planes *= x.shape()[i];
  args.in_size = {x.size(-2), x.size(-1)};
  return args;
}

std::int64_t pooled_size(const char* op, const Pool2dArgs& a, std::size_t i) {
  const auto say = [&](const std::string& what) {
    throw InvalidArgument(std::string(op) + ": a window of " + std::to_string(a.kernel[i]) + what);
  };
  if (a.kernel[i] < 1 || a.stride[i] < 1) say(" with stride " + std::to_string(a.stride[i]));
  if (a.padding[i] < 0 || a.padding[i] > a.kernel[i] / 2) {
    say(" takes padding up to half of it, not " + std::to_string(a.padding[i]));
  }
  // As PyTorch counts windows; so their areas and the padding fit too.
  if (a.kernel[i] > std::numeric_limits<std::int32_t>::max()) {
    say(" is more than 32 bits can count");
  }
  const std::int64_t room = padded_size(op, a.in_size[i], a.padding[i]) - a.kernel[i];
  if (room < 0) {
    say(" does not fit into " + std::to_string(a.in_size[i]) + " with padding " +
        std::to_string(a.padding[i]));
  }
  return room / a.stride[i] + 1;
}

// Where in its window an output came from is kept as a byte, or as 32 bits where it is large.
DType place_type(const char* name, const Pool2dArgs& args) {
  const std::int64_t places = args.kernel[0] * args.kernel[1];
  if (places <= 256) return DType::kU8;
  if (args.op != PoolOp::kMax || places <= std::numeric_limits<std::int32_t>::max()) {
    return DType::kI32;
  }
  throw InvalidArgument(std::string(name) + ": a window of " + std::to_string(args.kernel[0]) +
                        " x " + std::to_string(args.kernel[1]) +
                        " has more places than 32 bits can count");
}

Pool2dArgs window_args(const char* name, PoolOp op, const Tensor& x, const Pool2dOptions& o) {
  check_images(name, x);
  Pool2dArgs args = planes_of(op, x);
  args.kernel = o.kernel;
  args.padding = o.padding;
  for (const std::size_t i : {0U, 1U})
    args.stride[i] = o.stride[i] == 0 ? o.kernel[i] : o.stride[i];
  args.out_size = {pooled_size(name, args, 0), pooled_size(name, args, 1)};
  args.index_dtype = place_type(name, args);
  return args;
}

Shape with_size(Shape shape, const Pair& size) {
  shape[shape.size() - 2] = size[0];
  shape[shape.size() - 1] = size[1];
  return shape;
}

void run_pool(
    const char* name, Pool2dArgs args, const Tensor& in, const Tensor& out, const Tensor& index) {
  if (out.numel() == 0) return;
  const GradModeScope no_grad(false);
  const Tensor dense = in.contiguous();
  args.in = pointer(dense);
  args.out = pointer(out);
  if (index.defined()) args.index = pointer(index);
  launch(name, out, &Kernels::pool2d, args);
}

Tensor pool_backward(const char* name, Pool2dArgs args, const Tensor& grad, const Tensor& index) {
  refuse_second_derivative(name, {&grad});
  args.is_backward = true;
  Tensor out = new_output(name, grad, with_size(grad.shape(), args.in_size), grad.dtype());
  run_pool(name, args, grad, out, index);
  return out;
}

Tensor pooled(const char* name, const Pool2dArgs& args, const Tensor& x) {
  const Tensor y = new_output(name, x, with_size(x.shape(), args.out_size), x.dtype());
  Tensor index;
  if (args.op == PoolOp::kMax && needs_grad(x)) {
    index = new_output(name, x, y.shape(), args.index_dtype);
  }
  run_pool(name, args, x, y, index);
  return record({name, kEachOutput},
                {&x},
                y,
                {save_output(index, index.defined())},
                [name, args](BackwardArgs& b) {
                  b.set_grad(0, pool_backward(name, args, b.grad(), b.saved(0)));
                });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return pooled("max_pool2d", window_args("max_pool2d", PoolOp::kMax, x, options), x);
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return pooled("avg_pool2d", window_args("avg_pool2d", PoolOp::kAverage, x, options), x);
}

Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> out) {
  check_images("adaptive_avg_pool2d", x);
  Pool2dArgs args = planes_of(PoolOp::kAdaptive, x);
  args.out_size = out;
  if (out[0] < 1 || out[1] < 1 || args.in_size[0] < 1 || args.in_size[1] < 1) {
    throw InvalidArgument("adaptive_avg_pool2d: " + to_string(x.shape()) + " does not make " +
                          std::to_string(out[0]) + " x " + std::to_string(out[1]));
  }
  return pooled("adaptive_avg_pool2d", args, x);
}

}  // namespace headroom
