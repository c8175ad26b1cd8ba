// The options of a training step on the command line, the same for `plan` and `train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/train/plan.h"

#include "cli/command.h"
#include "cli/input/typed_values.h"

namespace headroom::cli {

struct StepArguments {
  std::string model{};
  std::optional<std::int64_t> batch{};
  std::optional<std::int64_t> depth{};
  std::optional<std::int64_t> width{};
  std::optional<std::int64_t> seq{};
  std::optional<std::int64_t> accumulate{};
  std::optional<double> lr{};
  std::uint64_t seed = 0;
  int workers = 0;
  int prefetch = 0;
  std::string optimizer{};
  std::string precision{};
  std::string checkpoint = "none";
  std::string limit{};
  std::string policy = "paged";
  std::vector<std::string> cards{};
};

void add_step_options(CLI::App& app, StepArguments& typed);

// The step as asked for, checked; `checkpoint` is left alone where it is auto. Throws UsageError.
[[nodiscard]] train::StepConfig step_config(const StepArguments& typed);
[[nodiscard]] bool is_auto_checkpoint(const StepArguments& typed);
// The limit, the settings that `--policy` names, and with `--card` a GPU's profile, which a run on
// a device of its own overrules.
[[nodiscard]] train::PlanOptions plan_options(const StepArguments& typed);

// The cards that were named, with their sizes. Throws UsageError.
[[nodiscard]] std::vector<TypedCard> named_cards(const StepArguments& typed);

// `gpt2 --batch 8 --optimizer adamw`: as it would be typed, without what is the default.
[[nodiscard]] std::string as_typed(const train::StepConfig& config);
// The typed options that a config does not hold, for the command that is worth typing next:
// ` --lr 0.1 --limit 24GiB --policy pytorch`.
[[nodiscard]] std::string other_options(const StepArguments& typed);
// "batch 8 in 2 micro-batches, adamw, f32, no checkpointing".
[[nodiscard]] std::string in_words(const train::StepConfig& config);

}  // namespace headroom::cli
