// The pictures that `plan` and `train` share.
#pragma once

#include <string>

#include "headroom/report/terminal.h"
#include "headroom/train/meter.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// The categories of the memory, as a bar and its legend.
[[nodiscard]] std::string draw_categories(const train::CategoryBytes& bytes,
                                          const report::Terminal& terminal);

// The choice of --checkpoint auto, as a line.
[[nodiscard]] std::string checkpoint_line(train::CheckpointMode mode, bool fits);

}  // namespace headroom::cli
