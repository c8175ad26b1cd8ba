// `headroom plan`, in steps that tests can take one by one: plan, then draw it, write it as JSON or
// as a page.
#pragma once

#include <string>

#include "headroom/train/plan.h"

#include "cli/command.h"

namespace headroom::cli {

struct PlanReport {
  train::Plan plan{};
  bool is_fit = false;  // --fit: plan is of the largest batch
  int tried = 0;
  bool is_auto = false;  // --checkpoint auto: the mode was chosen
  std::string page{};    // what was written
};

[[nodiscard]] std::string draw_plan(const PlanReport& report, const Context& context);

// Follows docs/format/plan.schema.json.
[[nodiscard]] std::string plan_json(const PlanReport& report);

}  // namespace headroom::cli
