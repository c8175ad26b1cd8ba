// `headroom compare`: recordings under every policy, side by side, on the terminal, as JSON or as
// the page docs/guide/comparison.md. Every number is measured while it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/replay/policy.h"

#include "cli/command.h"

namespace headroom::cli {

struct CompareQuestion {
  std::vector<std::string> paths{};        // none: the samples
  std::vector<replay::Policy> policies{};  // none: the usual ones
  bool tunes = false;                      // adds the setting that `tune` finds
  bool finds_smallest_limit = false;
  int rounds = 3;  // of which the quickest counts
};

struct ComparedPolicy {
  std::string policy{};
  bool is_model = false;
  bool fits = true;
  bool is_bound_exceeded = false;
  std::uint64_t peak_live = 0;  // of what it served
  std::uint64_t peak_reserved = 0;
  std::optional<std::uint64_t> smallest_limit{};
  replay::DriverCalls calls{};
  double driver_us_second_half = 0;
  std::optional<double> op_ns{};  // of the replay: nothing for a model
};

struct ComparedTrace {
  std::string recording{};
  std::uint64_t events = 0;
  std::uint64_t ops = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t peak_live_if_served = 0;      // with the requests that failed
  std::uint64_t duration_us = 0;              // as recorded
  std::uint64_t duration_us_second_half = 0;  // of the ops
  std::vector<ComparedPolicy> rows{};
};

struct Comparison {
  CompareQuestion question{};
  std::vector<ComparedTrace> traces{};  // one for each device that has a history
};

[[nodiscard]] Comparison compare(const CompareQuestion& question, const Context& context);

// No bound was exceeded.
[[nodiscard]] ExitCode verdict(const Comparison& comparison);

// The peak over what was live then, the smallest limit over what is live where nothing fails, and a
// time over the recorded one; nothing over nothing.
[[nodiscard]] std::optional<double> over_live(const ComparedPolicy& row);
[[nodiscard]] std::optional<double> smallest_limit_over_live(const ComparedTrace& trace,
                                                             const ComparedPolicy& row);
[[nodiscard]] std::optional<double> driver_share(const ComparedTrace& trace,
                                                 const ComparedPolicy& row);
[[nodiscard]] std::optional<double> driver_share_second_half(const ComparedTrace& trace,
                                                             const ComparedPolicy& row);

[[nodiscard]] std::string draw_comparison(const Comparison& comparison, const Context& context);
[[nodiscard]] std::string comparison_json(const Comparison& comparison);
[[nodiscard]] std::string comparison_page(const Comparison& comparison);

}  // namespace headroom::cli
