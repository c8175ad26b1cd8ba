// Which activations of a chain to keep, so that a training step fits a budget of bytes in the least
// time.
//
//   const auto plan = plan_checkpoints(chain, {.budget_bytes = 6_GiB});
//   if (plan) run(plan->schedule); else complain(plan.error().least_bytes);
//
// Searched are the persistent schedules: what was kept stays until its backward has used it. Among
// those the plan is within `rounding_loss` of the best. Its peak and cost are those of simulate().
#pragma once

#include <cstdint>

#include "headroom/base/result.h"
#include "headroom/solve/chain.h"
#include "headroom/solve/schedule.h"

namespace headroom::solve {

struct CheckpointOptions {
  std::uint64_t budget_bytes = 0;  // of all that is live, the chain's input among it
  // Into how many parts the budget is cut. 0: as few as make it exact, or else as many as leave the
  // plan quick to find.
  int slots = 0;
};

struct CheckpointPlan {
  Schedule schedule{};
  std::uint64_t peak_bytes = 0;
  double cost = 0;
  // No persistent schedule within the budget costs less.
  double lower_bound = 0;
  // cost - lower_bound: what counting in slots may have cost, at most. 0 where nothing was rounded.
  double rounding_loss = 0;
  // The cost of running every step once, to compare with.
  double cost_without_recomputing = 0;
  int slots = 0;  // 0 where none were needed, since everything could be kept
  std::uint64_t slot_bytes = 0;
};

struct BudgetTooSmall {
  std::uint64_t budget_bytes = 0;
  std::uint64_t least_bytes = 0;  // exact: with this budget there is a plan
};

// Throws InvalidArgument, as check_chain(), and where `slots` is negative or above
// kMostBudgetSlots.
[[nodiscard]] Result<CheckpointPlan, BudgetTooSmall> plan_checkpoints(
    const Chain& chain, const CheckpointOptions& options);

inline constexpr int kMostBudgetSlots = 20'000;

}  // namespace headroom::solve
