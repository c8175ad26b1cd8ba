// What `plan` and `train` draw alike.
#pragma once

#include <string>

#include "headroom/report/terminal.h"
#include "headroom/train/meter.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// What the memory is for: a bar and its legend.
[[nodiscard]] std::string draw_categories(const train::CategoryBytes& bytes,
                                          const report::Terminal& terminal);

// What --checkpoint auto chose, as a line.
[[nodiscard]] std::string checkpoint_line(train::CheckpointMode mode, bool fits);

}  // namespace headroom::cli
