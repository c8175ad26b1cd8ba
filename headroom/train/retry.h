// A step that survives running out of memory: it gives cached memory back where a plan says that
// this helps, else takes the largest micro-batch, by halves, that is planned to fit, and says so.
// The batch, and with it the loss, stays what it was (but for what batch norm sees at once).
//
//   std::vector<std::string> told;
//   const StepResult result = with_retry(runner, told);
#pragma once

#include <string>
#include <vector>

#include "headroom/train/plan.h"
#include "headroom/train/step.h"

namespace headroom::train {

// One line in `told` for each thing that was done. Throws OutOfMemory, with its report, when not
// even one example at a time fits, or the update itself does not. The options say which settings
// the runner's allocator was made with; its limit and its device are its own.
StepResult with_retry(StepRunner& runner,
                      std::vector<std::string>& told,
                      const PlanOptions& options = {});

}  // namespace headroom::train
