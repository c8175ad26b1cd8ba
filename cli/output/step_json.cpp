#include "cli/output/step_json.h"

#include "cli/output/json_values.h"

namespace headroom::cli {

void add_step_json(const train::StepConfig& config, nlohmann::ordered_json& json) {
  json["model"] = config.model.name;
  json["depth"] = value_json(config.model.depth);
  json["width"] = value_json(config.model.width);
  json["seq"] = value_json(config.model.seq);
  json["batch"] = config.batch;
  json["accumulate"] = config.accumulate;
  json["optimizer"] = config.optimizer;
  json["precision"] = to_string(config.precision);
  json["checkpoint"] = to_string(config.checkpoint);
}

}  // namespace headroom::cli
