// `headroom plan --json`: docs/format/plan.schema.json says what each field means.
#include <nlohmann/json.hpp>

#include "cli/output/json_values.h"
#include "cli/output/step_json.h"
#include "cli/plan/plan.h"

namespace headroom::cli {

std::string plan_json(const PlanReport& report) {
  const train::Plan& plan = report.plan;
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["command"] = "plan";
  json["runtime"] = "headroom";
  add_step_json(plan.config, json);
  json["parameters"] = plan.parameters;
  json["limit"] = value_json(plan.limit_bytes);
  json["peak_allocated"] = plan.peak_allocated;
  json["peak_reserved"] = plan.peak_reserved;
  json["planned_steps"] = plan.steps;
  json["is_settled"] = plan.is_settled;
  json["categories"] = categories_json(plan.categories);
  json["peak_phase"] = plan.peak_phase;
  json["peak_layer"] = plan.peak_layer;
  json["layers"] = nlohmann::json::array();
  for (const train::LayerBytes& layer : plan.layers) {
    json["layers"].push_back({{"name", layer.name},
                              {"bytes", train::total(layer.categories)},
                              {"categories", categories_json(layer.categories)}});
  }
  json["formulas"] = nlohmann::json::array();
  for (const train::Formula& one : plan.formulas) {
    json["formulas"].push_back({{"text", one.text}, {"bytes", one.bytes}, {"error", one.error}});
  }
  json["recompute_fraction"] = plan.recompute_fraction;
  json["fits"] = plan.fits;
  json["is_largest_batch"] = report.is_fit && plan.fits;
  json["tried"] = report.tried;
  json["next_peak_reserved"] =
      report.is_fit ? nlohmann::json(report.next_reserved) : nlohmann::json(nullptr);
  json["cards"] = nlohmann::json::array();
  for (const CardPlan& card : report.cards) {
    json["cards"].push_back({{"name", card.name},
                             {"size", card.size_bytes},
                             {"fits", card.fits},
                             {"batch", card.batch},
                             {"peak_reserved", card.peak_reserved}});
  }
  json["shortage"] = plan.shortage;
  json["seconds"] = plan.seconds;
  json["page"] = report.page;
  return json.dump(2) + "\n";
}

}  // namespace headroom::cli
