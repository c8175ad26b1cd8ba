// One recording under several policies, side by side: what each reserves, what its driver calls
// cost and how long a replayed operation takes.
//
//   const auto file = trace::read_trace("run.pickle");
//   for (const ComparedRecording& device : compare(file->trace, "run", {.rounds = 1})) {
//     for (const ComparedPolicy& row : device.rows) print(row.policy, row.peak_reserved);
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/replay/policy.h"
#include "headroom/trace/trace.h"

namespace headroom::replay {

struct CompareOptions {
  std::vector<Policy> policies{};  // none: the usual ones
  bool tunes = false;              // adds the setting that tune() finds
  bool finds_smallest_limit = false;
  int rounds = 3;                                    // of which the quickest counts
  std::function<void(std::string_view)> progress{};  // told what is being done
};

struct ComparedPolicy {
  std::string policy{};
  bool is_model = false;
  bool fits = true;
  bool is_bound_exceeded = false;
  std::uint64_t peak_live = 0;  // of what it served
  std::uint64_t peak_reserved = 0;
  std::optional<std::uint64_t> smallest_limit{};
  DriverCalls calls{};
  double driver_us_second_half = 0;
  std::optional<double> op_ns{};  // of the replay: nothing for a model
};

struct ComparedRecording {
  std::string recording{};
  std::uint64_t events = 0;
  std::uint64_t ops = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t peak_live_if_served = 0;      // with the requests that failed
  std::uint64_t duration_us = 0;              // as recorded
  std::uint64_t duration_us_second_half = 0;  // of the ops
  std::vector<ComparedPolicy> rows{};
};

// Each device that has a history, under the name of the recording, and its own where there are
// several. Empty where none has.
[[nodiscard]] std::vector<ComparedRecording> compare(const trace::Trace& trace,
                                                     const std::string& name,
                                                     const CompareOptions& options = {});

// The peak over what was live then, the smallest limit over what is live where nothing fails, and a
// time over the recorded one; nothing over nothing.
[[nodiscard]] std::optional<double> over_live(const ComparedPolicy& row);
[[nodiscard]] std::optional<double> smallest_limit_over_live(const ComparedRecording& trace,
                                                             const ComparedPolicy& row);
[[nodiscard]] std::optional<double> driver_share(const ComparedRecording& trace,
                                                 const ComparedPolicy& row);
[[nodiscard]] std::optional<double> driver_share_second_half(const ComparedRecording& trace,
                                                             const ComparedPolicy& row);

}  // namespace headroom::replay
