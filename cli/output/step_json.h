// A training step in JSON, the same in `plan` and `train`.
#pragma once

#include <nlohmann/json.hpp>

#include "headroom/train/plan.h"

namespace headroom::cli {

void add_step_json(const train::StepConfig& config, nlohmann::ordered_json& json);

}  // namespace headroom::cli
