// The second act of `headroom demo`: a model is trained here that does not fit its limit, and each
// fix is planned, then measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/memory/out_of_memory.h"
#include "headroom/train/plan.h"

#include "cli/command.h"
#include "cli/output/progress.h"

namespace headroom::cli {

struct PeakBytes {
  std::uint64_t allocated = 0;
  std::uint64_t reserved = 0;

  friend bool operator==(const PeakBytes&, const PeakBytes&) = default;
};

// One way to run the same training.
struct TrainingRow {
  std::string name{};
  train::Plan plan{};    // on a device without memory
  PeakBytes measured{};  // on the processor, without a limit
  bool fits = false;     // under the act's limit
  double loss = 0;       // of the last step
  double seconds = 0;    // a step
};

struct TrainingAct {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::int64_t parameters = 0;
  int steps = 0;  // of each row
  train::StepConfig config{};
  std::string report{};             // of the step that did not fit
  std::vector<std::string> told{};  // what with_retry did about it
  double retried_loss = 0;          // of the same step then
  double first_loss = 0;            // of that step without a limit
  std::vector<TrainingRow> rows{};  // the first as it is, the others a fix each
  memory::Account account{};        // after the last row's training
};

// Each row trains this number of steps, two at least: the optimiser's state comes with the first.
// The same each time but for `seconds`.
[[nodiscard]] TrainingAct play_training(int steps, const Progress& progress);

[[nodiscard]] std::string draw_training(const TrainingAct& act, const Context& context);

}  // namespace headroom::cli
