// `headroom plan`, in steps that tests can take one by one: plan, then draw it, write it as JSON or
// as a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/train/plan.h"
#include "headroom/train/remedies.h"

#include "cli/command.h"

namespace headroom::cli {

// How the plan, or with --fit the largest batch, stands to one of several cards.
struct CardPlan {
  std::string name{};
  std::uint64_t size_bytes = 0;
  bool fits = false;
  std::int64_t batch = 0;
  std::uint64_t peak_reserved = 0;
};

struct PlanReport {
  train::Plan plan{};
  bool is_fit = false;  // --fit: plan is of the largest batch
  int tried = 0;
  std::uint64_t next_reserved = 0;  // --fit: what one example more takes
  bool is_auto = false;             // --checkpoint auto: the mode was chosen
  std::vector<CardPlan> cards{};
  std::string options{};  // as typed, beside the step's: for the command worth typing next
  // Where it does not fit: what was planned to fit, and its options beside the step's.
  std::optional<train::PlannedRemedy> remedy{};
  std::string remedy_options{};
  std::string page{};  // what was written
};

// `2348MiB`: the limit of a remedy that raises it, with nothing rounded away.
[[nodiscard]] std::string least_limit_of(const train::PlannedRemedy& remedy);

[[nodiscard]] std::string draw_plan(const PlanReport& report, const Context& context);

// Follows docs/format/plan.schema.json.
[[nodiscard]] std::string plan_json(const PlanReport& report);

}  // namespace headroom::cli
