// The plan as a page: one HTML file with its data, script and style, and nothing from elsewhere.
#pragma once

#include <string>

#include "headroom/train/plan.h"

#include "cli/output/progress.h"

namespace headroom::cli {

struct PlanPageOptions {
  train::PlanOptions plan{};
  std::string card{};   // that the limit is the size of; empty where it is not a card's
  std::string other{};  // options that no control of the page changes, as typed: " --seed 1"
};

// Plans every step of a PlanGrid around `plan`, and writes them into a page with controls.
[[nodiscard]] std::string plan_page(const train::Plan& plan,
                                    const PlanPageOptions& options,
                                    const Progress& progress);

}  // namespace headroom::cli
