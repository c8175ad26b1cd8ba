// Which steps a page has a plan of.
#include "cli/plan/plan_grid.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;

// As PlanGrid looks at it: the step, and how much work its plan was.
train::Plan plan_of(const train::StepConfig& config,
                    std::size_t events = 1000,
                    std::uint64_t reserved = 8_GiB) {
  return {.config = train::resolved(config),
          .peak_reserved = reserved,
          .steps = 4,
          .timeline = std::vector<train::CategoryBytes>(events)};
}

std::vector<std::string> words_of(const PlanGrid& grid, const std::string& name) {
  std::vector<std::string> out;
  for (const PlanAxis& axis : grid.axes()) {
    if (axis.name != name) continue;
    for (const std::int64_t value : axis.values) out.push_back(grid.word(axis, value));
  }
  return out;
}

TEST(PlanGrid, HasHalvesOfTheContextForModelsThatReadSequences) {
  const PlanGrid grid(plan_of({.model = {.name = "gpt2"}}));
  EXPECT_EQ(grid.size(), 1080U);
  EXPECT_THAT(words_of(grid, "seq"), ElementsAre("128", "256", "512", "1024"));
  EXPECT_THAT(words_of(grid, "depth"), ElementsAre("6", "12", "24"));
  EXPECT_THAT(words_of(grid, "batch"), ElementsAre("2", "4", "8", "16", "32"));
  EXPECT_THAT(words_of(grid, "optimizer"), ElementsAre("sgd", "momentum", "adamw"));
  const PlanGrid odd(plan_of({.model = {.name = "gpt2", .seq = 100}}));
  EXPECT_THAT(words_of(odd, "seq"), ElementsAre("100", "128", "256", "512", "1024"));
}

TEST(PlanGrid, HasNoAxisForAModelThatLacksIt) {
  const PlanGrid grid(plan_of({.model = {.name = "resnet50"}}));
  std::vector<std::string> names;
  for (const PlanAxis& axis : grid.axes()) names.push_back(axis.name);
  EXPECT_THAT(names, ElementsAre("batch", "precision", "optimizer", "checkpoint"));
}

TEST(PlanGrid, KeepsThePrecisionAndTheBatchThatWereAskedFor) {
  const PlanGrid grid(plan_of({.model = {.name = "mlp"},
                               .batch = 6,
                               .accumulate = 3,
                               .precision = train::Precision::kF64,
                               .optimizer = "adam"}));
  EXPECT_THAT(words_of(grid, "precision"), ElementsAre("f32", "f64", "bf16"));
  EXPECT_THAT(words_of(grid, "batch"), ElementsAre("3", "6", "12", "24", "48"));
  EXPECT_THAT(words_of(grid, "optimizer"), ElementsAre("sgd", "momentum", "adam"));
}

// Every combination once, the one that was asked for among them.
TEST(PlanGrid, CountsThroughItsSteps) {
  const train::Plan plan = plan_of({.model = {.name = "gpt2-tiny", .depth = 3}, .batch = 2});
  const PlanGrid grid(plan);
  std::set<std::string> seen;
  bool has_asked = false;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    const train::StepConfig config = grid.config_at(i);
    seen.insert(std::to_string(*config.model.depth) + "/" + std::to_string(*config.model.seq) +
                "/" + std::to_string(config.batch) + "/" +
                std::string(to_string(config.precision)) + "/" + config.optimizer + "/" +
                std::string(to_string(config.checkpoint)));
    has_asked |= config.model.depth == 3 && config.model.seq == 64 && config.batch == 2 &&
                 config.precision == plan.config.precision &&
                 config.optimizer == plan.config.optimizer &&
                 config.checkpoint == plan.config.checkpoint;
  }
  EXPECT_EQ(seen.size(), grid.size());
  EXPECT_TRUE(has_asked);
}

TEST(PlanGrid, LeavesOutWhatTakesLongestToPlan) {
  const train::StepConfig config{.model = {.name = "gpt2"}, .batch = 128};
  const PlanGrid large(plan_of(config, 1075, 131_GiB));
  EXPECT_LE(large.work(), PlanGrid::kMostWork);
  EXPECT_THAT(words_of(large, "batch"), ElementsAre("32", "64", "128", "256"));
  EXPECT_THAT(words_of(large, "checkpoint"), ElementsAre("none", "sqrt", "all"));
  // Deep: numbers go first, then words, and what was asked for stays.
  const PlanGrid deep(plan_of(config, 10'000));
  EXPECT_LE(deep.work(), PlanGrid::kMostWork);
  EXPECT_GT(deep.work(), PlanGrid::kMostWork / 4);
  EXPECT_THAT(words_of(deep, "optimizer"), ElementsAre("sgd", "momentum", "adamw"));
  const PlanGrid deepest(plan_of(config, 10'000'000));
  EXPECT_EQ(deepest.size(), 1U);
  EXPECT_EQ(deepest.config_at(0).batch, 128);
  EXPECT_EQ(deepest.config_at(0).optimizer, "adamw");
}

}  // namespace
}  // namespace headroom::cli
