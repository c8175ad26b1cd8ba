// `headroom train --json`: docs/format/train.schema.json says what each field means.
#include <cmath>

#include <nlohmann/json.hpp>

#include "cli/output/json_values.h"
#include "cli/output/step_json.h"
#include "cli/train/train.h"

namespace headroom::cli {

using Json = nlohmann::ordered_json;

std::string train_json(const TrainReport& report) {
  Json json;
  json["schema"] = 1;
  json["command"] = "train";
  add_step_json(report.config, json);
  json["device"] = report.device;
  json["parameters"] = report.parameters;
  json["steps"] = report.losses.size();
  json["limit"] = value_json(report.limit_bytes);
  json["fits"] = report.fits();
  json["peak_allocated"] = report.peak_allocated;
  json["peak_reserved"] = report.peak_reserved;
  json["planned_allocated"] = report.planned_allocated;
  json["planned_reserved"] = report.planned_reserved;
  json["categories"] = categories_json(report.categories);
  json["losses"] = Json::array();
  for (const double loss : report.losses) {  // on meta there are no numbers
    json["losses"].push_back(std::isfinite(loss) ? Json(loss) : Json(nullptr));
  }
  json["step_ms"] = report.step_ms.empty() ? 0 : spread_of(report.step_ms).median;
  json["step_ms_spread"] =
      report.step_ms.empty() ? nlohmann::json(nullptr) : spread_json(spread_of(report.step_ms));
  json["micro_batch"] = report.micro_batch;
  json["retries"] = report.told;
  json["shortage"] = report.shortage;
  json["remedies"] = Json::array();
  for (const train::PlannedRemedy& remedy : report.remedies) {
    json["remedies"].push_back({{"kind", to_string(remedy.kind)},
                                {"option", remedy.option},
                                {"peak_reserved", remedy.peak_reserved}});
  }
  json["record"] = report.record;
  return json.dump(2) + "\n";
}

}  // namespace headroom::cli
