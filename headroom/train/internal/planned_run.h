// PlannedRun: steps on a device without memory, with all that was allocated written down.
#pragma once

#include <memory>
#include <string>

#include "headroom/train/plan.h"

namespace headroom::train::internal {

struct RunNumbers {
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  int steps = 0;
  bool is_settled = false;
  std::string shortage{};  // empty where it fits
};

// Steps until everything repeats itself, with nothing looked at but the peaks: for searches.
[[nodiscard]] RunNumbers quick_run(const StepConfig& config, const PlanOptions& options);

// The same, with everything but formulas and `fits` filled in. The limit is kept; running out of
// memory is thrown.
[[nodiscard]] Plan full_run(const StepConfig& config, const PlanOptions& options);

// Bytes at the end of the last forward, by category; for formulas.
[[nodiscard]] CategoryBytes at_end_of_forward(const Plan& plan);

}  // namespace headroom::train::internal
