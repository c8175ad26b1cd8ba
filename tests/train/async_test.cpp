// Training on the asynchronous device of the tests: bit for bit what the processor computes, and
// byte for byte what was planned with its workspaces.
//
// HEADROOM_TEST_SEED repeats the pauses of a run.
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/tensor/stream.h"
#include "headroom/train/plan.h"

#include "tests/support/async_device.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::train {
namespace {

using headroom::testing::AsyncDevice;
using headroom::testing::AsyncOptions;
using headroom::testing::AsyncPace;
using headroom::testing::seed_text;
using headroom::testing::test_seed;

constexpr bool kIsQuick = !headroom::testing::kIsSanitized;

constexpr std::array kModes{CheckpointMode::kNone, CheckpointMode::kSqrt, CheckpointMode::kAll};

struct Trained {
  std::vector<double> losses{};
  std::vector<std::vector<double>> parameters{};
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
};

Trained train_on(device::Device& device,
                 const StepConfig& config,
                 int steps,
                 const std::string& settings = "") {
  const auto allocator = memory::make_allocator(device, parse_settings(settings));
  Trained out;
  {
    StepRunner runner(config, *allocator);
    for (int i = 0; i < steps; ++i) out.losses.push_back(runner.step().loss());
    const auto peaks = allocator->statistics();
    out.peak_allocated = static_cast<std::uint64_t>(peaks.allocated_bytes.all.peak);
    out.peak_reserved = static_cast<std::uint64_t>(peaks.reserved_bytes.all.peak);
    for (const Tensor& p : runner.model().parameters()) out.parameters.push_back(p.to_doubles());
  }
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, 0);
  return out;
}

Trained train_on_processor(const StepConfig& config, int steps) {
  const auto device = device::CpuDevice::create({.index = 9, .capacity_bytes = 1_GiB});
  return train_on(*device, config, steps);
}

std::vector<StepConfig> small_runs() {
  const ModelConfig mlp{.name = "mlp", .depth = 3, .width = 16};
  const ModelConfig deepnet{.name = "deepnet", .depth = 5, .width = 16};
  const ModelConfig gpt{.name = "gpt2-tiny", .depth = 2, .width = 32, .seq = 8};
  return {
      {.model = mlp, .batch = 8, .optimizer = "momentum"},
      {.model = mlp, .batch = 8, .accumulate = 3, .prefetch = 2},
      {.model = deepnet, .batch = 5, .checkpoint = CheckpointMode::kAll, .optimizer = "adam"},
      {.model = gpt, .batch = 3, .optimizer = "adamw"},
      {.model = gpt, .batch = 3, .checkpoint = CheckpointMode::kSqrt, .workers = 2, .prefetch = 1},
      {.model = gpt, .batch = 2, .precision = Precision::kF16, .optimizer = "adamw"},
      {.model = gpt,
       .batch = 2,
       .precision = Precision::kBF16,
       .checkpoint = CheckpointMode::kAll,
       .optimizer = "sgd"}};
}

std::string name_of(const StepConfig& c) {
  return c.model.name + ", batch " + std::to_string(c.batch) + " in " +
         std::to_string(c.accumulate) + ", " + c.optimizer + ", " +
         std::string(to_string(c.precision)) + ", checkpoint " +
         std::string(to_string(c.checkpoint)) + ", prefetch " + std::to_string(c.prefetch);
}

void expect_same_bits(const Trained& got, const Trained& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_EQ(got.parameters, wanted.parameters);
}

void expect_bits_of_the_processor(const StepConfig& config, int steps) {
  SCOPED_TRACE(name_of(config));
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  const Trained wanted = train_on_processor(config, steps);
  for (const AsyncPace pace : {AsyncPace::kLate, AsyncPace::kRandom}) {
    SCOPED_TRACE(pace == AsyncPace::kLate ? "late" : "random");
    AsyncDevice device({.pace = pace, .seed = seed});
    expect_same_bits(train_on(device, config, steps), wanted);
    expect_same_bits(train_on(device, config, steps, "backend:native"), wanted);
  }
}

TEST(AsyncTraining, GivesTheBitsOfTheProcessor) {
  for (const StepConfig& config : small_runs()) expect_bits_of_the_processor(config, 4);
}

// Its step takes a second.
TEST(AsyncTraining, GivesTheBitsOfTheProcessorForAResNet) {
  if (!kIsQuick) GTEST_SKIP() << "takes minutes under a sanitizer";
  const StepConfig config{.model = {.name = "resnet18"}, .batch = 2};
  AsyncDevice device;
  expect_same_bits(train_on(device, config, 1), train_on_processor(config, 1));
}

// Each on a stream and a thread of its own.
TEST(AsyncTraining, OfTwoThreadsAtOnceGivesTheBitsOfOne) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  const StepConfig config{.model = {.name = "mlp", .depth = 3, .width = 16}, .batch = 8};
  const Trained wanted = train_on_processor(config, 4);
  for (const AsyncPace pace : {AsyncPace::kLate, AsyncPace::kRandom}) {
    AsyncDevice device({.pace = pace, .seed = seed});
    // Models are drawn one after the other: the generator is the device's.
    const auto allocator = memory::make_allocator(device);
    std::array<std::unique_ptr<StepRunner>, 2> runners;
    std::array<Stream, 2> streams{Stream(device), Stream(device)};
    for (std::size_t i = 0; i < 2; ++i) {
      const StreamScope scope(streams[i]);
      runners[i] = std::make_unique<StepRunner>(config, *allocator);
    }
    std::array<std::vector<double>, 2> losses;
    {
      std::array<std::jthread, 2> threads;
      for (std::size_t i = 0; i < 2; ++i) {
        threads[i] = std::jthread([&, i] {
          const StreamScope scope(streams[i]);
          for (int step = 0; step < 4; ++step) losses[i].push_back(runners[i]->step().loss());
        });
      }
    }
    for (const std::vector<double>& own : losses) EXPECT_EQ(own, wanted.losses);
    for (std::size_t i = 0; i < 2; ++i) {
      const StreamScope scope(streams[i]);
      runners[i].reset();
    }
  }
}

// --- Plans --------------------------------------------------------------------------------------

// 13 steps: an allocator may still grow in the first ones (tests/train/plan_holds_test.cpp).
// Whether a plan for the processor says another peak, as its workspaces are others.
bool expect_run_as_planned(const StepConfig& config, const std::string& settings) {
  SCOPED_TRACE(name_of(config) + ", " + settings);
  AsyncDevice device;
  const Plan planned =
      plan(config, {.settings = settings, .device = &device, .has_formulas = false});
  const Trained ran = train_on(device, config, 13, settings);
  EXPECT_EQ(ran.peak_allocated, planned.peak_allocated);
  EXPECT_EQ(ran.peak_reserved, planned.peak_reserved);
  const Plan of_processor = plan(config, {.settings = settings, .has_formulas = false});
  return of_processor.peak_allocated != planned.peak_allocated;
}

TEST(AsyncTraining, TakesTheBytesThatWerePlannedForItsBackend) {
  int runs = 0;
  int differing = 0;
  for (const char* settings : {"backend:paged", "backend:native"}) {
    for (const CheckpointMode mode : kModes) {
      for (const std::int64_t batch : {1, 7, 16}) {
        for (const ModelConfig& model :
             {ModelConfig{.name = "mlp"},
              ModelConfig{.name = "deepnet", .depth = 6, .width = 64},
              ModelConfig{.name = "gpt2-tiny", .depth = 2, .width = 32, .seq = 16}}) {
          ++runs;
          differing += static_cast<int>(expect_run_as_planned(
              {.model = model, .batch = batch, .checkpoint = mode, .optimizer = "adam"}, settings));
        }
        if (!kIsQuick) break;
      }
    }
  }
  EXPECT_GT(differing, runs / 2);
}

}  // namespace
}  // namespace headroom::train
