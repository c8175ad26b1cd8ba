// The planner against every schedule of short chains, the vectors of the literature, and the
// classic schedules on long ones.
#include "headroom/solve/checkpoint.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/solve/least_memory.h"
#include "headroom/solve/simulate.h"
#include "headroom/solve/uniform.h"

#include "tests/solve/chain_search.h"
#include "tests/solve/random_chain.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::solve {
namespace {

using testing::Allowed;
using testing::ChainMaker;
using testing::ChainSearch;

Chain uniform_chain(std::size_t stages) {
  Chain chain{.input_bytes = 1};
  const SaveOption all{.saved_bytes = 2, .forward_cost = 1, .backward_cost = 1};
  chain.stages.assign(stages, {.output_bytes = 1, .forward_cost = 1, .options = {all}});
  return chain;
}

std::uint64_t peak_of_all(const Chain& chain) {
  return simulate(chain, equal_segments(chain, 1)).value().peak_bytes;
}

TEST(Checkpoint, FindsThePublishedCostsOfUniformChains) {
  const std::array budgets{6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 22, 23};
  const std::vector<std::pair<std::size_t, std::vector<double>>> rows{
      {10, {65, 40, 34, 30, 28, 27, 27, 26, 25, 24, 23, 22, 21, 20}},
      {16, {152, 76, 62, 55, 51, 47, 46, 45, 44, 43, 42, 40, 39, 39}},
      {25, {350, 143, 111, 97, 89, 84, 79, 74, 73, 71, 69, 68, 67, 66}}};
  for (const auto& [stages, costs] : rows) {
    const Chain chain = uniform_chain(stages);
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      const auto budget = static_cast<std::uint64_t>(budgets[i]);
      const auto plan = plan_checkpoints(chain, {.budget_bytes = budget});
      ASSERT_TRUE(plan.has_value()) << stages << " stages, budget " << budget;
      EXPECT_EQ(plan->cost, costs[i]) << stages << " stages, budget " << budget;
      EXPECT_EQ(plan->rounding_loss, 0);
      EXPECT_LE(plan->peak_bytes, budget);
    }
    const auto refused = plan_checkpoints(chain, {.budget_bytes = 5});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().least_bytes, 6U);
  }
  EXPECT_EQ(plan_checkpoints(uniform_chain(16), {.budget_bytes = 35})->cost, 32);
  EXPECT_GT(plan_checkpoints(uniform_chain(16), {.budget_bytes = 34})->cost, 32);
  EXPECT_EQ(plan_checkpoints(uniform_chain(25), {.budget_bytes = 53})->cost, 50);
}

// With exact slots: the cost of the search, or refused with it.
void expect_optimal(const Chain& chain, std::uint64_t budget) {
  const auto plan = plan_checkpoints(chain, {.budget_bytes = budget});
  const auto best = ChainSearch(chain, budget, Allowed::kPersistent).least_cost();
  ASSERT_EQ(plan.has_value(), best.has_value()) << "budget " << budget;
  if (!plan) {
    const std::uint64_t least = plan.error().least_bytes;
    EXPECT_GT(least, budget);
    EXPECT_TRUE(plan_checkpoints(chain, {.budget_bytes = least}).has_value());
    EXPECT_FALSE(ChainSearch(chain, least - 1, Allowed::kPersistent).least_cost().has_value());
    return;
  }
  EXPECT_DOUBLE_EQ(plan->cost, *best) << "budget " << budget;
  EXPECT_EQ(plan->rounding_loss, 0) << "budget " << budget;
  const auto run = simulate(chain, plan->schedule);
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_EQ(run->peak_bytes, plan->peak_bytes);
  EXPECT_EQ(run->cost, plan->cost);
  EXPECT_LE(run->peak_bytes, budget);
}

TEST(Checkpoint, IsOptimalAmongAllPersistentSchedulesOfShortChains) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed);
  const int rounds = headroom::testing::rounds(10'000);
  for (int round = 0; round < rounds; ++round) {
    // The search grows with everything at once; the longest chains have no choice of options.
    const bool is_long = round % 30 == 1;
    const Chain chain =
        is_long ? make.tiny(make.number(6, 8), 1, false) : make.tiny(make.number(1, 5), 3, false);
    SCOPED_TRACE(round);
    expect_optimal(chain, make.number(0, peak_of_all(chain) + 1));
    if (HasFailure()) return;
  }
}

// With trips to the host the search may also send an input twice over the same stages, or late: the
// planner need not find that, but must not miss much, and nothing of what it promises.
TEST(Checkpoint, IsNearlyOptimalWhereInputsMayWaitOnTheHost) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed + 5);
  double planned = 0;
  double possible = 0;
  for (int round = 0; round < headroom::testing::rounds(400); ++round) {
    SCOPED_TRACE(round);
    const Chain chain = make.tiny(make.number(1, 4), 2, true);
    const std::uint64_t budget = make.number(0, peak_of_all(chain) + 1);
    const auto plan = plan_checkpoints(chain, {.budget_bytes = budget});
    const auto best = ChainSearch(chain, budget, Allowed::kPersistent).least_cost();
    if (!plan) continue;
    ASSERT_TRUE(best.has_value());
    EXPECT_GE(plan->cost, *best);
    EXPECT_LE(plan->peak_bytes, budget);
    planned += plan->cost;
    possible += *best;
  }
  EXPECT_LE(planned, 1.01 * possible);
}

TEST(Checkpoint, NeverClaimsLessThanAnyScheduleTakes) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed + 1);
  for (int round = 0; round < 100; ++round) {
    const Chain chain = make.tiny(make.number(1, 4), 2, round % 2 == 0);
    const std::uint64_t budget = make.number(1, peak_of_all(chain));
    const auto plan = plan_checkpoints(chain, {.budget_bytes = budget});
    const auto best = ChainSearch(chain, budget, Allowed::kAnything).least_cost();
    if (plan) {
      ASSERT_TRUE(best.has_value());
      EXPECT_GE(plan->cost, *best);
    }
  }
}

TEST(Checkpoint, StatesWhatRoundingMayHaveCost) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed + 2);
  for (int round = 0; round < 300; ++round) {
    const Chain chain = make.tiny(make.number(2, 7), 2, round % 2 == 0);
    const std::uint64_t least = least_memory(chain).peak_bytes;
    const std::uint64_t budget = make.number(least, std::max(least, peak_of_all(chain)));
    const auto exact = plan_checkpoints(chain, {.budget_bytes = budget});
    const auto rough = plan_checkpoints(chain, {.budget_bytes = budget, .slots = 7});
    ASSERT_TRUE(exact && rough);
    EXPECT_LE(rough->peak_bytes, budget);
    EXPECT_GE(rough->cost, exact->cost);
    EXPECT_LE(rough->lower_bound, exact->cost);
    EXPECT_DOUBLE_EQ(rough->rounding_loss, rough->cost - rough->lower_bound);
  }
}

TEST(Checkpoint, IsNeverAboveTheClassicSchedulesAtEqualPeak) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed + 3);
  const int rounds = headroom::testing::rounds(24);
  for (int round = 0; round < rounds; ++round) {
    const Chain chain = make.large(make.number(2, round % 10 == 0 ? 150 : 50));
    const std::size_t stages = chain.stages.size();
    for (const Schedule& classic : {sqrt_schedule(chain),
                                    equal_segments(chain, make.number(1, stages)),
                                    revolve(chain, make.number(1, stages))}) {
      const auto run = simulate(chain, classic);
      ASSERT_TRUE(run.has_value()) << run.error().message;
      const auto plan = plan_checkpoints(chain, {.budget_bytes = run->peak_bytes});
      ASSERT_TRUE(plan.has_value());
      EXPECT_LE(plan->cost, run->cost);
      EXPECT_LE(plan->peak_bytes, run->peak_bytes);
      EXPECT_LE(plan->lower_bound, plan->cost);
    }
  }
}

TEST(Checkpoint, SendsAnInputToTheHostWhereThatIsCheaper) {
  Chain chain = uniform_chain(6);
  for (Stage& stage : chain.stages) stage.input_trip_cost = 0.25;
  const auto with_host = plan_checkpoints(chain, {.budget_bytes = 7});
  const auto without = plan_checkpoints(uniform_chain(6), {.budget_bytes = 7});
  ASSERT_TRUE(with_host && without);
  EXPECT_LT(with_host->cost, without->cost);
  EXPECT_GT(simulate(chain, with_host->schedule)->peak_host_bytes, 0U);
}

TEST(Checkpoint, LeastMemoryIsReachedAndNotPassed) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  ChainMaker make(seed + 4);
  for (int round = 0; round < 200; ++round) {
    const Chain chain = make.large(make.number(1, 40));
    const LeastMemory least = least_memory(chain);
    ASSERT_EQ(simulate(chain, least.schedule).value().peak_bytes, least.peak_bytes);
    if (round % 20 != 0) continue;
    EXPECT_TRUE(plan_checkpoints(chain, {.budget_bytes = least.peak_bytes}).has_value());
    EXPECT_FALSE(plan_checkpoints(chain, {.budget_bytes = least.peak_bytes - 1}).has_value());
  }
}

TEST(Checkpoint, HandlesTheLongestChainAndRefusesALongerOne) {
  if (headroom::testing::kIsSanitized) GTEST_SKIP() << "minutes under a sanitizer";
  ChainMaker make(headroom::testing::test_seed());
  Chain chain = make.large(kMostStages);
  EXPECT_TRUE(simulate(chain, least_memory(chain).schedule).has_value());
  chain.stages.push_back(chain.stages.back());
  EXPECT_THROW((void)plan_checkpoints(chain, {.budget_bytes = 1}), InvalidArgument);
}

TEST(Checkpoint, RefusesChainsThatCannotBe) {
  const auto refusal = [](const Chain& chain) -> std::string {
    try {
      check_chain(chain);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(uniform_chain(3)), "");
  EXPECT_EQ(refusal({}), "chain: it has no stages; give it at least one");
  Chain chain = uniform_chain(3);
  chain.stages[1].options[0].saved_bytes = 0;
  EXPECT_EQ(refusal(chain),
            "chain: stage 1 saves 0 bytes, fewer than the 1 of its output, which count as saved");
  chain = uniform_chain(3);
  chain.stages[2].options.clear();
  EXPECT_EQ(refusal(chain), "chain: stage 2 has no option to save by; give it at least one");
  chain = uniform_chain(3);
  chain.stages[0].forward_cost = -1;
  EXPECT_EQ(refusal(chain), "chain: stage 0 has a cost that is negative or no number");
  chain = uniform_chain(3);
  chain.stages[0].forward_extra_bytes = UINT64_MAX;
  EXPECT_EQ(refusal(chain), "chain: its bytes add up to more than 2^62");
  EXPECT_THROW((void)plan_checkpoints(uniform_chain(2), {.budget_bytes = 9, .slots = -1}),
               InvalidArgument);
}

TEST(Checkpoint, PlansAChainOfNoBytes) {
  Chain chain = uniform_chain(4);
  chain.input_bytes = 0;
  for (Stage& stage : chain.stages) {
    stage.output_bytes = 0;
    stage.options[0].saved_bytes = 0;
  }
  const auto plan = plan_checkpoints(chain, {.budget_bytes = 0});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->cost, 8);
  EXPECT_EQ(plan->peak_bytes, 0U);
}

}  // namespace
}  // namespace headroom::solve
