#include "headroom/train/remedies.h"

#include <algorithm>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/memory/account.h"
#include "headroom/train/internal/planned_run.h"

namespace headroom::train {
namespace {

using Kind = PlannedRemedy::Kind;

// In whole MiB or GiB, so that what is read can be typed: nothing is rounded away.
std::string typed_size(std::uint64_t bytes) {
  const bool is_whole = bytes % 1_GiB == 0;
  return std::to_string(bytes / (is_whole ? 1_GiB : 1_MiB)) + (is_whole ? "GiB" : "MiB");
}

std::optional<PlannedRemedy> if_it_fits(Kind kind,
                                        const StepConfig& config,
                                        const PlanOptions& options,
                                        std::string option) {
  const internal::RunNumbers numbers = internal::quick_run(config, options);
  if (!numbers.shortage.empty()) return std::nullopt;
  return PlannedRemedy{.kind = kind,
                       .config = config,
                       .limit_bytes = options.limit_bytes,
                       .peak_reserved = numbers.peak_reserved,
                       .option = std::move(option)};
}

std::optional<PlannedRemedy> with_checkpoints(const StepConfig& config,
                                              const PlanOptions& options) {
  if (config.checkpoint != CheckpointMode::kNone) return std::nullopt;
  const CheckpointChoice choice = mildest_checkpoint(config, options);
  if (!choice.fits) return std::nullopt;
  StepConfig changed = config;
  changed.checkpoint = choice.mode;
  return if_it_fits(
      Kind::kCheckpoint, changed, options, "--checkpoint " + std::string(to_string(choice.mode)));
}

std::optional<PlannedRemedy> with_micro_batches(const StepConfig& config,
                                                const PlanOptions& options) {
  const std::optional<StepConfig> changed = smaller_pieces(config, options);
  if (!changed) return std::nullopt;
  return if_it_fits(
      Kind::kAccumulate, *changed, options, "--accumulate " + std::to_string(changed->accumulate));
}

std::optional<PlannedRemedy> with_smaller_batch(const StepConfig& config,
                                                const PlanOptions& options) {
  if (!options.limit_bytes && options.device == nullptr) return std::nullopt;
  PlanOptions bounded = options;
  if (!bounded.limit_bytes) bounded.limit_bytes = options.device->properties().total_bytes;
  const Fit found = fit(config, bounded);
  if (!found.plan.fits || found.plan.config.batch >= config.batch) return std::nullopt;
  return if_it_fits(Kind::kBatch,
                    found.plan.config,
                    options,
                    "--batch " + std::to_string(found.plan.config.batch));
}

std::optional<PlannedRemedy> with_higher_limit(const StepConfig& config,
                                               const PlanOptions& options) {
  if (!options.limit_bytes) return std::nullopt;
  PlanOptions higher = options;
  higher.limit_bytes.reset();
  const internal::RunNumbers numbers = internal::quick_run(config, higher);
  if (!numbers.shortage.empty()) return std::nullopt;
  for (std::uint64_t limit = round_up(numbers.peak_reserved, 1_MiB);; limit += 1_MiB) {
    higher.limit_bytes = limit;
    auto out = if_it_fits(Kind::kLimit, config, higher, "--limit " + typed_size(limit));
    if (out) return out;
  }
}

std::string in_a_sentence(const PlannedRemedy& remedy) {
  switch (remedy.kind) {
    case Kind::kCheckpoint:
      return "compute activations again instead of keeping them";
    case Kind::kAccumulate:
      return "the same batch of " + std::to_string(remedy.config.batch) + " in " +
             std::to_string(remedy.config.accumulate) + " micro-batches";
    case Kind::kBatch:
      return "the largest batch that fits";
    case Kind::kLimit:
      break;
  }
  return "raise the limit and change nothing else";
}

}  // namespace

std::string_view to_string(PlannedRemedy::Kind kind) noexcept {
  switch (kind) {
    case Kind::kCheckpoint:
      return "checkpoint";
    case Kind::kAccumulate:
      return "accumulate";
    case Kind::kBatch:
      return "batch";
    case Kind::kLimit:
      break;
  }
  return "limit";
}

std::optional<StepConfig> smaller_pieces(const StepConfig& config, const PlanOptions& options) {
  StepConfig tried = resolved(config);
  while (tried.accumulate < tried.batch) {
    tried.accumulate = std::min(2 * tried.accumulate, tried.batch);
    if (internal::quick_run(tried, options).shortage.empty()) return tried;
  }
  return std::nullopt;
}

std::vector<PlannedRemedy> planned_remedies(const StepConfig& config, const PlanOptions& options) {
  std::vector<PlannedRemedy> out;
  for (const auto& find :
       {with_checkpoints, with_micro_batches, with_smaller_batch, with_higher_limit}) {
    if (auto remedy = find(config, options)) out.push_back(std::move(*remedy));
  }
  return out;
}

std::optional<PlannedRemedy> least_that_fits(const StepConfig& config, const PlanOptions& options) {
  StepConfig least = resolved(config);
  least.batch = 1;
  least.accumulate = 1;
  least.checkpoint = mildest_checkpoint(least, options).mode;
  return with_higher_limit(least, options);
}

std::string report_text(const memory::OutOfMemoryReport& report,
                        const std::vector<PlannedRemedy>& remedies) {
  if (remedies.empty()) return report.text;
  memory::Explanation explanation = report.explanation;
  explanation.remedies.clear();
  for (const PlannedRemedy& remedy : remedies) {
    explanation.remedies.push_back({.action = remedy.option + ": " + in_a_sentence(remedy) +
                                              "; the plan reserves " +
                                              format_bytes(remedy.peak_reserved),
                                    .is_enough = true,
                                    .is_proved = true});
  }
  return to_text(report.account, explanation);
}

}  // namespace headroom::train
