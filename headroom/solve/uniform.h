// The two classic schedules, which place checkpoints by counting stages: sqrt(n) of Chen et al.
// 2016 and Revolve of Griewank and Walther 2000. To compare with, and for chains of equal stages.
// Each saves by the quickest option of a stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headroom/solve/chain.h"
#include "headroom/solve/schedule.h"

namespace headroom::solve {

// Cuts the chain into `segments` of nearly equal length, from 1 to the number of stages. Of each
// but the last only the input is kept, and the segment runs forward again before its backward.
[[nodiscard]] Schedule equal_segments(const Chain& chain, std::size_t segments);

// As many segments as the square root of the number of stages, rounded.
[[nodiscard]] Schedule sqrt_schedule(const Chain& chain);

// Revolve with so many checkpoints, the chain's input being one of them. At least one.
[[nodiscard]] Schedule revolve(const Chain& chain, std::size_t checkpoints);

// The plain forward steps that Revolve takes, besides the one of each stage that saves:
// r*l - C(s+r, r-1) for l stages and s checkpoints, where C(s+r-1, s) < l <= C(s+r, s).
[[nodiscard]] std::uint64_t revolve_forwards(std::uint64_t stages, std::uint64_t checkpoints);

// The cheapest of the schedules above over all their numbers whose peak is within the budget;
// nothing where none is.
struct UniformPlan {
  Schedule schedule{};
  std::uint64_t peak_bytes = 0;
  double cost = 0;
};
[[nodiscard]] std::optional<UniformPlan> best_equal_segments(const Chain& chain,
                                                             std::uint64_t budget_bytes);
[[nodiscard]] std::optional<UniformPlan> best_revolve(const Chain& chain,
                                                      std::uint64_t budget_bytes);

}  // namespace headroom::solve
