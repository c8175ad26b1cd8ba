#include "cli/demo/demo.h"

#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input/samples.h"
#include "cli/input/trace_input.h"
#include "cli/output/account_json.h"

namespace headroom::cli {
namespace {

std::optional<Tour> play_sample(const Context& context) {
  const auto path = find_sample(kTourSample);
  if (!path) {
    context.say(fmt::format(
        "{} was not found, so the first part is left out; set HEADROOM_SAMPLES to the folder "
        "that has it",
        kTourSample));
    return std::nullopt;
  }
  context.progress("replaying a PyTorch recording ...");
  Tour tour = play_tour(read_input(*path, context), kTourSample);
  context.progress("");
  return tour;
}

nlohmann::ordered_json tour_json(const std::optional<Tour>& tour) {
  if (!tour) return nullptr;
  nlohmann::ordered_json json{{"sample", tour->sample},
                              {"allocs", tour->allocs},
                              {"same_addresses", tour->same_addresses},
                              {"segment_mismatches", tour->segment_mismatches},
                              {"verdict", to_string(tour->diagnosis.health)},
                              {"peak_live", tour->diagnosis.peak_live},
                              {"peak_reserved", tour->diagnosis.peak_reserved},
                              {"account", account_json(tour->diagnosis.account)},
                              {"limit_bytes", tour->limit_bytes}};
  json["settings"] = nlohmann::ordered_json::array();
  for (const TourRow& row : tour->rows) {
    json["settings"].push_back(
        {{"conf", row.conf}, {"peak_reserved", row.peak_reserved}, {"fits", row.fits}});
  }
  json["export"] = tour->export_line;
  return json;
}

nlohmann::ordered_json row_json(const TrainingRow& row) {
  return {{"name", row.name},
          {"optimizer", row.plan.config.optimizer},
          {"precision", to_string(row.plan.config.precision)},
          {"checkpoint", to_string(row.plan.config.checkpoint)},
          {"accumulate", row.plan.config.accumulate},
          {"planned_peak_allocated", row.plan.peak_allocated},
          {"planned_peak_reserved", row.plan.peak_reserved},
          {"peak_allocated", row.measured.allocated},
          {"peak_reserved", row.measured.reserved},
          {"fits", row.fits},
          {"loss", fmt::format("{:.4f}", row.loss)},
          {"step_seconds", row.seconds}};
}

nlohmann::ordered_json training_json(const TrainingAct& act) {
  nlohmann::ordered_json json{{"model", act.config.model.name},
                              {"parameters", act.parameters},
                              {"batch", act.config.batch},
                              {"capacity_bytes", act.capacity_bytes},
                              {"limit_bytes", act.limit_bytes},
                              {"out_of_memory", act.report},
                              {"retry", act.told},
                              {"retried_loss", fmt::format("{:.4f}", act.retried_loss)},
                              {"steps", act.steps}};
  json["fixes"] = nlohmann::ordered_json::array();
  for (const TrainingRow& row : act.rows) json["fixes"].push_back(row_json(row));
  json["account"] = account_json(act.account);
  return json;
}

ExitCode run_demo(int steps, const Context& context) {
  Demo demo{.tour = play_sample(context)};
  if (!context.is_json && demo.tour) context.print(draw_tour(*demo.tour, context));
  demo.training = play_training(steps, [&](std::string_view line) { context.progress(line); });
  if (context.is_json) {
    context.print(demo_json(demo));
  } else {
    // The first part is shown for reading while the rest is computed.
    demo.tour.reset();
    context.print(draw_demo(demo, context));
  }
  return ExitCode::kDone;
}

RunFunction add_demo(CLI::App& app) {
  auto steps = std::make_shared<int>(5);
  app.add_option("--steps", *steps, "steps of each training (default 5)")
      ->type_name("N")
      ->check(CLI::Range(2, 1000));
  return [steps](const Context& context) { return run_demo(*steps, context); };
}

}  // namespace

std::string draw_demo(const Demo& demo, const Context& context) {
  std::string out;
  if (demo.tour) out += draw_tour(*demo.tour, context);
  return out + draw_training(demo.training, context) + "No file was written.\n\n" +
         context.glossary() +
         context.next("plan gpt2 --fit --limit 24GiB", "the largest batch that fits");
}

std::string demo_json(const Demo& demo) {
  nlohmann::ordered_json json{{"schema", 2}, {"command", "demo"}};
  json["recording"] = tour_json(demo.tour);
  json["training"] = training_json(demo.training);
  return json.dump(2) + "\n";
}

Command demo_command() {
  return {
      .name = "demo",
      .group = "Start here",
      .summary = "a one-minute tour: a recording replayed, then training within a limit",
      .examples =
          "demo  see a memory problem found, and what each fix saves\n"
          "demo --json | jq '.training.fixes[].peak_reserved'  the peak of each fix, for programs",
      .add = add_demo};
}

}  // namespace headroom::cli
