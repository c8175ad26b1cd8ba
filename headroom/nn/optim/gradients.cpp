#include "headroom/nn/optim/gradients.h"

#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/tape.h"

namespace headroom::nn {
namespace {

enum ScalerNumber : std::int64_t { kFound, kAnyFound, kGoodSteps, kScalerNumbers };

}  // namespace

Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm) {
  internal::check_norm(max_norm);
  std::vector<UpdatedTensor> gradients;
  for (const Tensor& parameter : parameters) {
    if (const Tensor grad = parameter.grad(); grad.defined()) gradients.push_back({.grad = grad});
  }
  TensorList list;
  list.assign("clip_grad_norm_", std::move(gradients));
  return list.clip_norm_(max_norm);
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  if (!(options.scale > 0) || !(options.growth > 1) || !(options.backoff > 0) ||
      !(options.backoff < 1) || options.growth_interval < 1) {
    throw InvalidArgument(
        "GradScaler: a scale above 0, a growth above 1, a backoff between 0 and 1 and an interval "
        "of at least 1 are wanted");
  }
}

void GradScaler::place_on(const Tensor& like) {
  if (numbers_.defined()) return;
  const GradModeScope no_grad(false);
  const memory::CategoryScope category(memory::Category::kOptimizerState);
  const TensorOptions options{.dtype = kF64, .device = like.storage().allocator()};
  scale_ = scalar_tensor(options_.scale, options);
  numbers_ = zeros({kScalerNumbers}, options);
}

Tensor GradScaler::scale(const Tensor& loss) {
  place_on(loss);
  return scaled_by(loss, scale_);
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (has_unscaled_) {
    throw InvalidArgument("GradScaler: the gradients have been unscaled since the last step");
  }
  if (!optimizer.parameters().empty()) place_on(optimizer.parameters().front());
  has_unscaled_ = true;
  if (!numbers_.defined()) return;
  optimizer.unscale_(scale_, number(kFound));
  const GradModeScope no_grad(false);
  number(kAnyFound).add_(number(kFound));
}

void GradScaler::step(Optimizer& optimizer) {
  if (!has_unscaled_) unscale_(optimizer);
  has_unscaled_ = false;
  optimizer.step_unless(skipped());
}

void GradScaler::update() {
  has_unscaled_ = false;
  if (!numbers_.defined()) return;
  next_loss_scale_(scale_,
                   number(kAnyFound),
                   number(kGoodSteps),
                   {.growth = options_.growth,
                    .backoff = options_.backoff,
                    .growth_interval = options_.growth_interval});
}

double GradScaler::current_scale() const {
  if (!numbers_.defined() || numbers_.is_meta()) return options_.scale;
  return scale_.item<double>();
}

Tensor GradScaler::skipped() const { return numbers_.defined() ? number(kFound) : Tensor(); }

bool GradScaler::was_skipped() const {
  return numbers_.defined() && !numbers_.is_meta() && number(kFound).item<double>() != 0;
}

}  // namespace headroom::nn
