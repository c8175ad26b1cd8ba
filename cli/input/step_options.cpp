#include "cli/input/step_options.h"

#include <algorithm>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/input/trace_input.h"

namespace headroom::cli {
namespace {

constexpr const char* kStepGroup = "The step";

std::string model_help() {
  std::string out = "the model:";
  for (const train::ModelInfo& info : train::models()) out += fmt::format(" {}", info.name);
  return out;
}

// An argument that the library refuses was typed wrong here.
template <class F>
auto typed_right(F&& f) {
  try {
    return f();
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

// The library's modes, and the one that only the command has.
train::CheckpointMode checkpoint_of(const std::string& text) {
  try {
    return train::parse_checkpoint(text);
  } catch (const InvalidArgument& error) {
    throw UsageError(fmt::format("--checkpoint: {}, auto", error.what()));
  }
}

std::string settings_of(const std::string& policy) {
  constexpr std::string_view kNative = "backend:native";
  constexpr std::string_view kOurs = "backend:paged";
  if (policy == "pytorch" || policy == "caching" || policy == "pytorch:default") {
    return std::string(kNative);
  }
  constexpr std::string_view kPrefix = "pytorch:";
  if (policy.starts_with(kPrefix)) {
    const std::string conf = policy.substr(kPrefix.size());
    // A backend of PyTorch's own may be part of them.
    return conf.find("backend:") == std::string::npos ? fmt::format("{},{}", kNative, conf) : conf;
  }
  if (policy == "paged") return std::string(kOurs);
  constexpr std::string_view kPaged = "paged:";
  if (policy.starts_with(kPaged)) {
    return fmt::format("{},{}", kOurs, policy.substr(kPaged.size()));
  }
  throw UsageError(
      fmt::format("--policy: '{}' is unknown; use paged, pytorch or pytorch:CONF, such as "
                  "pytorch:expandable_segments:True",
                  policy));
}

}  // namespace

void add_step_options(CLI::App& app, StepArguments& typed) {
  const auto option = [&app](const char* name, auto& value, const char* type, const char* help) {
    app.add_option(name, value, help)->type_name(type)->group(kStepGroup);
  };
  app.add_option("model", typed.model, model_help())
      ->type_name("MODEL")
      ->required()
      ->group(kOptionsGroup);
  option("--batch", typed.batch, "N", "examples per step (default: the model's own)");
  option("--seq", typed.seq, "N", "tokens per example (default: the model's own)");
  option("--depth", typed.depth, "N", "blocks in the model (default: the model's own)");
  option("--width", typed.width, "N", "features per layer (default: the model's own)");
  option("--optimizer",
         typed.optimizer,
         "NAME",
         "sgd, momentum, adam or adamw (default: the model's own)");
  option("--lr", typed.lr, "X", "learning rate (default: the optimizer's own)");
  option("--dtype,--amp",
         typed.precision,
         "TYPE",
         "f32 (default), f64, or bf16 or f16 as autocast over f32 weights");
  option("--checkpoint",
         typed.checkpoint,
         "MODE",
         "which blocks the backward pass computes again to save memory: none (default), sqrt, all, "
         "or auto, the least that fits the limit");
  option("--accumulate", typed.accumulate, "N", "split the batch into N micro-batches (default 1)");
  option("--workers",
         typed.workers,
         "N",
         "threads that prepare batches (default 0: the step does it)");
  option("--prefetch", typed.prefetch, "N", "batches copied ahead while a step runs (default 0)");
  option("--seed", typed.seed, "N", "seed of weights and examples (default 0)");
  option("--limit",
         typed.limit,
         "SIZE",
         "the most that the allocator may reserve, such as 24GiB (default: the device)");
  app.add_option(
         "--card",
         typed.cards,
         "card names or sizes, such as h100,rtx4090 or 24GiB; --card list names them. A plan "
         "for a card has a GPU's pages, and workspaces as the kernels of this build ask for")
      ->type_name("CARD,...")
      ->delimiter(',')
      ->group(kStepGroup);
  option("--policy",
         typed.policy,
         "POLICY",
         "the allocator: paged (headroom's, default), pytorch, or pytorch:CONF with CONF as in "
         "PYTORCH_ALLOC_CONF");
}

bool is_auto_checkpoint(const StepArguments& typed) { return typed.checkpoint == "auto"; }

train::StepConfig step_config(const StepArguments& typed) {
  return typed_right([&typed] {
    if (typed.batch && *typed.batch < 1) {
      throw InvalidArgument(fmt::format("--batch: {} is too small; use 1 or more", *typed.batch));
    }
    train::StepConfig config{.model = {.name = typed.model,
                                       .depth = typed.depth,
                                       .width = typed.width,
                                       .seq = typed.seq},
                             .batch = typed.batch.value_or(0),
                             .accumulate = typed.accumulate.value_or(1),
                             .optimizer = typed.optimizer,
                             .lr = typed.lr,
                             .seed = typed.seed,
                             .workers = typed.workers,
                             .prefetch = typed.prefetch};
    if (!typed.precision.empty()) config.precision = train::parse_precision(typed.precision);
    if (!is_auto_checkpoint(typed)) {
      config.checkpoint = checkpoint_of(typed.checkpoint);
    }
    config = train::resolved(config);
    (void)train::check_model(config.model);
    return config;
  });
}

train::PlanOptions plan_options(const StepArguments& typed) {
  train::PlanOptions options{.settings = settings_of(typed.policy)};
  typed_right([&options] { return train::parse_settings(options.settings); });
  const std::vector<TypedCard> cards = named_cards(typed);
  if (!cards.empty()) {
    options.profile = device::cuda_profile();
    // A plan that fits the smallest fits them all.
    options.limit_bytes = std::ranges::min(cards, {}, &TypedCard::size_bytes).size_bytes;
  }
  if (const auto size = typed_limit(typed.limit)) {
    options.limit_bytes = std::min(*size, options.limit_bytes.value_or(UINT64_MAX));
  }
  return options;
}

std::vector<TypedCard> named_cards(const StepArguments& typed) {
  std::vector<TypedCard> out;
  for (const std::string& text : typed.cards) {
    if (auto card = typed_card(text)) out.push_back(*std::move(card));
  }
  return out;
}

std::string other_options(const StepArguments& typed) {
  std::string out;
  const auto add = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format(" {} {}", name, shell_word(value));
  };
  if (typed.lr) add("--lr", fmt::format("{}", *typed.lr));
  if (typed.seed != 0) add("--seed", std::to_string(typed.seed));
  add("--limit", typed.limit);
  add("--card", fmt::format("{}", fmt::join(typed.cards, ",")));
  if (typed.policy != "paged") add("--policy", typed.policy);
  return out;
}

std::string as_typed(const train::StepConfig& config) {
  const train::ModelInfo& info = train::find_model(config.model.name);
  std::string out = config.model.name;
  const auto add = [&out](const char* name, std::optional<std::int64_t> value) {
    if (value) out += fmt::format(" {} {}", name, *value);
  };
  add("--depth", config.model.depth);
  add("--width", config.model.width);
  add("--seq", config.model.seq);
  if (config.batch != info.batch) add("--batch", config.batch);
  if (config.accumulate != 1) add("--accumulate", config.accumulate);
  if (config.workers != 0) add("--workers", config.workers);
  if (config.prefetch != 0) add("--prefetch", config.prefetch);
  if (config.optimizer != info.optimizer) out += " --optimizer " + config.optimizer;
  if (config.precision != train::Precision::kF32) {
    out += fmt::format(" --dtype {}", to_string(config.precision));
  }
  if (config.checkpoint != train::CheckpointMode::kNone) {
    out += fmt::format(" --checkpoint {}", to_string(config.checkpoint));
  }
  return out;
}

std::string in_words(const train::StepConfig& config) {
  std::string out = fmt::format("batch {}", config.batch);
  if (config.accumulate > 1) out += fmt::format(" in {} micro-batches", config.accumulate);
  out += fmt::format(", {}, {}", config.optimizer, to_string(config.precision));
  if (config.checkpoint != train::CheckpointMode::kNone) {
    out += fmt::format(", checkpointing {}", to_string(config.checkpoint));
  }
  return out;
}

}  // namespace headroom::cli
