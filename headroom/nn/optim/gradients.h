// What is done to gradients before a step: their norm bounded, a loss scaled so that f16 holds
// them.
//
//   nn::GradScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                       // only where they are looked at
//   nn::clip_grad_norm_(optimizer.parameters(), 1.0);
//   scaler.step(optimizer);                           // not where one is infinite
//   scaler.update();
#pragma once

#include <cstdint>
#include <span>

#include "headroom/nn/optim/optimizer.h"

namespace headroom::nn {

// Scales the gradients of all so that the norm over them is at most `max_norm`, and returns what it
// was; 0 on meta. Throws InvalidArgument for a negative bound.
double clip_grad_norm_(std::span<const Tensor> parameters, double max_norm);

struct GradScalerOptions {
  double scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;  // good steps before it grows
};

class GradScaler {
 public:
  // Throws InvalidArgument for a scale of 0 or less, a growth of 1 or less, or a backoff that is
  // not between 0 and 1.
  explicit GradScaler(const GradScalerOptions& options = {});

  // loss * scale.
  [[nodiscard]] Tensor scale(const Tensor& loss) const;
  // Divides the gradients by the scale, in place. Once a step.
  void unscale_(const Optimizer& optimizer);
  // Unscales unless that has been done, and steps unless a gradient was not finite. Whether it did.
  bool step(Optimizer& optimizer);
  // After all steps with this scale: smaller where a gradient was not finite, larger after a while
  // without.
  void update();

  [[nodiscard]] double current_scale() const noexcept { return scale_; }

 private:
  GradScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  bool has_unscaled_ = false;
  bool is_finite_ = true;       // of the optimiser that was unscaled
  bool was_all_finite_ = true;  // since the last update
};

}  // namespace headroom::nn
