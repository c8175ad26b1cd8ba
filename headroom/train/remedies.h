// Changes that make a run fit, each planned to its end before it is said.
//
//   for (const PlannedRemedy& remedy : planned_remedies(config, {.limit_bytes = 60_MiB})) {
//     remedy.option;   // "--accumulate 4"
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/out_of_memory.h"
#include "headroom/train/plan.h"

namespace headroom::train {

struct PlannedRemedy {
  enum class Kind : std::uint8_t {
    kCheckpoint,  // compute again in the backward instead of keeping
    kAccumulate,  // the same batch in smaller pieces
    kBatch,       // the largest batch that fits
    kLimit,       // the least limit under which the run as it is was planned
  };
  Kind kind = Kind::kLimit;
  StepConfig config{};                         // with the change
  std::optional<std::uint64_t> limit_bytes{};  // the old one, or the one to set
  std::uint64_t peak_reserved = 0;             // as planned with it
  std::string option{};                        // as the command takes it: "--limit 86MiB"
};

[[nodiscard]] std::string_view to_string(PlannedRemedy::Kind kind) noexcept;

// For a run that ran out of memory under options.limit_bytes, or on options.device. What keeps the
// numbers the same comes first; empty where nothing helps.
[[nodiscard]] std::vector<PlannedRemedy> planned_remedies(const StepConfig& config,
                                                          const PlanOptions& options);

// Where none of these but the limit helps: one example at a time, with the checkpointing that takes
// the least, and the least limit under which that was planned. Nothing where planning itself ends.
[[nodiscard]] std::optional<PlannedRemedy> least_that_fits(const StepConfig& config,
                                                           const PlanOptions& options);

// The same request's report, with these instead of what its account alone can say.
[[nodiscard]] std::string report_text(const memory::OutOfMemoryReport& report,
                                      const std::vector<PlannedRemedy>& remedies);

// The fewest micro-batches, from config.accumulate times two on, that fit; nothing where not even
// one example at a time does.
[[nodiscard]] std::optional<StepConfig> smaller_pieces(const StepConfig& config,
                                                       const PlanOptions& options);

}  // namespace headroom::train
