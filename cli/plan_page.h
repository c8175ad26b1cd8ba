// The plan as a page: one HTML file with its data, script and style, and nothing from elsewhere.
#pragma once

#include <string>

#include "headroom/train/plan.h"

#include "cli/progress.h"

namespace headroom::cli {

// Plans the model over a grid of depths and batches around `plan`'s, for every precision, optimiser
// and checkpoint mode, and writes them into a page with sliders.
[[nodiscard]] std::string plan_page(const train::Plan& plan,
                                    const train::PlanOptions& options,
                                    const Progress& progress);

}  // namespace headroom::cli
