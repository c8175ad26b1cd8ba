// The step: that meta is the device without numbers, that plans are what is measured, that cutting
// a batch changes nothing, and that running out of memory is survived.
#include "headroom/train/step.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/autograd.h"
#include "headroom/base/error.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/plan.h"
#include "headroom/train/retry.h"

#include "tests/train/world.h"

namespace headroom::train {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::test_profile;
using testing::TrainEvents;
using testing::TrainWorld;
using Kind = TrainWorld::Kind;

constexpr int kSteps = 2;

struct Ran {
  std::vector<testing::TrainEvent> events;
  std::uint64_t peak_allocated;
  std::uint64_t peak_reserved;
  std::vector<double> losses;
};

Ran run_steps(const StepConfig& config, Kind kind, int steps = kSteps) {
  TrainWorld world(kind);
  Ran out{};
  {
    const TrainEvents events(world.allocator());
    StepRunner runner(config, world.allocator());
    for (int i = 0; i < steps; ++i) out.losses.push_back(runner.step().loss());
    out.events = events.events();
  }
  out.peak_allocated = world.peak_allocated();
  out.peak_reserved = world.peak_reserved();
  return out;
}

std::string name_of(const StepConfig& config) {
  return config.model.name + ", batch " + std::to_string(config.batch) + ", " + config.optimizer +
         ", " + std::string(to_string(config.precision)) + ", checkpoint " +
         std::string(to_string(config.checkpoint));
}

const ModelConfig kSmallModels[] = {{.name = "mlp", .depth = 3, .width = 16},
                                    {.name = "deepnet", .depth = 5, .width = 16},
                                    {.name = "simplenn"},
                                    {.name = "gpt2-tiny", .depth = 2, .width = 32, .seq = 8}};

void expect_planned_and_measured_are_one(const StepConfig& config) {
  SCOPED_TRACE(name_of(config));
  const Ran real = run_steps(config, Kind::kReal);
  const Ran meta = run_steps(config, Kind::kMeta);
  ASSERT_TRUE(real.events == meta.events);
  const Plan planned = plan(config, {.profile = test_profile(), .has_formulas = false});
  ASSERT_EQ(planned.peak_allocated, real.peak_allocated);
  ASSERT_GE(planned.peak_reserved, real.peak_reserved);
  ASSERT_EQ(total(planned.categories), planned.peak_allocated);
  ASSERT_TRUE(std::isnan(meta.losses[0]));
  ASSERT_TRUE(std::isfinite(real.losses[1]));
}

constexpr std::int64_t kBatches[] = {1, 3, 8};
constexpr const char* kOptimizers[] = {"sgd", "momentum", "adam", "adamw"};
constexpr Precision kPrecisions[] = {
    Precision::kF32, Precision::kF64, Precision::kBF16, Precision::kF16};
constexpr CheckpointMode kModes[] = {
    CheckpointMode::kNone, CheckpointMode::kSqrt, CheckpointMode::kAll};

// How often the host asked the device for bytes, or waited for all of a stream.
std::uint64_t reads_back(const device::Device& device) {
  return device.calls(device::Call::kSynchronizeStream) + device.calls(device::Call::kCopyToHost);
}

// How often it waited for a point of a stream.
std::uint64_t event_waits(const device::Device& device) {
  return device.calls(device::Call::kSynchronizeEvent);
}

// Without prefetch a loader has one host buffer, which it may have to wait for before it writes the
// next batch: once per step on a device that is behind, never on the processor.
TEST(Step, WaitsForNothingButItsHostBufferAndReadsNothingBack) {
  constexpr std::uint64_t kWatched = 4;

  for (const ModelConfig& model : kSmallModels) {
    for (const Precision precision : {Precision::kF32, Precision::kF16}) {
      for (const CheckpointMode mode : {CheckpointMode::kNone, CheckpointMode::kAll}) {
        const StepConfig config{.model = model,
                                .batch = 4,
                                .accumulate = 2,
                                .precision = precision,
                                .checkpoint = mode,
                                .optimizer = "adamw"};
        SCOPED_TRACE(name_of(config));
        TrainWorld world(Kind::kReal);
        StepRunner runner(config, world.allocator());
        const device::Device& device = world.allocator().device();
        for (int i = 0; i < 3; ++i) (void)runner.step();
        const std::uint64_t read = reads_back(device);
        const std::uint64_t waited = event_waits(device);
        const std::uint64_t copied = device.calls(device::Call::kCopyToDevice);
        for (std::uint64_t i = 0; i < kWatched; ++i) (void)runner.step();
        EXPECT_EQ(reads_back(device), read);
        EXPECT_LE(event_waits(device) - waited, testing::runs_async() ? kWatched : 0);
        // The input and the target; the optimiser's list is there.
        EXPECT_EQ(device.calls(device::Call::kCopyToDevice) - copied, kWatched * 2);
        const StepResult last = runner.step();
        EXPECT_TRUE(std::isfinite(last.loss()));
        EXPECT_FALSE(last.is_skipped());
        EXPECT_GT(reads_back(device), read);
      }
    }
  }
}

// A table without a test each: a process would take longer than the step.
TEST(Step, OnMetaMakesTheEventsOfTheDeviceAndAPlanIsWhatIsMeasured) {
  for (const ModelConfig& model : kSmallModels) {
    for (const std::int64_t batch : kBatches) {
      for (const char* optimizer : kOptimizers) {
        for (const Precision precision : kPrecisions) {
          for (const CheckpointMode mode : kModes) {
            expect_planned_and_measured_are_one({.model = model,
                                                 .batch = batch,
                                                 .precision = precision,
                                                 .checkpoint = mode,
                                                 .optimizer = optimizer});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Its sizes are fixed, and six million weights take their time: every choice comes, not every
// combination.
TEST(Step, OnMetaMakesTheEventsOfTheDeviceForTheTrackingNetToo) {
  for (std::size_t i = 0; i < 12 && !HasFatalFailure(); ++i) {
    expect_planned_and_measured_are_one({.model = {.name = "trackingnet"},
                                         .batch = kBatches[i / 4],
                                         .precision = kPrecisions[(i + i / 4) % 4],
                                         .checkpoint = kModes[i % 3],
                                         .optimizer = kOptimizers[i % 4]});
  }
}

// Then threads keep magazines of small blocks, and those may fill one more page.
TEST(Step, UnwatchedItTakesTheSame) {
  for (const ModelConfig& model : kSmallModels) {
    for (const char* optimizer : kOptimizers) {
      const StepConfig config{.model = model, .batch = 8, .optimizer = optimizer};
      SCOPED_TRACE(name_of(config));
      const Plan planned = plan(config, {.profile = test_profile(), .has_formulas = false});
      TrainWorld world(Kind::kReal);
      world.allocator().set_limit(planned.peak_reserved);
      StepRunner runner(config, world.allocator());
      for (int i = 0; i < kSteps; ++i) (void)runner.step();
      EXPECT_EQ(world.peak_allocated(), planned.peak_allocated);
      EXPECT_EQ(world.peak_reserved(), planned.peak_reserved);
    }
  }
}

TEST(Step, ALimitThatAPlanCallsEnoughIsEnough) {
  const StepConfig config{.model = {.name = "gpt2-tiny", .depth = 6, .width = 128, .seq = 64},
                          .batch = 12};
  PlanOptions options{.profile = test_profile(), .has_formulas = false};
  const std::uint64_t need = plan(config, options).peak_reserved;
  std::uint64_t least = need;
  for (std::uint64_t limit = need - 1_MiB; limit > need / 2; limit -= 1_MiB) {
    options.limit_bytes = limit;
    if (!plan(config, options).fits) break;
    least = limit;
  }
  ASSERT_LT(least, need);  // pages that would be new move instead
  TrainWorld world(Kind::kReal);
  const TrainEvents events(world.allocator());
  world.allocator().set_limit(least);
  StepRunner runner(config, world.allocator());
  for (int i = 0; i < 4; ++i) (void)runner.step();
  EXPECT_LE(world.peak_reserved(), least);
}

TEST(Step, LearnsWhatTheSyntheticExamplesHaveToTeach) {
  for (const StepConfig& config :
       {StepConfig{.model = {.name = "mlp", .depth = 2, .width = 32}, .batch = 32, .lr = 0.1},
        StepConfig{.model = {.name = "deepnet", .depth = 3, .width = 16}, .batch = 64, .lr = 0.1},
        StepConfig{.model = {.name = "simplenn"}, .batch = 64, .lr = 0.01},
        StepConfig{.model = {.name = "gpt2-tiny", .seq = 16}, .batch = 8, .lr = 3e-3}}) {
    const Ran ran = run_steps(config, Kind::kReal, 40);
    EXPECT_LT(ran.losses.back(), 0.7 * ran.losses.front()) << config.model.name;
  }
}

StepConfig small(std::int64_t batch, std::int64_t accumulate) {
  return {.model = {.name = "gpt2-tiny", .seq = 16},
          .batch = batch,
          .accumulate = accumulate,
          .precision = Precision::kF64,
          .optimizer = "sgd",
          .lr = 0.1};
}

TEST(Accumulation, EqualsTheLargeBatchWithTheActivationsOfTheSmall) {
  const Ran whole = run_steps(small(12, 1), Kind::kReal, 3);
  const Ran quarter = run_steps(small(3, 1), Kind::kReal, 3);
  for (const std::int64_t pieces : {2, 4, 5, 12}) {
    const Ran cut = run_steps(small(12, pieces), Kind::kReal, 3);
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(cut.losses[i], whole.losses[i], 1e-9) << pieces;
    }
    EXPECT_LT(cut.peak_allocated, whole.peak_allocated);
    // The gradients of the first pieces are there while the next is computed.
    if (pieces == 4) {
      EXPECT_LT(cut.peak_allocated, quarter.peak_allocated + 2_MiB);
    }
  }
}

TEST(Retry, KeepsTheBatchAndTheLossUnderALimitThatIsTooSmall) {
  const Ran free = run_steps(small(16, 1), Kind::kReal, 2);
  StepConfig single = small(16, 16);
  const Plan least = plan(single, {.profile = test_profile(), .has_formulas = false});
  const std::uint64_t limit = least.peak_reserved;
  ASSERT_LT(limit, free.peak_reserved);

  TrainWorld world(Kind::kReal);
  world.allocator().set_limit(limit);
  StepRunner runner(small(16, 1), world.allocator());
  std::vector<std::string> told;
  for (const double loss : free.losses) {
    EXPECT_NEAR(with_retry(runner, told).loss(), loss, 1e-9);
  }
  EXPECT_LT(runner.micro_batch(), 16);
  ASSERT_GE(told.size(), 2U);
  EXPECT_THAT(told[0], HasSubstr("out of memory with micro-batches of 16"));
  EXPECT_THAT(told.back(), HasSubstr("summed to the same batch of 16"));
  EXPECT_LE(world.peak_reserved(), limit);
}

TEST(Retry, GivesUpWithTheReportWhenOneExampleDoesNotFit) {
  TrainWorld world(Kind::kMeta);
  StepRunner runner({.model = {.name = "deepnet", .depth = 4, .width = 512}, .batch = 4},
                    world.allocator());
  world.allocator().set_limit(world.allocator().statistics().reserved_bytes.all.current);
  std::vector<std::string> told;
  try {
    (void)with_retry(runner, told);
    FAIL() << "fits";
  } catch (const memory::OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("limit"));
  }
  EXPECT_EQ(runner.micro_batch(), 1);
}

TEST(Step, KeepsAllocatedFlatOverAThousandSteps) {
  TrainWorld world(Kind::kReal);
  StepRunner runner({.model = {.name = "simplenn"}, .batch = 4, .optimizer = "adam"},
                    world.allocator());
  (void)runner.step();
  const std::uint64_t after_one = world.allocated();
  (void)runner.step();
  const std::uint64_t peak = world.peak_allocated();
  for (int i = 0; i < 998; ++i) (void)runner.step();
  EXPECT_EQ(world.allocated(), after_one);
  EXPECT_EQ(world.peak_allocated(), peak);
}

struct WrongStep {
  StepConfig config;
  const char* message;
};

TEST(Step, RefusesWhatCannotBe) {
  const WrongStep cases[] = {
      {{.batch = -1}, "a batch of -1 is too small; use 1 or more"},
      {{.batch = 4, .accumulate = 5}, "cannot be split into 5 micro-batches; use 1 to 4"},
      {{.batch = 4, .accumulate = 0}, "cannot be split into 0 micro-batches"},
      {{.lr = std::numeric_limits<double>::quiet_NaN()},
       "a learning rate of nan is not possible; use a number of 0 or more"},
      {{.lr = std::numeric_limits<double>::infinity()}, "a learning rate of inf is not possible"},
      {{.lr = -0.5}, "a learning rate of -0.5 is not possible"},
      {{.optimizer = "adamm"}, "there is no optimizer 'adamm'; did you mean 'adam'?"}};
  for (const WrongStep& wrong : cases) {
    TrainWorld world(Kind::kMeta);
    try {
      const StepRunner runner(wrong.config, world.allocator());
      ADD_FAILURE() << "accepted: " << wrong.message;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong.message));
    }
  }
  EXPECT_THROW((void)parse_precision("f8"), InvalidArgument);
  EXPECT_THROW((void)parse_checkpoint("some"), InvalidArgument);
}

}  // namespace
}  // namespace headroom::train
