// The few numbers of a step: how much gradients are clipped, and the next loss scale.
#include <cmath>

#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// As PyTorch, which guards against a norm of 0. A norm that is not a number stays one.
void clip(const StepNumberArgs& args) {
  double sum = 0;
  for (std::int64_t i = 0; i < args.count; ++i) sum += args.partial[i];
  const double norm = std::sqrt(sum);
  if (args.norm != nullptr) *args.norm = norm;
  if (args.factor == nullptr) return;
  const double factor = args.most / (norm + 1e-6);
  *args.factor = factor >= 1 ? 1 : factor;
}

void next_scale(const StepNumberArgs& args) {
  const bool is_good = *args.found == 0;
  *args.found = 0;
  *args.good_steps = is_good ? *args.good_steps + 1 : 0;
  if (!is_good) *args.scale *= args.backoff;
  if (*args.good_steps < static_cast<double>(args.growth_interval)) return;
  *args.scale *= args.growth;
  *args.good_steps = 0;
}

}  // namespace

void step_numbers(const StepNumberArgs& args, const Launch&) {
  args.op == StepNumberOp::kClip ? clip(args) : next_scale(args);
}

}  // namespace headroom::tensor::cpu
