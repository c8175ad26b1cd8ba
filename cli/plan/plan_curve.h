// A plan as the page keeps it: its peaks, and the step's curve in few points with exact bytes.
#pragma once

#include <array>

#include <nlohmann/json_fwd.hpp>

#include "headroom/memory/types.h"
#include "headroom/train/plan.h"

namespace headroom::cli {

// From the bottom of the curve to its top.
inline constexpr std::array kCurveCategories{memory::Category::kParameter,
                                             memory::Category::kOptimizerState,
                                             memory::Category::kData,
                                             memory::Category::kGradient,
                                             memory::Category::kActivation,
                                             memory::Category::kWorkspace,
                                             memory::Category::kUnknown};

// "points" are events of the step, at most 128; "series" has the bytes after each, by category.
// Both are differences in base 36 with commas, and `~12` for twelve that are 0.
[[nodiscard]] nlohmann::ordered_json curve_json(const train::Plan& plan);

}  // namespace headroom::cli
