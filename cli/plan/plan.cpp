#include "cli/plan/plan.h"

#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/cards.h"

#include "cli/commands.h"
#include "cli/input/step_options.h"
#include "cli/output/output_file.h"
#include "cli/plan/plan_page.h"

namespace headroom::cli {
namespace {

struct PlanArguments {
  StepArguments step{};
  bool fits = false;
  std::string output{};
  bool force = false;
};

// The card that the limit is the size of.
std::string limiting_card(const PlanArguments& typed, const train::PlanOptions& options) {
  for (const TypedCard& card : named_cards(typed.step)) {
    if (card.size_bytes == options.limit_bytes && replay::find_card(card.name)) return card.name;
  }
  return {};
}

void write_page(const PlanArguments& typed,
                const train::Plan& plan,
                const train::PlanOptions& options,
                const Context& context) {
  StepArguments other = typed.step;  // the page has a control for the limit
  other.limit.clear();
  other.cards.clear();
  const std::string page = plan_page(
      plan,
      {.plan = options, .card = limiting_card(typed, options), .other = other_options(other)},
      [&](std::string_view line) { context.progress(line); });
  context.progress("");
  write_output_file(typed.output, page, typed.force);
}

// The largest batch for each card, or whether this one fits it.
std::vector<CardPlan> plan_cards(const PlanArguments& typed,
                                 const train::StepConfig& config,
                                 train::PlanOptions options) {
  std::vector<CardPlan> out;
  options.has_formulas = false;
  for (const TypedCard& card : named_cards(typed.step)) {
    options.limit_bytes = card.size_bytes;
    const train::Plan plan =
        typed.fits ? train::fit(config, options).plan : train::plan(config, options);
    out.push_back({.name = card.name,
                   .size_bytes = card.size_bytes,
                   .fits = plan.fits,
                   .batch = plan.config.batch,
                   .peak_reserved = plan.peak_reserved});
  }
  return out;
}

// The first change that keeps the limit and was planned to fit; where there is none, the least
// limit.
void find_remedy(const PlanArguments& typed,
                 const train::PlanOptions& options,
                 PlanReport& report) {
  using Kind = train::PlannedRemedy::Kind;
  const train::StepConfig& config = report.plan.config;
  report.remedy_options = report.options;
  for (train::PlannedRemedy& remedy : train::planned_remedies(config, options)) {
    if (remedy.kind == Kind::kLimit) continue;
    report.remedy = std::move(remedy);
    return;
  }
  report.remedy = train::least_that_fits(config, options);
  if (!report.remedy) return;
  StepArguments other = typed.step;
  const std::string limit = least_limit_of(*report.remedy);
  const bool has_cards = !other.cards.empty();
  other.limit = has_cards ? "" : limit;
  if (has_cards) other.cards = {limit};  // the profile of a card remains
  report.remedy_options = other_options(other);
}

ExitCode run_plan(const PlanArguments& typed, const Context& context) {
  if (!typed.output.empty()) {
    check_output_file(typed.output, typed.force);
    check_output_ending(typed.output, ".html");
  }
  train::StepConfig config = step_config(typed.step);
  train::PlanOptions options = plan_options(typed.step);
  options.progress = [&](int steps) {
    context.progress(fmt::format("planning: {} steps, until they repeat themselves", steps));
  };
  if (typed.fits && !options.limit_bytes) {
    throw UsageError("--fit needs a limit; add --limit 24GiB or --card rtx4090");
  }
  PlanReport report{.is_fit = typed.fits,
                    .is_auto = is_auto_checkpoint(typed.step),
                    .options = other_options(typed.step)};
  if (report.is_auto) {
    if (!options.limit_bytes) {
      throw UsageError("--checkpoint auto needs a limit; add --limit 24GiB or --card rtx4090");
    }
    config.checkpoint = train::mildest_checkpoint(config, options).mode;
  }
  if (typed.fits) {
    context.progress("looking for the largest batch");
    train::Fit found = train::fit(config, options);
    context.progress("");
    report.tried = found.tried;
    report.next_reserved = found.next_reserved;
    report.plan = std::move(found.plan);
    report.plan.seconds = found.seconds;
  } else {
    report.plan = train::plan(config, options);
    context.progress("");
  }
  if (!report.plan.fits && !context.is_json) {
    context.progress("planning what would fit");
    find_remedy(typed, options, report);
    context.progress("");
  }
  if (typed.step.cards.size() > 1) report.cards = plan_cards(typed, config, options);
  if (!typed.output.empty()) {
    write_page(typed, report.plan, options, context);
    report.page = typed.output;
  }
  context.print(context.is_json ? plan_json(report) : draw_plan(report, context));
  return report.plan.fits ? ExitCode::kDone : ExitCode::kBadNews;
}

RunFunction add_plan(CLI::App& app) {
  auto typed = std::make_shared<PlanArguments>();
  add_step_options(app, typed->step);
  app.add_flag("--fit", typed->fits, "find the largest batch that fits --limit or --card")
      ->group(kOptionsGroup);
  app.add_option("-o,--output", typed->output, "write an interactive HTML page")
      ->type_name("FILE.html")
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", typed->force, "overwrite the page if it exists")->group(kOptionsGroup);
  return [typed](const Context& context) { return run_plan(*typed, context); };
}

}  // namespace

Command plan_command() {
  return {.name = "plan",
          .group = "Train",
          .summary = "compute the memory of a training step exactly, before it runs",
          .examples =
              "plan gpt2 --batch 16  the peak, its moment, and what it is used for\n"
              "plan gpt2 --fit --card rtx4090,h200  the largest batch for each card\n"
              "plan resnet50 --checkpoint sqrt --amp bf16  with two ways to save memory\n"
              "plan deepnet -o plan.html  a page with the step as a curve, and controls",
          .add = add_plan};
}

}  // namespace headroom::cli
