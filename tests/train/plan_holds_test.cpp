// A plan is a promise (#21): what it says fits never runs out of memory, however many steps follow,
// and what is measured is never above it.
//
// HEADROOM_PLAN_CASES says how many random configurations are tried; HEADROOM_TEST_SEED repeats
// them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/env.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/plan.h"
#include "headroom/train/remedies.h"

#include "tests/support/sanitized.h"
#include "tests/support/seed.h"
#include "tests/support/test_device.h"

namespace headroom::train {
namespace {

using headroom::testing::seed_text;
using headroom::testing::test_seed;
using ::testing::HasSubstr;

constexpr const char* kPaged = "backend:paged";
constexpr const char* kCaching = "backend:native";
constexpr const char* kExpandable = "backend:native,expandable_segments:True";

// Sanitizers make a step some twenty times slower.
constexpr bool kIsQuick = !headroom::testing::kIsSanitized;
constexpr int kManySteps = kIsQuick ? 200 : 20;

int plan_cases(int usual) {
  const auto asked = env_int("HEADROOM_PLAN_CASES", 1, 100'000);
  return asked && *asked ? static_cast<int>(**asked) : kIsQuick ? usual : 1;
}

struct RandomCase {
  StepConfig config{};
  std::string settings{};
};

RandomCase random_case(std::mt19937& random) {
  static constexpr const char* kNames[] = {
      "mlp", "deepnet", "simplenn", "trackingnet", "resnet18", "resnet50", "gpt2", "gpt2-tiny"};
  static constexpr const char* kOptimizers[] = {"sgd", "momentum", "adam", "adamw"};
  const auto pick = [&random](std::uint32_t below) {
    return static_cast<std::int64_t>(random() % below);
  };
  RandomCase out;
  out.config.model.name = kNames[pick(8)];
  out.config.batch = 1 + pick(pick(2) == 0 ? 8 : 120);
  out.config.optimizer = kOptimizers[pick(4)];
  out.config.checkpoint = static_cast<CheckpointMode>(pick(3));
  out.config.precision = static_cast<Precision>(pick(4));
  if (pick(3) == 0) out.config.accumulate = 1 + pick(static_cast<std::uint32_t>(out.config.batch));
  if (pick(3) == 0) out.config.prefetch = static_cast<int>(1 + pick(2));
  out.settings = pick(3) == 0 ? kCaching : kPaged;
  if (pick(10) == 0) out.settings = kExpandable;  // its tables for 16 TiB take their time
  return out;
}

std::string name_of(const RandomCase& one) {
  const StepConfig& c = one.config;
  return c.model.name + " --batch " + std::to_string(c.batch) + " --accumulate " +
         std::to_string(c.accumulate) + " --prefetch " + std::to_string(c.prefetch) +
         " --optimizer " + c.optimizer + " --dtype " + std::string(to_string(c.precision)) +
         " --checkpoint " + std::string(to_string(c.checkpoint)) + ", " + one.settings;
}

// How a run ended.
struct Trained {
  std::uint64_t peak_reserved = 0;
  int steps = 0;
  std::string shortage{};
};

Trained train_on(device::Device& device,
                 const StepConfig& config,
                 const std::string& settings,
                 std::optional<std::uint64_t> limit,
                 int steps) {
  const auto allocator = memory::make_allocator(device, parse_settings(settings));
  allocator->set_limit(limit);
  const Meter meter(*allocator);
  Trained out;
  try {
    StepRunner runner(config, *allocator);
    for (; out.steps < steps; ++out.steps) (void)runner.step();
  } catch (const memory::OutOfMemory& error) {
    out.shortage = error.what();
  }
  out.peak_reserved = static_cast<std::uint64_t>(allocator->statistics().reserved_bytes.all.peak);
  return out;
}

Trained train_on_meta(const StepConfig& config,
                      const std::string& settings,
                      std::optional<std::uint64_t> limit,
                      int steps) {
  const auto device = make_plan_device();
  return train_on(*device, config, settings, limit, steps);
}

TEST(PlanHolds, AtExactlyThePlannedLimitForManySteps) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < plan_cases(8); ++i) {
    const RandomCase one = random_case(random);
    SCOPED_TRACE(name_of(one));
    const PlanOptions options{.settings = one.settings, .has_formulas = false};
    const Plan planned = plan(one.config, options);
    EXPECT_TRUE(planned.is_settled);
    const Trained free = train_on_meta(one.config, one.settings, std::nullopt, kManySteps);
    EXPECT_LE(free.peak_reserved, planned.peak_reserved);
    // PyTorch's expandable segments may need a little more under a limit than they take without.
    if (one.settings != kExpandable) {
      EXPECT_EQ(free.peak_reserved, planned.peak_reserved);
    }
    const Trained tight =
        train_on_meta(one.config, one.settings, planned.peak_reserved, kManySteps);
    EXPECT_EQ(tight.shortage, "");
    EXPECT_LE(tight.peak_reserved, planned.peak_reserved);
  }
}

// #22: 256 steps of a thousand layers took minutes.
TEST(PlanHolds, ForAsManyStepsAsItSaysWhereItStopsBeforeItSettles) {
  const StepConfig config{.model = {.name = "resnet50"}};
  const Plan settled = plan(config, {.has_formulas = false});
  ASSERT_TRUE(settled.is_settled);
  ASSERT_GT(settled.steps, kFewestPlannedSteps);
  int told = 0;
  const Plan stopped =
      plan(config, {.has_formulas = false, .most_changes = 1, .progress = [&](int steps) {
                      told = std::max(told, steps);
                    }});
  EXPECT_FALSE(stopped.is_settled);
  EXPECT_EQ(stopped.steps, kFewestPlannedSteps);
  EXPECT_EQ(told, stopped.steps);
  const Trained tight = train_on_meta(config, "", stopped.peak_reserved, stopped.steps);
  EXPECT_EQ(tight.shortage, "");
}

TEST(PlanHolds, ForTheBatchThatFits) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < plan_cases(4); ++i) {
    RandomCase one = random_case(random);
    one.config.accumulate = 1;
    const PlanOptions free{.settings = one.settings, .has_formulas = false};
    PlanOptions options = free;
    // Somewhat more than this batch needs, so that the answer is another.
    options.limit_bytes = plan(one.config, free).peak_reserved + random() % 1_GiB;
    const Fit found = fit(one.config, options);
    one.config.batch = found.plan.config.batch;
    SCOPED_TRACE(name_of(one) + " under " + std::to_string(*options.limit_bytes));
    ASSERT_TRUE(found.plan.fits);
    EXPECT_LE(plan(one.config, free).peak_reserved, *options.limit_bytes);
    const Trained ran =
        train_on_meta(one.config, one.settings, options.limit_bytes, kManySteps / 2);
    EXPECT_EQ(ran.shortage, "");
    ++one.config.batch;
    EXPECT_GT(plan(one.config, free).peak_reserved, *options.limit_bytes);
  }
}

TEST(PlanHolds, EveryRemedyThatIsNamedLetsTheRunComplete) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  int named = 0;
  for (int i = 0; i < plan_cases(5); ++i) {
    const RandomCase one = random_case(random);
    PlanOptions options{.settings = one.settings, .has_formulas = false};
    const Plan planned = plan(one.config, options);
    options.limit_bytes = planned.peak_reserved * (30 + random() % 65) / 100;
    const Trained failed = train_on_meta(one.config, one.settings, options.limit_bytes, 3);
    if (failed.shortage.empty()) continue;
    SCOPED_TRACE(name_of(one) + " under " + std::to_string(*options.limit_bytes));
    const std::vector<PlannedRemedy> remedies = planned_remedies(one.config, options);
    EXPECT_FALSE(remedies.empty());
    for (const PlannedRemedy& remedy : remedies) {
      SCOPED_TRACE(remedy.option);
      const Trained ran =
          train_on_meta(remedy.config, one.settings, remedy.limit_bytes, kManySteps / 4);
      EXPECT_EQ(ran.shortage, "");
      ++named;
    }
  }
  EXPECT_GT(named, 0);
}

TEST(PlanHolds, TheLimitOfARemedyReadsAsItIs) {
  const StepConfig config{.model = {.name = "deepnet"}};
  const std::vector<PlannedRemedy> remedies = planned_remedies(config, {.limit_bytes = 60_MiB});
  ASSERT_FALSE(remedies.empty());
  const PlannedRemedy& last = remedies.back();
  ASSERT_EQ(last.kind, PlannedRemedy::Kind::kLimit);
  EXPECT_EQ(*last.limit_bytes % 1_MiB, 0U);
  EXPECT_EQ(last.option, "--limit " + std::to_string(*last.limit_bytes / 1_MiB) + "MiB");
}

// From 12 steps on what is measured is what was planned; before that it is at most that.
void expect_measured_as_planned(const StepConfig& config, const std::string& settings, int steps) {
  SCOPED_TRACE(name_of({config, settings}));
  const auto device = headroom::testing::make_test_device(8, 2_GiB);
  const Plan planned =
      plan(config, {.settings = settings, .device = device.get(), .has_formulas = false});
  const auto allocator = memory::make_allocator(*device, parse_settings(settings));
  const Meter meter(*allocator);
  StepRunner runner(config, *allocator);
  for (int step = 1; step <= steps; ++step) {
    (void)runner.step();
    const auto peak = static_cast<std::uint64_t>(allocator->statistics().reserved_bytes.all.peak);
    ASSERT_LE(peak, planned.peak_reserved) << "step " << step;
    if (step >= 12) {
      ASSERT_EQ(peak, planned.peak_reserved) << "step " << step;
    }
  }
}

TEST(PlanHolds, MeasuredOnTheDevice) {
  const std::vector<std::int64_t> batches =
      kIsQuick ? std::vector<std::int64_t>{1, 7, 16} : std::vector<std::int64_t>{7};
  for (const char* settings : {kPaged, kCaching}) {
    for (const CheckpointMode mode :
         {CheckpointMode::kNone, CheckpointMode::kSqrt, CheckpointMode::kAll}) {
      for (const std::int64_t batch : batches) {
        for (const ModelConfig& model :
             {ModelConfig{.name = "mlp"},
              ModelConfig{.name = "deepnet", .width = 128},
              ModelConfig{.name = "gpt2-tiny", .depth = 4, .width = 64, .seq = 32}}) {
          expect_measured_as_planned(
              {.model = model, .batch = batch, .checkpoint = mode, .optimizer = "adam"},
              settings,
              20);
        }
      }
    }
  }
}

// The one that was seen to grow until its fifth step.
TEST(PlanHolds, MeasuredOnTheDeviceWithAResNet) {
  if (!kIsQuick) GTEST_SKIP() << "takes minutes under a sanitizer";
  expect_measured_as_planned({.model = {.name = "resnet18"},
                              .batch = 7,
                              .checkpoint = CheckpointMode::kAll,
                              .optimizer = "adam"},
                             kPaged,
                             5);
}

TEST(PlanHolds, AcrossTheEndsOfEpochs) {
  // Batches so large that an epoch of the synthetic examples has 16 of them.
  const StepConfig config{
      .model = {.name = "mlp", .depth = 2, .width = 16}, .batch = 1024, .prefetch = 2};
  for (const char* settings : {kPaged, kCaching}) {
    const Plan planned = plan(config, {.settings = settings, .has_formulas = false});
    const Trained ran = train_on_meta(config, settings, planned.peak_reserved, 70);
    EXPECT_EQ(ran.shortage, "") << settings;
    EXPECT_EQ(ran.peak_reserved, planned.peak_reserved) << settings;
  }
}

// It took a device without mappings left for one without memory.
TEST(PlanHolds, AtTerabytes) {
  for (const char* settings : {kPaged, kCaching, kExpandable}) {
    std::uint64_t before = 0;
    for (const std::int64_t batch : {54, 61, kIsQuick ? 8192 : 128}) {
      const StepConfig config{.model = {.name = "gpt2"}, .batch = batch};
      const Plan planned = plan(config, {.settings = settings, .has_formulas = false});
      EXPECT_GT(planned.peak_reserved, before) << settings << ", batch " << batch;
      EXPECT_LE(planned.peak_reserved, planned.peak_allocated + planned.peak_allocated / 4)
          << settings << ", batch " << batch;
      before = planned.peak_reserved;
    }
    EXPECT_GT(before, kIsQuick ? 7_TiB : 100_GiB);
  }
}

TEST(PlanHolds, WithinTheDeviceItIsFor) {
  const auto device = device::CpuDevice::create({.index = 8, .capacity_bytes = 64_MiB});
  const StepConfig config{.model = {.name = "deepnet"}, .batch = 64};
  EXPECT_FALSE(plan(config, {.device = device.get(), .has_formulas = false}).fits);
  EXPECT_TRUE(plan(config, {.has_formulas = false}).fits);
}

}  // namespace
}  // namespace headroom::train
