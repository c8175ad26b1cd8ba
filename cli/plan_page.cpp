#include "cli/plan_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/plan_page_html.h"
#include "cli/step_words.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPoints = 96;  // of a curve: what a screen shows
constexpr double kSteps = 1000;      // of its height
constexpr std::array kShown{memory::Category::kParameter,
                            memory::Category::kOptimizerState,
                            memory::Category::kData,
                            memory::Category::kGradient,
                            memory::Category::kActivation,
                            memory::Category::kWorkspace};
constexpr std::array kPrecisions{train::Precision::kF32, train::Precision::kBF16};
// Adam and AdamW have the same state.
constexpr std::array<const char*, 3> kStates{"sgd", "momentum", "adam"};
constexpr std::array kModes{
    train::CheckpointMode::kNone, train::CheckpointMode::kSqrt, train::CheckpointMode::kAll};

// Around a value: halves below it and doubles above.
std::vector<std::int64_t> around(std::int64_t value, int below, int above) {
  std::set<std::int64_t> out{value};
  for (int i = 1; i <= below; ++i) out.insert(std::max<std::int64_t>(value >> i, 1));
  for (int i = 1; i <= above; ++i) out.insert(value << i);
  return {out.begin(), out.end()};
}

// Of each stretch of the step its highest moment, so that no peak is lost.
std::vector<train::CategoryBytes> thinned(const train::Plan& plan) {
  const auto& all = plan.timeline;
  const std::size_t points = std::min(kPoints, all.size());
  std::vector<train::CategoryBytes> out;
  for (std::size_t i = 0; i < points; ++i) {
    const auto at = [&](std::size_t k) {
      return all.begin() + static_cast<std::ptrdiff_t>(k * all.size() / points);
    };
    out.push_back(
        *std::ranges::max_element(at(i), at(i + 1), {}, [](const train::CategoryBytes& bytes) {
          return train::total(bytes);
        }));
  }
  return out;
}

// Differences, with `z12` for twelve that are none.
std::string coded(const std::vector<std::int64_t>& values) {
  std::string out;
  std::int64_t before = 0;
  int zeros = 0;
  const auto end_zeros = [&] {
    if (zeros > 0) out += fmt::format("{}z{}", out.empty() ? "" : ",", zeros);
    zeros = 0;
  };
  for (const std::int64_t value : values) {
    if (value == before) {
      ++zeros;
      continue;
    }
    end_zeros();
    out += fmt::format("{}{}", out.empty() ? "" : ",", value - before);
    before = value;
  }
  end_zeros();
  return out;
}

Json plan_record(const train::Plan& plan) {
  const double unit = std::max(static_cast<double>(plan.peak_allocated) / kSteps, 1.0);
  const auto points = thinned(plan);
  Json out;
  out["peak"] = plan.peak_allocated;
  out["reserved"] = plan.peak_reserved;
  out["when"] = plan.peak_phase + (plan.peak_layer.empty() ? "" : ", " + plan.peak_layer);
  out["again"] = std::round(plan.recompute_fraction * 1000) / 1000;
  out["unit"] = unit;
  out["at"] = Json::array();
  out["series"] = Json::array();
  for (const memory::Category category : kShown) {
    const auto index = static_cast<std::size_t>(category);
    std::vector<std::int64_t> values;
    values.reserve(points.size());
    for (const auto& point : points) {
      values.push_back(std::llround(static_cast<double>(point[index]) / unit));
    }
    out["at"].push_back(plan.categories[index]);
    out["series"].push_back(coded(values));
  }
  out["phases"] = Json::array();
  const auto count = static_cast<double>(plan.timeline.size());
  for (const train::PhaseSpan& span : plan.phases) {
    out["phases"].push_back({span.name,
                             std::round(static_cast<double>(span.begin) / count * 1000) / 1000,
                             std::round(static_cast<double>(span.end) / count * 1000) / 1000});
  }
  return out;
}

// Where the page starts: the plan that was asked for.
struct Grid {
  std::vector<std::int64_t> depths{};  // {0} where the model has none
  std::vector<std::int64_t> batches{};
};

Grid grid_of(const train::Plan& plan) {
  const train::ModelInfo& info = train::find_model(plan.config.model.name);
  Grid out{.depths = {0}, .batches = around(plan.config.batch, 3, 3)};
  if (info.depth > 0) out.depths = around(plan.config.model.depth.value_or(info.depth), 2, 1);
  // Where micro-batches are asked for, a batch has at least one example for each.
  std::erase_if(out.batches, [&](std::int64_t b) { return b < plan.config.accumulate; });
  return out;
}

Json plans_of(const train::Plan& plan,
              const train::PlanOptions& options,
              const Grid& grid,
              const Progress& progress) {
  train::PlanOptions own{.settings = options.settings, .has_formulas = false};
  Json out = Json::array();
  const std::size_t all = grid.depths.size() * grid.batches.size() * kPrecisions.size() *
                          kStates.size() * kModes.size();
  for (const std::int64_t depth : grid.depths) {
    for (const std::int64_t batch : grid.batches) {
      progress(fmt::format("planning {} of {}", out.size(), all));
      for (const train::Precision precision : kPrecisions) {
        for (const char* optimizer : kStates) {
          for (const train::CheckpointMode mode : kModes) {
            train::StepConfig config = plan.config;
            if (depth > 0) config.model.depth = depth;
            config.batch = batch;
            config.precision = precision;
            config.optimizer = optimizer;
            config.checkpoint = mode;
            out.push_back(plan_record(train::plan(config, own)));
          }
        }
      }
    }
  }
  return out;
}

template <class T>
std::size_t index_of(const std::vector<T>& values, const T& value) {
  return static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
}

Json page_data(const train::Plan& plan,
               const train::PlanOptions& options,
               const Progress& progress) {
  const Grid grid = grid_of(plan);
  const train::ModelInfo& info = train::find_model(plan.config.model.name);
  Json data;
  data["model"] = plan.config.model.name;
  data["about"] = info.summary;
  data["depths"] = grid.depths;
  data["batches"] = grid.batches;
  data["precisions"] = Json::array();
  for (const auto precision : kPrecisions) data["precisions"].push_back(to_string(precision));
  data["optimizers"] = {"sgd", "momentum", "adam, adamw"};
  data["checkpoints"] = Json::array();
  for (const auto mode : kModes) data["checkpoints"].push_back(to_string(mode));
  data["categories"] = Json::array();
  for (const auto category : kShown)
    data["categories"].push_back(std::string(plain_name(category)));
  data["limit"] = options.limit_bytes.value_or(0);
  const std::string state = plan.config.optimizer == "adamw" ? "adam" : plan.config.optimizer;
  const auto* const known = std::ranges::find(kStates, state);
  data["start"] = {{"depth", index_of(grid.depths, plan.config.model.depth.value_or(info.depth))},
                   {"batch", index_of(grid.batches, plan.config.batch)},
                   {"precision", plan.config.precision == train::Precision::kF32 ? 0 : 1},
                   {"optimizer", known - kStates.begin()},
                   {"checkpoint", static_cast<int>(plan.config.checkpoint)}};
  data["plans"] = plans_of(plan, options, grid, progress);
  return data;
}

}  // namespace

std::string plan_page(const train::Plan& plan,
                      const train::PlanOptions& options,
                      const Progress& progress) {
  std::string page(plan_page_html());
  const auto fill = [&page](std::string_view mark, const std::string& text) {
    for (std::size_t at = page.find(mark); at != std::string::npos;
         at = page.find(mark, at + text.size())) {
      page.replace(at, mark.size(), text);
    }
  };
  fill("@MODEL@", plan.config.model.name);
  fill("@DATA@", page_data(plan, options, progress).dump());
  return page;
}

}  // namespace headroom::cli
