// A step that survives running out of memory: it gives cached memory back, then halves the
// micro-batch, and says so. The batch, and with it the loss, stays what it was (but for what batch
// norm sees at once).
//
//   std::vector<std::string> told;
//   const StepResult result = with_retry(runner, told);
#pragma once

#include <string>
#include <vector>

#include "headroom/train/step.h"

namespace headroom::train {

// One line in `told` for each thing that was done. Throws OutOfMemory, with its report, when not
// even one example at a time fits, or the update itself does not.
StepResult with_retry(StepRunner& runner, std::vector<std::string>& told);

}  // namespace headroom::train
