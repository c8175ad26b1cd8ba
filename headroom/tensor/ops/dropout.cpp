#include "headroom/tensor/ops/dropout.h"

#include "headroom/tensor/device_random.h"
#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void run_dropout(DropoutArgs args, const Tensor& in, const Tensor& out, const Tensor& bits) {
  if (args.numel == 0) return;
  const GradModeScope no_grad(false);
  const Tensor dense = in.contiguous();
  args.in = pointer(dense);
  args.out = pointer(out);
  if (bits.defined()) args.bits = pointer(bits);
  launch("dropout", out, &Kernels::dropout, args);
}

Tensor dropout_backward(DropoutArgs args, const Tensor& grad, const Tensor& bits) {
  refuse_second_derivative("dropout", {&grad});
  args.is_backward = true;
  Tensor out = new_output("dropout", grad, grad.shape(), grad.dtype());
  run_dropout(args, grad, out, bits);
  return out;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
  check_floating("dropout", x);
  if (!(p >= 0 && p <= 1)) {
    throw InvalidArgument("dropout: a probability is wanted, not " + to_string(Scalar(p)));
  }
  if (!training || p == 0) return x;
  const Tensor y = new_output("dropout", x, x.shape(), x.dtype());
  Tensor bits;
  if (needs_grad(x)) bits = new_bits("dropout", x, x.numel());
  // On meta too, so that what is drawn after it is the same.
  const auto counters = static_cast<std::uint64_t>((x.numel() + 3) / 4);
  const Generator::State state = default_generator(x.device()).take(counters);
  const DropoutArgs args{.dtype = x.dtype(),
                         .numel = x.numel(),
                         .p = p,
                         .scale = p == 1 ? 0 : 1 / (1 - p),
                         .random = DeviceRandomScope::source_of(state, x.device())};
  run_dropout(args, x, y, bits);
  return record(
      {"dropout", kEachOutput},
      {&x},
      y,
      {save_output(bits, bits.defined())},
      [args](BackwardArgs& b) { b.set_grad(0, dropout_backward(args, b.grad(), b.saved(0))); });
}

}  // namespace headroom
