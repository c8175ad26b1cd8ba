#include "headroom/solve/chain.h"

#include <cmath>
#include <string>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"

namespace headroom::solve {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62U;

[[noreturn]] void refuse(std::size_t stage, const std::string& what) {
  throw InvalidArgument("chain: stage " + std::to_string(stage) + " " + what);
}

void check_cost(std::size_t stage, double cost) {
  if (!std::isfinite(cost) || cost < 0) refuse(stage, "has a cost that is negative or no number");
}

void check_option(std::size_t at, const Stage& stage, const SaveOption& option) {
  check_cost(at, option.forward_cost);
  check_cost(at, option.backward_cost);
  if (option.saved_bytes < stage.output_bytes) {
    refuse(at,
           "saves " + std::to_string(option.saved_bytes) + " bytes, fewer than the " +
               std::to_string(stage.output_bytes) + " of its output, which count as saved");
  }
}

// The most that a stage can add to what is live, in any of its steps.
std::uint64_t most_bytes(const Stage& stage) {
  std::uint64_t option_bytes = 0;
  for (const SaveOption& option : stage.options) {
    std::uint64_t sum = option.saved_bytes;
    for (const std::uint64_t more :
         {option.forward_extra_bytes, option.backward_extra_bytes, option.host_bytes}) {
      sum = saturating_add(sum, more);
    }
    option_bytes = saturating_add(option_bytes, sum);
  }
  // Output and gradient, each twice: of this stage and as the next one's input.
  for (int i = 0; i < 4; ++i) option_bytes = saturating_add(option_bytes, stage.output_bytes);
  return saturating_add(option_bytes, stage.forward_extra_bytes);
}

}  // namespace

void check_chain(const Chain& chain) {
  if (chain.stages.empty()) throw InvalidArgument("chain: it has no stages; give it at least one");
  if (chain.stages.size() > kMostStages) {
    throw InvalidArgument("chain: " + std::to_string(chain.stages.size()) +
                          " stages are more than the " + std::to_string(kMostStages) +
                          " that can be planned; group neighbours into one stage");
  }
  std::uint64_t sum = saturating_add(chain.loss_extra_bytes, chain.input_bytes);
  sum = saturating_add(sum, chain.input_bytes);
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const Stage& stage = chain.stages[i];
    if (stage.options.empty()) refuse(i, "has no option to save by; give it at least one");
    check_cost(i, stage.forward_cost);
    if (stage.input_trip_cost) check_cost(i, *stage.input_trip_cost);
    for (const SaveOption& option : stage.options) check_option(i, stage, option);
    sum = saturating_add(sum, most_bytes(stage));
  }
  if (sum > kMostBytes) throw InvalidArgument("chain: its bytes add up to more than 2^62");
  if (!std::isfinite(chain.loss_cost) || chain.loss_cost < 0) {
    throw InvalidArgument("chain: the loss has a cost that is negative or no number");
  }
}

std::size_t quickest_option(const Stage& stage) {
  std::size_t best = 0;
  const auto cost = [&](std::size_t k) {
    return stage.options[k].forward_cost + stage.options[k].backward_cost;
  };
  for (std::size_t k = 1; k < stage.options.size(); ++k) {
    const bool is_smaller = stage.options[k].saved_bytes < stage.options[best].saved_bytes;
    if (cost(k) < cost(best) || (cost(k) == cost(best) && is_smaller)) best = k;
  }
  return best;
}

double cost_without_recomputing(const Chain& chain) {
  double sum = chain.loss_cost;
  for (const Stage& stage : chain.stages) {
    const SaveOption& option = stage.options[quickest_option(stage)];
    sum += option.forward_cost + option.backward_cost;
  }
  return sum;
}

}  // namespace headroom::solve
