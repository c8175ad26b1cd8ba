#include "headroom/tensor/ops/activation.h"

#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

Tensor run_activation(const char* name, ElementOp op, const Tensor& x, double parameter) {
  check_floating(name, x);
  Tensor y = new_output(name, x, x.shape(), x.dtype());
  run_element(op, x.dtype(), y, {x, Scalar(parameter)});
  return y;
}

// Saved: what the sign of the input can be told from.
auto activation_gradient(const char* name, ElementOp op, double parameter) {
  return [name, op, parameter](BackwardArgs& b) {
    const Tensor kept = b.saved(0);
    const Tensor& grad = b.grad();
    refuse_second_derivative(name, {&grad, &kept});
    const Tensor out = new_output(name, grad, grad.shape(), grad.dtype());
    run_element(op, out.dtype(), out, {grad, kept, Scalar(parameter)});
    b.set_grad(0, out);
  };
}

Tensor clamped_inside(const char* name, const Tensor& x, double low, double high) {
  check_floating(name, x);
  if (!(low <= high)) {
    throw InvalidArgument(std::string(name) + ": nothing is between " + to_string(Scalar(low)) +
                          " and " + to_string(Scalar(high)));
  }
  const Tensor y = new_output(name, x, x.shape(), x.dtype());
  run_element(kClamp, x.dtype(), y, {x, Scalar(low), Scalar(high)});
  Tensor bits;
  if (needs_grad(x)) {
    bits = new_bits(name, x, x.numel());
    run_element_to_bits(kInside, x.dtype(), bits, x.shape(), {x, Scalar(low), Scalar(high)});
  }
  return record(
      {name, kEachOutput}, {&x}, y, {save_output(bits, bits.defined())}, [name](BackwardArgs& b) {
        const Tensor& grad = b.grad();
        refuse_second_derivative(name, {&grad});
        const Tensor kept = b.saved(0);
        const Tensor out = new_output(name, grad, grad.shape(), grad.dtype());
        run_element(kWhere, out.dtype(), out, {ElementOperand::bits(kept), grad, Scalar(0)});
        b.set_grad(0, out);
      });
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double slope) {
  const Tensor y = run_activation("leaky_relu", kLeakyRelu, x, slope);
  return record({"leaky_relu", kEachOutput},
                {&x},
                y,
                {slope >= 0 ? save_output(y) : save_input(x)},
                activation_gradient("leaky_relu", kLeakyReluBackward, slope));
}

Tensor elu(const Tensor& x, double alpha) {
  if (!(alpha >= 0)) {
    throw InvalidArgument("elu: alpha must be at least 0, not " + to_string(Scalar(alpha)));
  }
  const Tensor y = run_activation("elu", kElu, x, alpha);
  return record({"elu", kEachOutput},
                {&x},
                y,
                {save_output(y)},
                activation_gradient("elu", kEluBackward, alpha));
}

Tensor hardtanh(const Tensor& x, double low, double high) {
  return clamped_inside("hardtanh", x, low, high);
}

Tensor relu6(const Tensor& x) { return clamped_inside("relu6", x, 0, 6); }

}  // namespace headroom
