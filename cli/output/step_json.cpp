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

nlohmann::ordered_json categories_json(const train::CategoryBytes& bytes) {
  nlohmann::ordered_json out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out[std::string(to_string(static_cast<memory::Category>(i)))] = bytes[i];
  }
  return out;
}

}  // namespace headroom::cli
