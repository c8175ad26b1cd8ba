// What is a leak and what only looks like one.
#include "headroom/analysis/growth.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/analysis/scripted_program.h"

namespace headroom::analysis {
namespace {

using ::testing::HasSubstr;

using testing::ScriptedProgram;
using testing::ScriptOptions;
using testing::Training;

std::optional<Growth> growth_of(ScriptedProgram& program) {
  const trace::Trace trace = program.finish();
  const TraceIndex index(trace, trace.devices[0]);
  return find_growth(index, find_iterations(index));
}

struct Way {
  const char* name;
  ScriptOptions options;
};

class Leaks : public ::testing::TestWithParam<Way> {};

TEST_P(Leaks, AreFoundToTheByte) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 12; ++i) (void)training.step(1, true);
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->bytes_per_iteration, 5_MiB);
  EXPECT_TRUE(growth->is_same_each_time);
  EXPECT_EQ(
      growth->source,
      GetParam().options.has_marks ? IterationSource::kAnnotations : IterationSource::kTraffic);
  ASSERT_FALSE(growth->sites.empty());
  EXPECT_EQ(growth->sites[0].site,
            GetParam().options.has_stacks ? "train.py:11 train" : "(no stack)");
  EXPECT_EQ(growth->sites[0].bytes_per_iteration, GetParam().options.has_stacks ? 4_MiB : 5_MiB);
}

TEST_P(Leaks, AreFoundBehindAWarmUp) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 8; ++i) (void)training.step();
  for (int i = 0; i < 12; ++i) (void)training.step(1, true);
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->bytes_per_iteration, 5_MiB);
}

TEST_P(Leaks, AreFoundWhenAllIsFreedAtTheEnd) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  std::vector<int> kept;
  for (int i = 0; i < 12; ++i) {
    for (const int block : training.step(1, true)) kept.push_back(block);
  }
  program.free(kept);
  const auto growth = growth_of(program);
  // Without marks the last step cannot be told from what follows it.
  if (GetParam().options.has_marks) {
    ASSERT_TRUE(growth);
    EXPECT_EQ(growth->bytes_per_iteration, 5_MiB);
  }
}

TEST_P(Leaks, OptimizerStateIsNone) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 12; ++i) (void)training.step();
  EXPECT_FALSE(growth_of(program));
}

TEST_P(Leaks, ACacheThatFillsUpIsNone) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 20; ++i) {
    (void)training.step();
    if (i < 13) (void)program.alloc(3_MiB, 40);
  }
  EXPECT_FALSE(growth_of(program));
}

TEST_P(Leaks, ACheckpointThatIsReplacedIsNone) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  int copy = program.alloc(16_MiB, 50);
  for (int i = 0; i < 24; ++i) {
    (void)training.step();
    if (i % 4 != 3) continue;
    const int fresh = program.alloc(16_MiB, 50);
    program.free(copy);
    copy = fresh;
  }
  EXPECT_FALSE(growth_of(program));
}

TEST_P(Leaks, OneInEveryFourStepsIsFound) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 40; ++i) {
    (void)training.step();
    if (i % 4 == 0) (void)program.alloc(8_MiB, 60);
  }
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_GE(growth->total_bytes, 8 * 8_MiB);
}

TEST_P(Leaks, AListOfScalarsIsFound) {
  ScriptedProgram program(GetParam().options);
  Training training(program);
  for (int i = 0; i < 12; ++i) {
    (void)training.step();
    (void)program.alloc(4, 70);
  }
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->bytes_per_iteration, 512U);
}

INSTANTIATE_TEST_SUITE_P(All,
                         Leaks,
                         ::testing::Values(Way{"marks_and_stacks", {}},
                                           Way{"no_stacks", {.has_stacks = false}},
                                           Way{"no_marks", {.has_marks = false}},
                                           Way{"neither",
                                               {.has_stacks = false, .has_marks = false}}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Growth, OfVaryingBatchesIsAMean) {
  ScriptedProgram program;
  Training training(program);
  std::mt19937 random(7);
  std::uint64_t kept = 0;
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t scale = 1 + random() % 8;
    if (i >= 1) kept += scale;
    (void)training.step(scale, true);
  }
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_FALSE(growth->is_same_each_time);
  EXPECT_NEAR(static_cast<double>(growth->bytes_per_iteration),
              static_cast<double>(kept * 5_MiB) / 29,
              1.5 * static_cast<double>(1_MiB) * 5);
}

TEST(Growth, TheLineOfTheSumIsNamed) {
  ScriptedProgram program;
  Training training(program);
  int sum = ScriptedProgram::kFailed;
  for (int i = 0; i < 12; ++i) {
    (void)training.step(1, true);
    const int next = program.alloc(4, 99);
    if (sum != ScriptedProgram::kFailed) program.free(sum);
    sum = next;
  }
  const auto growth = growth_of(program);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->bytes_per_iteration, 5_MiB);
  ASSERT_TRUE(growth->sum_site);
  EXPECT_THAT(*growth->sum_site, HasSubstr("train.py:99"));
}

TEST(Growth, ServingWithVaryingBatchesHasNone) {
  ScriptedProgram program({.has_marks = false});
  std::mt19937 random(3);
  (void)program.alloc(200_MiB, 1);
  for (int request = 0; request < 60; ++request) {
    const std::uint64_t batch = 1 + random() % 16;
    std::vector<int> cache;
    const int tokens = 8 + static_cast<int>(random() % 30);
    for (int token = 0; token < tokens; ++token) {
      const int logits = program.alloc(batch * 128_KiB, 20);
      cache.push_back(program.alloc(batch * 64_KiB, 21));
      program.free(logits);
    }
    program.free(cache);
  }
  EXPECT_FALSE(growth_of(program));
}

TEST(Growth, SessionsThatComeAndGoHaveNone) {
  ScriptedProgram program({.card_bytes = 64_GiB});
  (void)program.alloc(200_MiB, 1);
  std::vector<int> sessions;
  for (int i = 0; i < 60; ++i) {
    const int temporary = program.alloc(8_MiB, 20);
    sessions.push_back(program.alloc(16_MiB, 21));
    if (sessions.size() > 25) {
      program.free(sessions.front());
      sessions.erase(sessions.begin());
    }
    program.free(temporary);
    program.mark_step();
  }
  EXPECT_FALSE(growth_of(program));
}

TEST(Growth, TooFewStepsSayNothing) {
  ScriptedProgram program;
  Training training(program);
  for (int i = 0; i < 3; ++i) (void)training.step(1, true);
  EXPECT_FALSE(growth_of(program));
}

}  // namespace
}  // namespace headroom::analysis
