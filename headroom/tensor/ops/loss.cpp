#include "headroom/tensor/ops/loss.h"

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

struct LossRule {
  const char* name;
  ElementOp forward;
  ElementOp backward;         // g, x, target
  bool is_difference = true;  // the gradient of the target is that of x, negated
};
constexpr LossRule kMse{"mse_loss", kSquaredDifference, kSquaredBackward};
constexpr LossRule kL1{"l1_loss", kAbsoluteDifference, kAbsoluteBackward};
constexpr LossRule kLogit{
    "binary_cross_entropy_with_logits", kLogitLoss, kLogitLossBackward, false};

void check_loss(const LossRule& rule, const Tensor& x, const Tensor& target) {
  check_floating(rule.name, x);
  check_same_device(rule.name, x, target);
  if (x.shape() != target.shape() || x.dtype() != target.dtype()) {
    throw InvalidArgument(std::string(rule.name) + ": " + to_string(x.shape()) + " of " +
                          std::string(to_string(x.dtype())) + " does not go with targets of " +
                          to_string(target.shape()) + " of " +
                          std::string(to_string(target.dtype())));
  }
}

// Of each element, in f32 at least where they are still to be added up.
Tensor element_losses(const LossRule& rule,
                      const Tensor& x,
                      const Tensor& target,
                      Reduction reduction) {
  if (reduction == Reduction::kNone) {
    Tensor y = new_output(rule.name, x, x.shape(), x.dtype());
    run_element(rule.forward, x.dtype(), y, {x, target});
    return y;
  }
  const DType wide = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor losses = new_workspace(rule.name, x, x.shape(), wide);
  run_element(rule.forward, wide, losses, {x, target});
  const GradModeScope no_grad(false);
  return (reduction == Reduction::kMean ? mean(losses) : sum(losses)).to(x.dtype());
}

// The gradient of x. That of the loss is divided first, so that no full copy is scaled.
Tensor loss_gradient(const LossRule& rule,
                     const Tensor& grad,
                     const Tensor& x,
                     const Tensor& target,
                     Reduction reduction) {
  Tensor out = new_output(rule.name, grad, x.shape(), x.dtype());
  if (reduction != Reduction::kMean) {
    run_element(rule.backward, out.dtype(), out, {grad, x, target});
    return out;
  }
  const DType wide = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor share = new_workspace(rule.name, grad, {}, wide);
  run_element(kDiv, wide, share, {grad, Scalar(static_cast<double>(x.numel()))});
  run_element(rule.backward, out.dtype(), out, {share, x, target});
  return out;
}

// Of the target: -g, or -g x of logits.
Tensor target_gradient(const LossRule& rule,
                       const Tensor& grad,
                       const Tensor& x,
                       const Tensor& target,
                       Reduction reduction) {
  Tensor out = new_output(rule.name, grad, x.shape(), x.dtype());
  if (rule.is_difference) {
    run_element(kNeg, out.dtype(), out, {loss_gradient(rule, grad, x, target, reduction)});
    return out;
  }
  const double count = reduction == Reduction::kMean ? static_cast<double>(x.numel()) : 1;
  run_element(kMul, out.dtype(), out, {grad, x});
  run_element(kDiv, out.dtype(), out, {out, Scalar(-count)});
  return out;
}

Tensor loss(const LossRule& rule, const Tensor& x, const Tensor& target, Reduction reduction) {
  if (Autocast::is_enabled()) {
    return in_f32([&](auto&&... t) { return loss(rule, t..., reduction); }, x, target);
  }
  check_loss(rule, x, target);
  const Tensor y = element_losses(rule, x, target, reduction);
  // The gradient of logits is read off both; that of their targets off x alone.
  const bool keeps_target = rule.is_difference || needs_grad(x);
  return record({rule.name, kEachOutput},
                {&x, &target},
                y,
                {save_input(x), save_input(target, keeps_target)},
                [&rule, reduction](BackwardArgs& b) {
                  const Tensor& g = b.grad();
                  const Tensor from = b.saved(0);
                  const Tensor to = b.saved(1);
                  refuse_second_derivative(rule.name, {&g, &from});
                  if (b.needs(0)) b.set_grad(0, loss_gradient(rule, g, from, to, reduction));
                  if (b.needs(1)) b.set_grad(1, target_gradient(rule, g, from, to, reduction));
                });
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss(kMse, x, target, reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss(kL1, x, target, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x,
                                        const Tensor& target,
                                        Reduction reduction) {
  return loss(kLogit, x, target, reduction);
}

}  // namespace headroom
