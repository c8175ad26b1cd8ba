// The classic schedules against their formulas.
#include "headroom/solve/uniform.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "headroom/solve/simulate.h"

namespace headroom::solve {
namespace {

Chain chain_of(std::size_t stages) {
  Chain chain{.input_bytes = 1};
  const SaveOption all{.saved_bytes = 1, .forward_cost = 0, .backward_cost = 0};
  chain.stages.assign(stages, {.output_bytes = 1, .forward_cost = 1, .options = {all}});
  return chain;
}

TEST(Uniform, RevolveTakesThePublishedNumberOfForwards) {
  struct Row {
    std::uint64_t stages;
    std::array<std::uint64_t, 10> forwards;
  };
  constexpr std::array kCheckpoints{1U, 2U, 3U, 4U, 5U, 6U, 8U, 10U, 12U, 16U};
  const std::array rows{Row{10, {45, 20, 15, 14, 13, 12, 10, 9, 9, 9}},
                        Row{24, {276, 88, 61, 51, 44, 40, 38, 36, 34, 30}},
                        Row{32, {496, 140, 93, 75, 68, 60, 54, 52, 50, 46}},
                        Row{50, {1225, 285, 180, 144, 122, 114, 95, 88, 86, 82}},
                        Row{64, {2016, 420, 258, 200, 172, 156, 137, 116, 114, 110}},
                        Row{100, {4950, 845, 490, 374, 316, 280, 245, 222, 195, 182}}};
  for (const Row& row : rows) {
    const Chain chain = chain_of(row.stages);
    for (std::size_t i = 0; i < kCheckpoints.size(); ++i) {
      EXPECT_EQ(revolve_forwards(row.stages, kCheckpoints[i]), row.forwards[i]);
      const auto run = simulate(chain, revolve(chain, kCheckpoints[i]));
      ASSERT_TRUE(run.has_value()) << run.error().message;
      EXPECT_EQ(run->cost, static_cast<double>(row.forwards[i]))
          << row.stages << " stages, " << kCheckpoints[i] << " checkpoints";
    }
  }
}

TEST(Uniform, RevolveFollowsItsRecursion) {
  constexpr std::size_t kStages = 40;
  constexpr std::size_t kCheckpoints = 9;
  std::array<std::array<std::uint64_t, kCheckpoints + 1>, kStages + 1> least{};
  for (std::size_t l = 2; l <= kStages; ++l) {
    least[l][1] = l * (l - 1) / 2;
    for (std::size_t s = 2; s <= kCheckpoints; ++s) {
      least[l][s] = UINT64_MAX;
      for (std::size_t j = 1; j < l; ++j) {
        least[l][s] = std::min(least[l][s], j + least[l - j][s - 1] + least[j][s]);
      }
    }
    for (std::size_t s = 1; s <= kCheckpoints; ++s) EXPECT_EQ(revolve_forwards(l, s), least[l][s]);
  }
}

TEST(Uniform, SegmentsRunEachStageAtMostTwice) {
  for (std::size_t stages = 1; stages <= 30; ++stages) {
    const Chain chain = chain_of(stages);
    for (std::size_t segments = 1; segments <= stages; ++segments) {
      const auto run = simulate(chain, equal_segments(chain, segments));
      ASSERT_TRUE(run.has_value()) << run.error().message;
      const std::size_t last = stages - (segments - 1) * stages / segments;
      EXPECT_EQ(run->cost, static_cast<double>(stages - last));
    }
  }
}

TEST(Uniform, TheSquareRootKeepsAboutTwiceItsNumberOfOutputs) {
  const Chain chain = chain_of(100);
  const auto run = simulate(chain, sqrt_schedule(chain));
  ASSERT_TRUE(run.has_value());
  EXPECT_LE(run->peak_bytes, 2 * 10 + 2U);
}

TEST(Uniform, TheBestOfTheClassicsKeepsToTheBudget) {
  const Chain chain = chain_of(36);
  const auto segments = best_equal_segments(chain, 14);
  ASSERT_TRUE(segments.has_value());
  EXPECT_LE(segments->peak_bytes, 14U);
  const auto binomial = best_revolve(chain, 8);
  ASSERT_TRUE(binomial.has_value());
  EXPECT_LE(binomial->peak_bytes, 8U);
  EXPECT_FALSE(best_equal_segments(chain, 3).has_value());
}

}  // namespace
}  // namespace headroom::solve
