// A training step in JSON, the same in `plan` and `train`.
#pragma once

#include <nlohmann/json.hpp>

#include "headroom/train/plan.h"

namespace headroom::cli {

void add_step_json(const train::StepConfig& config, nlohmann::ordered_json& json);
// By name; all of them, in their order.
[[nodiscard]] nlohmann::ordered_json categories_json(const train::CategoryBytes& bytes);

}  // namespace headroom::cli
