#include "headroom/train/plan.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/internal/planned_run.h"

namespace headroom::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPlanCapacity = 16_TiB;  // of a plan without a limit

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::uint64_t bytes_in(const CategoryBytes& bytes, memory::Category category) {
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

// With nothing in the way: what a run takes by itself.
PlanOptions unbounded(PlanOptions options) {
  options.limit_bytes.reset();
  if (options.device != nullptr) options.profile = device::profile_of(*options.device);
  options.device = nullptr;
  return options;
}

// The textbooks' formulas, from the bytes that a step without checkpointing keeps.
std::vector<Formula> formulas_of(const Plan& plan, const PlanOptions& options) {
  StepConfig plain_config = plan.config;
  plain_config.checkpoint = CheckpointMode::kNone;
  const Plan plain = plan.config.checkpoint == CheckpointMode::kNone
                         ? plan
                         : internal::full_run(plain_config, unbounded(options));
  const CategoryBytes kept = internal::at_end_of_forward(plain);
  const auto weights = static_cast<double>(bytes_in(kept, memory::Category::kParameter));
  const auto state = static_cast<double>(bytes_in(kept, memory::Category::kOptimizerState));
  const auto activations = static_cast<double>(bytes_in(kept, memory::Category::kActivation));
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
  throw InvalidArgument("fit: name a limit, such as 24GiB");
}

internal::RunNumbers free_run(StepConfig config, std::int64_t batch, const PlanOptions& options) {
  config.batch = batch;
  return internal::quick_run(config, unbounded(options));
}

// Under the limit, as it will be: seen to, not believed.
bool holds(StepConfig config, std::int64_t batch, const PlanOptions& options) {
  config.batch = batch;
  return internal::quick_run(config, options).shortage.empty();
}

// A run that took this much by itself decides the same way when it may take no more; but that is
// seen to, not believed.
std::uint64_t proved_limit(const StepConfig& config, PlanOptions options, std::uint64_t from) {
  for (std::uint64_t limit = from;; limit += std::max(from / 256, std::uint64_t{2_MiB})) {
    options.limit_bytes = limit;
    if (internal::quick_run(config, options).shortage.empty()) return limit;
  }
}

// One line, of what no plan has room for.
std::string beyond_planning(const StepConfig& config, const memory::Account& account) {
  std::string out = "plan: " + config.model.name + " with batch " + std::to_string(config.batch) +
                    " asks for " + format_bytes(account.asked_bytes) +
                    " at once, and plans end at " + format_bytes(kPlanCapacity) + "; ";
  return out + (config.batch > std::max<std::int64_t>(config.accumulate, 1)
                    ? "use a smaller --batch; 'plan " + config.model.name +
                          " --fit --card h100' finds the largest that fits"
                    : std::string("use a smaller model: --depth, --width or --seq"));
}

Plan free_plan(const StepConfig& config, const PlanOptions& options) {
  const PlanOptions free = unbounded(options);
  try {
    Plan out = internal::full_run(config, free);
    out.peak_reserved = proved_limit(config, free, out.peak_reserved);
    return out;
  } catch (const memory::OutOfMemory& error) {
    throw Error(beyond_planning(config, error.report().account));
  }
}

Plan bounded_plan(const StepConfig& config, const PlanOptions& options) {
  try {
    return internal::full_run(config, options);
  } catch (const memory::OutOfMemory& error) {
    Plan out = free_plan(config, options);
    out.fits = false;
    out.shortage = error.what();
    return out;
  }
}

}  // namespace

std::unique_ptr<device::Device> make_plan_device(const PlanOptions& options) {
  if (options.device != nullptr) {
    return device::MetaDevice::create({.capacity_bytes = options.device->properties().total_bytes,
                                       .profile = device::profile_of(*options.device)});
  }
  device::BackendProfile profile = options.profile.value_or(device::cpu_profile());
  profile.max_reservation_bytes = 7 * kPlanCapacity;           // addresses cost nothing here,
  profile.max_mappings = device::cuda_profile().max_mappings;  // nor do mappings
  return device::MetaDevice::create({.capacity_bytes = kPlanCapacity, .profile = profile});
}

memory::AllocatorChoice parse_settings(const std::string& settings) {
  const auto parsed = memory::parse_choice(settings);
  if (!parsed) throw InvalidArgument("allocator settings: " + parsed.error());
  return *parsed;
}

Plan plan(const StepConfig& config, const PlanOptions& options) {
  const auto begin = Clock::now();
  const bool is_bounded = options.limit_bytes || options.device != nullptr;
  Plan out = is_bounded ? bounded_plan(config, options) : free_plan(config, options);
  out.limit_bytes = options.limit_bytes;
  if (options.has_formulas) out.formulas = formulas_of(out, options);
  out.seconds = seconds_since(begin);
  return out;
}

Fit fit(const StepConfig& config, const PlanOptions& options) {
  const auto begin = Clock::now();
  const std::uint64_t limit = required_limit(options);
  constexpr std::int64_t kMostExamples = std::int64_t{1} << 40U;
  const std::int64_t least = std::max<std::int64_t>(config.accumulate, 1);
  Fit out;
  const auto is_within = [&](std::int64_t batch) {
    ++out.tried;
    const internal::RunNumbers numbers = free_run(config, batch, options);
    if (numbers.shortage.empty() && numbers.peak_reserved <= limit &&
        holds(config, batch, options)) {
      return true;
    }
    out.next_reserved = numbers.peak_reserved;
    return false;
  };
  std::int64_t low = 0;  // fits, or nothing does
  std::int64_t high = least;
  while (high < kMostExamples && is_within(high)) {
    low = high;
    high *= 2;
  }
  while (low > 0 && high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (is_within(middle) ? low : high) = middle;
  }
  StepConfig found = config;
  found.batch = std::max(low, least);
  out.plan = plan(found, options);
  out.seconds = seconds_since(begin);
  return out;
}

CheckpointChoice mildest_checkpoint(const StepConfig& config, const PlanOptions& options) {
  CheckpointChoice least{.peak_reserved = UINT64_MAX};
  StepConfig tried = config;
  for (const CheckpointMode mode :
       {CheckpointMode::kNone, CheckpointMode::kSqrt, CheckpointMode::kAll}) {
    tried.checkpoint = mode;
    const internal::RunNumbers bounded = internal::quick_run(tried, options);
    if (bounded.shortage.empty()) {
      return {.mode = mode, .fits = true, .peak_reserved = bounded.peak_reserved};
    }
    const std::uint64_t peak = internal::quick_run(tried, unbounded(options)).peak_reserved;
    if (peak < least.peak_reserved) least = {.mode = mode, .peak_reserved = peak};
  }
  return least;
}

}  // namespace headroom::train
