// Plans: what they say of the peak, and what they cost.
#include "headroom/train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

namespace headroom::train {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

std::uint64_t at(const CategoryBytes& bytes, memory::Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

TEST(Plan, SaysWhenAndWhatForThePeakIs) {
  const Plan p = plan({.model = {.name = "deepnet"}, .batch = 1024, .optimizer = "adam"});
  EXPECT_EQ(p.peak_phase, "backward");
  EXPECT_THAT(p.peak_layer, HasSubstr("blocks."));
  EXPECT_EQ(total(p.categories), p.peak_allocated);
  EXPECT_EQ(total(p.timeline.at(p.timeline_peak)), p.peak_allocated);
  std::uint64_t layers = 0;
  for (const LayerBytes& layer : p.layers) layers += total(layer.categories);
  EXPECT_EQ(layers, p.peak_allocated);
  EXPECT_EQ(p.layers.front().name, "blocks.0");
  EXPECT_GE(at(p.categories, memory::Category::kOptimizerState), 8U * 20 * 2 * 513 * 512);
  EXPECT_GE(at(p.categories, memory::Category::kParameter), 4U * 20 * 2 * 513 * 512);
  EXPECT_THAT(p.phases, Contains(Field(&PhaseSpan::name, "optimizer_step")));
  EXPECT_EQ(p.recompute_fraction, 0);
}

TEST(Plan, OfASmallBatchWithAdamPeaksInTheUpdateOrBackward) {
  const Plan p = plan({.model = {.name = "deepnet"}, .batch = 1, .optimizer = "adam"});
  EXPECT_TRUE(p.peak_phase == "optimizer_step" || p.peak_phase == "backward") << p.peak_phase;
}

TEST(Plan, HasTheBooksFormulasNearIt) {
  const Plan p = plan({.model = {.name = "deepnet"}, .batch = 16384, .optimizer = "adam"});
  ASSERT_EQ(p.formulas.size(), 2U);
  EXPECT_NEAR(p.formulas[0].error, 0, 0.1) << p.formulas[0].bytes;
  EXPECT_THAT(p.formulas[1].text, HasSubstr("16 P"));
}

TEST(Plan, OfCheckpointingTakesLessAndSaysWhatIsComputedTwice) {
  const StepConfig none{.model = {.name = "deepnet", .depth = 16}, .batch = 4096};
  StepConfig sqrt = none;
  sqrt.checkpoint = CheckpointMode::kSqrt;
  StepConfig all = none;
  all.checkpoint = CheckpointMode::kAll;
  const Plan plain = plan(none);
  for (const StepConfig& config : {sqrt, all}) {
    const Plan p = plan(config);
    EXPECT_LT(p.peak_allocated, plain.peak_allocated * 3 / 4);
    EXPECT_GT(p.recompute_fraction, 0.3);
    EXPECT_LE(p.recompute_fraction, 1.0);
    EXPECT_EQ(p.formulas.size(), 1U);
  }
}

// The figures are in docs/guide/planning.md; a second is the bound there.
TEST(Plan, OfTheLargeModelsIsMade) {
  for (const char* name : {"gpt2", "resnet18", "resnet50"}) {
    for (const std::int64_t batch : {1, 8, 32}) {
      for (const CheckpointMode mode :
           {CheckpointMode::kNone, CheckpointMode::kSqrt, CheckpointMode::kAll}) {
        const Plan p = plan({.model = {.name = name}, .batch = batch, .checkpoint = mode});
        EXPECT_EQ(total(p.categories), p.peak_allocated) << name;
        EXPECT_TRUE(p.fits);
      }
    }
  }
}

TEST(Plan, UnderALimitSaysWhetherItFits) {
  const StepConfig config{.model = {.name = "deepnet"}, .batch = 1024};
  const std::uint64_t need = plan(config).peak_reserved;
  EXPECT_TRUE(plan(config, {.limit_bytes = need}).fits);
  const Plan less = plan(config, {.limit_bytes = need / 2});
  EXPECT_FALSE(less.fits);
  EXPECT_THAT(less.shortage, HasSubstr("limit"));
  EXPECT_EQ(less.peak_reserved, need);
}

TEST(Fit, FindsABatchThatFitsWhileOneMoreDoesNot) {
  const PlanOptions options{.limit_bytes = 300_MiB};
  const Fit found = fit({.model = {.name = "deepnet"}}, options);
  ASSERT_TRUE(found.plan.fits);
  EXPECT_LE(found.plan.peak_reserved, 300_MiB);
  StepConfig more = found.plan.config;
  ++more.batch;
  EXPECT_GT(plan(more).peak_reserved, 300_MiB);
  EXPECT_EQ(plan(more).peak_reserved, found.next_reserved);
}

TEST(Fit, SaysWhenNotEvenOneExampleFits) {
  const Fit found = fit({.model = {.name = "gpt2"}}, {.limit_bytes = 1_GiB});
  EXPECT_FALSE(found.plan.fits);
  EXPECT_EQ(found.plan.config.batch, 1);
}

TEST(MildestCheckpoint, IsTheFirstThatFits) {
  const StepConfig config{.model = {.name = "deepnet", .depth = 36}, .batch = 8192};
  const auto need = [&config](CheckpointMode mode) {
    StepConfig own = config;
    own.checkpoint = mode;
    return plan(own).peak_reserved;
  };
  const std::uint64_t none = need(CheckpointMode::kNone);
  const std::uint64_t sqrt = need(CheckpointMode::kSqrt);
  EXPECT_EQ(mildest_checkpoint(config, {.limit_bytes = none}).mode, CheckpointMode::kNone);
  EXPECT_EQ(mildest_checkpoint(config, {.limit_bytes = sqrt}).mode, CheckpointMode::kSqrt);
  const CheckpointChoice least = mildest_checkpoint(config, {.limit_bytes = 1});
  EXPECT_FALSE(least.fits);
  EXPECT_EQ(least.peak_reserved, std::min({none, sqrt, need(CheckpointMode::kAll)}));
}

}  // namespace
}  // namespace headroom::train
