#include "cli/plan/plan_page.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/replay/cards.h"

#include "cli/input/step_options.h"
#include "cli/output/html_page.h"
#include "cli/plan/plan_curve.h"
#include "cli/plan/plan_grid.h"
#include "cli/plan/plan_page_source.h"  // made by CMake from cli/plan/page/
#include "cli/plan/worker_processes.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Many curves have the same text, as those of the optimisers: each is written once.
class Texts {
 public:
  std::size_t add(const std::string& text) {
    const auto [at, is_new] = places_.try_emplace(text, all_.size());
    if (is_new) all_.push_back(text);
    return at->second;
  }
  [[nodiscard]] const std::vector<std::string>& all() const noexcept { return all_; }

 private:
  std::unordered_map<std::string, std::size_t> places_{};
  std::vector<std::string> all_{};
};

std::string progress_line(std::size_t done, std::size_t all, Clock::time_point begin) {
  const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
  const double left = passed / static_cast<double>(done) * static_cast<double>(all - done);
  return fmt::format("planning {} of {}, about {:.0f} s left", done, all, left);
}

Json plans_json(const PlanGrid& grid,
                const train::PlanOptions& options,
                const Progress& progress,
                Texts& texts) {
  const train::PlanOptions own{
      .settings = options.settings, .profile = options.profile, .has_formulas = false};
  const auto begin = Clock::now();
  const std::vector<std::string> plans = in_processes(
      grid.size(),
      [&](std::size_t i) { return curve_json(train::plan(grid.config_at(i), own)).dump(); },
      [&](std::size_t done) { progress(progress_line(done, grid.size(), begin)); });
  Json out = Json::array();
  for (const std::string& text : plans) {
    Json one = Json::parse(text);
    one["points"] = texts.add(one["points"]);
    for (Json& series : one["series"]) series = texts.add(series);
    out.push_back(std::move(one));
  }
  return out;
}

Json axes_json(const PlanGrid& grid) {
  Json out = Json::array();
  for (const PlanAxis& axis : grid.axes()) {
    Json one{{"name", axis.name}, {"values", Json::array()}};
    for (const std::int64_t value : axis.values) {
      one["values"].push_back(grid.word(axis, value));
    }
    one["start"] = std::ranges::find(axis.values, axis.asked) - axis.values.begin();
    out.push_back(std::move(one));
  }
  return out;
}

// `gpt2 --width 64 --seed 1`: what no control changes.
std::string fixed_words(const train::StepConfig& config, const PlanPageOptions& options) {
  const train::ModelInfo& info = train::find_model(config.model.name);
  train::StepConfig fixed = config;
  fixed.model.depth.reset();
  fixed.model.seq.reset();
  fixed.batch = info.batch;
  fixed.optimizer = info.optimizer;
  fixed.precision = train::Precision::kF32;
  fixed.checkpoint = train::CheckpointMode::kNone;
  return as_typed(fixed) + options.other;
}

Json page_data(const train::Plan& plan, const PlanPageOptions& options, const Progress& progress) {
  const PlanGrid grid(plan);
  Texts texts;
  Json data;
  data["model"] = plan.config.model.name;
  data["command"] = "headroom plan " + fixed_words(plan.config, options);
  data["microBatches"] = plan.config.accumulate;
  data["axes"] = axes_json(grid);
  data["limit"] = options.plan.limit_bytes.value_or(0);
  data["card"] = options.card;
  data["cards"] = Json::array();
  for (const replay::Card& card : replay::cards()) {
    data["cards"].push_back({card.name, card.size_bytes});
  }
  data["categories"] = Json::array();
  for (const auto category : kCurveCategories) {
    data["categories"].push_back(std::string(memory::plain_name(category)));
  }
  data["plans"] = plans_json(grid, options.plan, progress, texts);
  data["texts"] = texts.all();
  return data;
}

}  // namespace

std::string plan_page(const train::Plan& plan,
                      const PlanPageOptions& options,
                      const Progress& progress) {
  return fill_page(kPlanPageHtml,
                   {{"@STYLE@", std::string(kPlanPageStyle)},
                    {"@MODEL@", plan.config.model.name},
                    {"@DATA@", as_script(page_data(plan, options, progress))},
                    {"@SCRIPT@", std::string(kPlanPageScript)}});
}

}  // namespace headroom::cli
