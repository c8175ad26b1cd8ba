#include "headroom/train/plan.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/internal/planned_run.h"

namespace headroom::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::uint64_t of(const CategoryBytes& bytes, memory::Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

Formula formula(std::string text, double bytes, const Plan& plan) {
  const auto peak = static_cast<double>(plan.peak_allocated);
  return {.text = std::move(text),
          .bytes = static_cast<std::uint64_t>(bytes),
          .error = peak > 0 ? bytes / peak - 1 : 0};
}

bool is_adam(const StepConfig& config) {
  return config.optimizer == "adam" || config.optimizer == "adamw";
}

// What the books say, from what a step without checkpointing keeps.
std::vector<Formula> formulas_of(const Plan& plan, const PlanOptions& options) {
  StepConfig plain_config = plan.config;
  plain_config.checkpoint = CheckpointMode::kNone;
  PlanOptions free = options;
  free.limit_bytes.reset();
  const Plan plain = plan.config.checkpoint == CheckpointMode::kNone
                         ? plan
                         : internal::full_run(plain_config, free);
  const CategoryBytes kept = internal::at_end_of_forward(plain);
  const auto weights = static_cast<double>(of(kept, memory::Category::kParameter));
  const auto state = static_cast<double>(of(kept, memory::Category::kOptimizerState));
  const auto activations = static_cast<double>(of(kept, memory::Category::kActivation));
  const auto blocks = static_cast<double>(plain.boundaries.size()) - 1;
  const double fixed = 2 * weights + state;
  std::vector<Formula> out;
  if (plan.config.checkpoint == CheckpointMode::kNone) {
    out.push_back(
        formula("parameters + gradients + state + sum of activations", fixed + activations, plan));
    if (is_adam(plan.config) && plan.config.precision == Precision::kF32) {
      const auto chain = static_cast<double>(
          std::accumulate(plain.boundaries.begin(), plain.boundaries.end(), std::uint64_t{0}));
      out.push_back(
          formula("16 P + B L a", 16 * static_cast<double>(plan.parameters) + chain, plan));
    }
    return out;
  }
  const double each = activations / blocks;
  const auto inputs = static_cast<double>(
      std::accumulate(plain.boundaries.begin(), plain.boundaries.end(), std::uint64_t{0}));
  if (plan.config.checkpoint == CheckpointMode::kSqrt) {
    out.push_back(formula("parameters + gradients + state + 2 sqrt(n) a",
                          fixed + 2 * std::sqrt(blocks) * each,
                          plan));
  } else {
    out.push_back(
        formula("parameters + gradients + state + block inputs + a", fixed + inputs + each, plan));
  }
  return out;
}

std::uint64_t required_limit(const PlanOptions& options) {
  if (options.limit_bytes) return *options.limit_bytes;
  throw InvalidArgument("fit: a limit is needed, such as 24GiB");
}

// Whether a batch fits, without all that a plan tells.
bool is_possible(StepConfig config, std::int64_t batch, const PlanOptions& options) {
  config.batch = batch;
  return internal::quick_run(config, options).shortage.empty();
}

}  // namespace

std::unique_ptr<device::Device> make_plan_device() {
  // No card is larger; a limit says what may be taken.
  constexpr std::uint64_t kPlanCapacity = 16_TiB;
  device::BackendProfile profile = device::cpu_profile();
  profile.max_reservation_bytes = 7 * kPlanCapacity;  // addresses cost nothing here
  return device::MetaDevice::create({.capacity_bytes = kPlanCapacity, .profile = profile});
}

memory::AllocatorChoice parse_settings(const std::string& settings) {
  const auto parsed = memory::parse_choice(settings);
  if (!parsed) throw InvalidArgument("allocator settings: " + parsed.error());
  return *parsed;
}

Plan plan(const StepConfig& config, const PlanOptions& options) {
  const auto begin = Clock::now();
  PlanOptions free = options;
  free.limit_bytes.reset();
  Plan out = internal::full_run(config, free);
  out.limit_bytes = options.limit_bytes;
  if (options.limit_bytes && out.peak_reserved > *options.limit_bytes) {
    // Cached memory that is given back under the limit may be enough.
    const internal::RunNumbers numbers = internal::quick_run(config, options);
    out.fits = numbers.shortage.empty();
    out.shortage = numbers.shortage;
    if (out.fits) out = internal::full_run(config, options);
  }
  if (options.has_formulas) out.formulas = formulas_of(out, options);
  out.seconds = seconds_since(begin);
  return out;
}

Fit fit(const StepConfig& config, const PlanOptions& options) {
  const auto begin = Clock::now();
  (void)required_limit(options);
  constexpr std::int64_t kMostExamples = std::int64_t{1} << 40U;
  Fit out;
  std::int64_t low = 0;  // fits, or nothing does
  std::int64_t high = std::max<std::int64_t>(config.accumulate, 1);
  while (high < kMostExamples) {
    ++out.tried;
    if (!is_possible(config, high, options)) break;
    low = high;
    high *= 2;
  }
  while (low > 0 && high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    ++out.tried;
    (is_possible(config, middle, options) ? low : high) = middle;
  }
  StepConfig found = config;
  found.batch = std::max<std::int64_t>(low, std::max<std::int64_t>(config.accumulate, 1));
  out.plan = plan(found, options);
  out.seconds = seconds_since(begin);
  return out;
}

CheckpointMode mildest_checkpoint(const StepConfig& config, const PlanOptions& options) {
  StepConfig tried = config;
  for (const CheckpointMode mode : {CheckpointMode::kNone, CheckpointMode::kSqrt}) {
    tried.checkpoint = mode;
    if (internal::quick_run(tried, options).shortage.empty()) return mode;
  }
  return CheckpointMode::kAll;
}

}  // namespace headroom::train
