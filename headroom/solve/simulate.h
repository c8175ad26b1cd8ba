// The arbiter: runs a schedule step by step over a table of what is live, and says what it takes
// and costs. It shares no code with the planners, whose schedules all pass through it.
//
//   auto run = simulate(chain, schedule);
//   if (run && run->peak_bytes <= budget) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "headroom/base/result.h"
#include "headroom/solve/chain.h"
#include "headroom/solve/schedule.h"

namespace headroom::solve {

struct Simulation {
  std::uint64_t peak_bytes = 0;  // with the chain's input
  std::size_t peak_step = 0;     // the first that reaches it
  double cost = 0;
  std::uint64_t peak_host_bytes = 0;
};

// Why a schedule cannot run.
struct ScheduleFault {
  std::size_t step = 0;   // its place in the schedule; the length where the end is at fault
  std::string message{};  // "step 7 (backward 3): the gradient of its output is missing"
};

// The chain must have passed check_chain(). The schedule is complete when the backward of each
// stage has run.
[[nodiscard]] Result<Simulation, ScheduleFault> simulate(const Chain& chain,
                                                         const Schedule& schedule);

}  // namespace headroom::solve
