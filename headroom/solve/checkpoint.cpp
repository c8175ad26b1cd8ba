#include "headroom/solve/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/base/error.h"
#include "headroom/solve/internal/range_table.h"
#include "headroom/solve/internal/slot_chain.h"
#include "headroom/solve/least_memory.h"
#include "headroom/solve/simulate.h"
#include "headroom/solve/uniform.h"

namespace headroom::solve {
namespace {

using internal::RangeTable;
using internal::Rounding;
using internal::SlotChain;

// The work of a table is the number of its splits times the slots. The budgets of work keep 500
// stages at a few seconds and 60 at tens of milliseconds.
constexpr double kMostWork = 5e9;
constexpr int kFewestSlots = 128;
constexpr int kEnoughSlots = 2000;
// Longer chains take float: the table of double would not fit.
constexpr std::size_t kMostDoubleStages = 128;

double splits_of(std::size_t stages) {
  const auto n = static_cast<double>(stages + 1);
  return n * n * n / 6;
}

class Planner {
 public:
  Planner(const Chain& chain, const CheckpointOptions& options)
      : chain_(chain), options_(options), budget_bytes_(options.budget_bytes) {
    plan_.cost = std::numeric_limits<double>::infinity();
    plan_.cost_without_recomputing = cost_without_recomputing(chain);
  }

  Result<CheckpointPlan, BudgetTooSmall> run() {
    offer(equal_segments(chain_, 1));
    if (plan_.cost <= plan_.cost_without_recomputing) {
      plan_.lower_bound = plan_.cost;
      return std::move(plan_);
    }
    LeastMemory least = least_memory(chain_);
    if (least.peak_bytes > budget_bytes_) {
      return Unexpected(BudgetTooSmall{budget_bytes_, least.peak_bytes});
    }
    offer(std::move(least.schedule));
    // What the classic schedules find, the table should; it cannot where its slots are too coarse.
    if (auto segments = best_equal_segments(chain_, budget_bytes_)) {
      offer(std::move(segments->schedule));
    }
    if (auto binomial = best_revolve(chain_, budget_bytes_)) offer(std::move(binomial->schedule));
    choose_slots();
    if (chain_.stages.size() <= kMostDoubleStages) {
      search<double>();
    } else {
      search<float>();
    }
    plan_.lower_bound = std::min(plan_.lower_bound, plan_.cost);
    plan_.rounding_loss = plan_.cost - plan_.lower_bound;
    return std::move(plan_);
  }

 private:
  // Takes the schedule where it fits and costs less than the best so far.
  bool offer(Schedule schedule) {
    const auto run = simulate(chain_, schedule);
    if (!run) {
      for (auto& s : schedule) std::puts(to_string(s).c_str());
      std::puts(run.error().message.c_str());
    }
    HEADROOM_CHECK(run.has_value(), "a planner made a schedule that cannot run");
    if (run->peak_bytes > budget_bytes_) return false;
    if (run->cost < plan_.cost) {
      plan_.schedule = std::move(schedule);
      plan_.cost = run->cost;
      plan_.peak_bytes = run->peak_bytes;
    }
    return true;
  }

  void choose_slots() {
    // Where the quickest way to save everything does not fit, no more than that is ever used.
    const std::uint64_t unit = internal::common_unit(chain_);
    const std::uint64_t exact = budget_bytes_ / unit;
    const double affordable = kMostWork / splits_of(chain_.stages.size());
    const int most =
        std::clamp(static_cast<int>(std::min(affordable, 1e6)), kFewestSlots, kEnoughSlots);
    const auto wanted = static_cast<std::uint64_t>(options_.slots > 0 ? options_.slots : most);
    is_exact_ = exact <= wanted;
    plan_.slot_bytes = is_exact_ ? unit : (budget_bytes_ + wanted - 1) / wanted;
    plan_.slots = static_cast<int>(budget_bytes_ / plan_.slot_bytes);
  }

  template <class Value>
  void search() {
    const SlotChain down = count_slots(chain_, budget_bytes_, plan_.slot_bytes, Rounding::kDown);
    {
      const RangeTable<Value> table(down);
      plan_.lower_bound = certain(table.cost(down.slots), sizeof(Value));
      const bool fits = offer(table.schedule(down.slots));
      // Nothing was rounded but sums of costs, in their last digit.
      if (is_exact_ && sizeof(Value) == sizeof(double)) plan_.lower_bound = plan_.cost;
      if (fits || is_exact_) return;
    }
    // Somewhat more slots than the budget has: rounding may have been against us as well.
    const std::uint64_t margin = budget_bytes_ / 32 + 8 * plan_.slot_bytes;
    const SlotChain spread =
        count_slots(chain_, budget_bytes_ + margin, plan_.slot_bytes, Rounding::kSpread);
    const RangeTable<Value> table(spread);
    // From the cheapest down to the first that fits.
    for (int slots = table.start_of_level(spread.slots); slots >= 0;
         slots = table.start_of_level(slots - 1)) {
      if (offer(table.schedule(slots)) || table.cost(slots) >= plan_.cost) break;
    }
  }

  // A sum in floats may be too high: each addition by half a unit in the last place.
  [[nodiscard]] double certain(double cost, std::size_t value_bytes) const {
    const double unit = value_bytes == sizeof(float) ? std::ldexp(1.0, -24) : std::ldexp(1.0, -53);
    const double additions = 4 * static_cast<double>(chain_.stages.size() + 1);
    return std::max(cost * (1 - additions * unit), plan_.cost_without_recomputing);
  }

  const Chain& chain_;
  const CheckpointOptions& options_;
  std::uint64_t budget_bytes_;
  bool is_exact_ = false;
  CheckpointPlan plan_{};
};

}  // namespace

Result<CheckpointPlan, BudgetTooSmall> plan_checkpoints(const Chain& chain,
                                                        const CheckpointOptions& options) {
  check_chain(chain);
  if (options.slots < 0 || options.slots > kMostBudgetSlots) {
    throw InvalidArgument("plan_checkpoints: " + std::to_string(options.slots) +
                          " slots; choose 0 (automatic) to " + std::to_string(kMostBudgetSlots));
  }
  return Planner(chain, options).run();
}

}  // namespace headroom::solve
