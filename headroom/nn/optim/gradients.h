// Changes to gradients before a step: their norm bounded, a loss scaled so that f16 holds
// them. All of it is decided on the device; the host waits for nothing.
//
//   nn::GradScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                       // only where they are looked at
//   optimizer.clip_grad_norm_(1.0);
//   scaler.step(optimizer);                           // not where one is infinite
//   scaler.update();
#pragma once

#include <cstdint>
#include <span>

#include "headroom/nn/optim/optimizer.h"

namespace headroom::nn {

// Scales the gradients of all so that the norm over them is at most `max_norm`, and returns what it
// was: f64 of one element, on the device of the first gradient. Throws InvalidArgument for a
// negative bound. Optimizer has the same for its own parameters, which makes its list only once.
Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm);

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

  // loss * scale. The scale lies on the device of the first loss.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  // Divides the gradients by the scale, in place. Once per step.
  void unscale_(Optimizer& optimizer);
  // Unscales unless that has been done, and steps unless a gradient was not finite.
  void step(Optimizer& optimizer);
  // After all steps with this scale: smaller where a gradient was not finite, larger after a while
  // without.
  void update();

  // Both wait for the device. On meta, the scale is that of the start and no step is skipped.
  [[nodiscard]] double current_scale() const;
  // Whether the last step was.
  [[nodiscard]] bool was_skipped() const;
  // The same as a number on the device, not 0 where it was; undefined before there is a scale.
  [[nodiscard]] Tensor skipped() const;

 private:
  void place_on(const Tensor& like);
  [[nodiscard]] Tensor number(std::int64_t at) const { return numbers_.select(0, at); }

  GradScalerOptions options_;
  Tensor scale_{};  // f64
  // f64: whether the last gradients were not finite; whether any were since the last update; good
  // steps since the scale changed.
  Tensor numbers_{};
  bool has_unscaled_ = false;
};

}  // namespace headroom::nn
