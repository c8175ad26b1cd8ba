#include "headroom/nn/optim/gradients.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/tensor/ops/binary.h"

namespace headroom::nn {
namespace {

std::vector<Tensor> gradients_of(std::span<const Tensor> parameters) {
  std::vector<Tensor> out;
  for (const Tensor& parameter : parameters) {
    if (const Tensor grad = parameter.grad(); grad.defined()) out.push_back(grad);
  }
  return out;
}

}  // namespace

double clip_grad_norm_(std::span<const Tensor> parameters, double max_norm) {
  if (!(max_norm >= 0)) {
    throw InvalidArgument("clip_grad_norm_: a norm of at least 0 is wanted, not " +
                          to_string(Scalar(max_norm)));
  }
  const std::vector<Tensor> gradients = gradients_of(parameters);
  const std::optional<double> norm = norm_of(gradients);
  if (!norm) return 0;
  // As PyTorch, which guards against a norm of 0.
  const double factor = max_norm / (*norm + 1e-6);
  if (!(factor >= 1)) headroom::scale_(gradients, factor);
  return *norm;
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.scale) {
  if (!(options.scale > 0) || !(options.growth > 1) || !(options.backoff > 0) ||
      !(options.backoff < 1) || options.growth_interval < 1) {
    throw InvalidArgument(
        "GradScaler: a scale above 0, a growth above 1, a backoff between 0 and 1 and an interval "
        "of at least 1 are wanted");
  }
}

Tensor GradScaler::scale(const Tensor& loss) const { return mul(loss, scale_); }

void GradScaler::unscale_(const Optimizer& optimizer) {
  if (has_unscaled_) {
    throw InvalidArgument("GradScaler: the gradients have been unscaled since the last step");
  }
  is_finite_ = headroom::unscale_(gradients_of(optimizer.parameters()), 1 / scale_);
  was_all_finite_ = was_all_finite_ && is_finite_;
  has_unscaled_ = true;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!has_unscaled_) unscale_(optimizer);
  has_unscaled_ = false;
  if (is_finite_) optimizer.step();
  return is_finite_;
}

void GradScaler::update() {
  has_unscaled_ = false;
  const bool is_good = std::exchange(was_all_finite_, true);
  good_steps_ = is_good ? good_steps_ + 1 : 0;
  if (!is_good) scale_ *= options_.backoff;
  if (good_steps_ < options_.growth_interval) return;
  scale_ *= options_.growth;
  good_steps_ = 0;
}

}  // namespace headroom::nn
