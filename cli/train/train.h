// `headroom train`, in steps that tests can take one by one: run, then draw it or write it as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/memory/account.h"
#include "headroom/train/plan.h"
#include "headroom/train/remedies.h"

#include "cli/command.h"
#include "cli/output/spread.h"

namespace headroom::cli {

struct TrainReport {
  train::StepConfig config{};
  std::string device{};
  std::int64_t parameters = 0;
  std::int64_t steps = 0;  // asked for
  bool is_auto = false;    // --checkpoint auto: the mode was chosen
  std::vector<double> losses{};
  std::vector<double> step_ms{};
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::uint64_t planned_allocated = 0;
  std::uint64_t planned_reserved = 0;
  train::CategoryBytes categories{};  // at the peak
  std::int64_t micro_batch = 0;       // at the end
  std::vector<std::string> told{};    // by with_retry
  std::optional<std::uint64_t> limit_bytes{};
  std::optional<memory::Account> account{};  // after the last step
  std::string shortage{};                    // the report, where memory ran out
  std::vector<train::PlannedRemedy> remedies{};
  bool is_planned_to_fit = true;
  std::string options{};  // as typed, beside the step's: for the command worth typing next
  std::string record{};   // the recording that was written

  [[nodiscard]] bool fits() const { return shortage.empty(); }
};

[[nodiscard]] std::string draw_train(const TrainReport& report, const Context& context);

// Follows docs/format/train.schema.json.
[[nodiscard]] std::string train_json(const TrainReport& report);

}  // namespace headroom::cli
