// The limit of a recording that does not say it, and what is proved under it.
#include "headroom/diagnose/limit.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/diagnose/doctor.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/program.h"
#include "headroom/report/doctor_text.h"

#include "tests/analysis/scripted_program.h"
#include "tests/support/sanitized.h"

namespace headroom::diagnose {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using analysis::testing::ScriptedProgram;
using analysis::testing::ScriptOptions;
using replay::RecordedLimit;

// --- The range -----------------------------------------------------------------------------------

constexpr RecordedLimit kFailed{.reached_bytes = 12_GiB,
                                .refused_bytes = 14_GiB,
                                .card_at_least_bytes = 80_GiB,
                                .floor_bytes = 12_GiB};

RecordedLimit with_fraction(double fraction) {
  RecordedLimit limit = kFailed;
  limit.fraction = fraction;
  limit.floor_bytes.reset();
  return limit;
}

TEST(LimitRange, IsFromWhatWasReachedToWhatWasRefused) {
  const auto range = limit_range(kFailed, {});
  ASSERT_TRUE(range);
  EXPECT_EQ(
      *range,
      (LimitRange{.low_bytes = 12_GiB, .high_bytes = 14_GiB, .source = LimitSource::kFailures}));
  EXPECT_FALSE(limit_range({.reached_bytes = 3_GiB}, {})) << "nothing failed, nothing is known";
}

TEST(LimitRange, IsNarrowedByALimitThatIsInIt) {
  const auto range = limit_range(kFailed, {.limit_bytes = 13_GiB});
  ASSERT_TRUE(range);
  EXPECT_TRUE(range->is_exact());
  EXPECT_EQ(range->low_bytes, 13_GiB);
  EXPECT_EQ(range->source, LimitSource::kGiven);
  for (const std::uint64_t other : {12_GiB - 1, 14_GiB, 1_MiB, 1_TiB}) {
    EXPECT_FALSE(can_be_of_recording(kFailed, {.limit_bytes = other})) << other;
    EXPECT_EQ(limit_range(kFailed, {.limit_bytes = other}), limit_range(kFailed, {}));
  }
}

TEST(LimitRange, IsNarrowedByAFractionOfTheCardThatIsNamed) {
  const RecordedLimit half = with_fraction(0.125);
  const auto unnamed = limit_range(half, {});
  ASSERT_TRUE(unnamed);
  EXPECT_EQ(unnamed->low_bytes, 12_GiB) << "an eighth of 80 GiB is less than was reached";
  const auto named = limit_range(half, {.card_bytes = 100_GiB});
  ASSERT_TRUE(named);
  EXPECT_EQ(*named,
            (LimitRange{.low_bytes = 12_GiB + 512_MiB,
                        .high_bytes = 12_GiB + 512_MiB,
                        .source = LimitSource::kFraction}));
  EXPECT_FALSE(can_be_of_recording(half, {.card_bytes = 24_GiB})) << "80 GiB were there";
  EXPECT_FALSE(can_be_of_recording(half, {.card_bytes = 120_GiB})) << "an eighth was refused";
  EXPECT_EQ(limit_range(with_fraction(0.16), {})->low_bytes,
            static_cast<std::uint64_t>(0.16 * static_cast<double>(80_GiB)));
}

TEST(LimitRange, OfAFractionWithoutAFailureHasNoHighEnd) {
  const auto range = limit_range({.fraction = 0.5, .reached_bytes = 3_GiB}, {});
  ASSERT_TRUE(range);
  EXPECT_EQ(*range, (LimitRange{.low_bytes = 3_GiB, .source = LimitSource::kFraction}));
}

TEST(LimitRange, IsWhatOurOwnRecorderWroteDown) {
  RecordedLimit limit = kFailed;
  limit.said_bytes = 13_GiB;
  EXPECT_EQ(limit_range(limit, {})->source, LimitSource::kRecorded);
  EXPECT_EQ(limit_range(limit, {.limit_bytes = 20_GiB})->low_bytes, 13_GiB);
}

// --- On programs ---------------------------------------------------------------------------------

// Random blocks until one does not fit.
std::optional<trace::Trace> fragmented(std::uint64_t seed, const ScriptOptions& options) {
  std::mt19937_64 random(seed);
  ScriptedProgram program(options);
  std::vector<int> held;
  for (int i = 0; i < 600; ++i) {
    const bool frees = !held.empty() && random() % 100 < 45;
    if (frees) {
      const std::size_t which = random() % held.size();
      program.free(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const int block = program.alloc(512 + random() % 40_MiB, static_cast<int>(random() % 9));
    if (block == ScriptedProgram::kFailed) return program.finish();
    held.push_back(block);
  }
  return std::nullopt;
}

Diagnosis examined(const trace::Trace& trace, const Bounds& bounds = {}) {
  const analysis::TraceIndex index(trace, trace.devices[0]);
  return examine(index, {.bounds = bounds, .replays = {.threads = 1}});
}

bool holds_under(const replay::Program& program, const Finding& finding) {
  const replay::Policy policy = replay::policy_of(finding.proof->choice);
  return replay::run_policy(program, policy, {.limit_bytes = finding.proof->limit_bytes})
      .result.fits;
}

TEST(LimitOfARecording, HoldsTheTruthAndSoDoWhatIsProvedUnderIt) {
  int failed = 0;
  int proved = 0;
  const auto seeds = static_cast<std::uint64_t>(testing::rounds(24));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::uint64_t truth = 96_MiB + seed * 13_MiB;
    const auto trace = fragmented(seed, {.card_bytes = 16_GiB, .limit_bytes = truth});
    if (!trace) continue;
    ++failed;
    const Diagnosis diagnosis = examined(*trace);
    ASSERT_TRUE(diagnosis.limit) << seed;
    EXPECT_LE(diagnosis.limit->low_bytes, truth) << seed;
    EXPECT_GE(*diagnosis.limit->high_bytes, truth) << seed;
    EXPECT_FALSE(diagnosis.failures.went_on);
    const Diagnosis exact = examined(*trace, {.limit_bytes = truth});
    EXPECT_EQ(exact.limit->source, LimitSource::kGiven);
    if (!diagnosis.explanation.depends_on_limit) {
      EXPECT_EQ(diagnosis.health, exact.health) << seed;
    }
    const replay::Program program = replay::compile_with_empty_caches(*trace, trace->devices[0]);
    for (const Finding& finding : diagnosis.findings) {
      if (!finding.is_proved()) continue;
      ++proved;
      EXPECT_EQ(finding.proof->limit_bytes, diagnosis.limit->low_bytes);
      EXPECT_LE(finding.proof->peak_reserved, diagnosis.limit->low_bytes) << seed;
      EXPECT_TRUE(holds_under(program, finding)) << seed << " " << finding.proof->conf;
    }
  }
  EXPECT_GT(failed, testing::rounds(10));
  EXPECT_GT(proved, testing::rounds(10));
}

// What gpt2_oom_stacks was: more had been reserved before than at the failure (#22).
TEST(LimitOfARecording, IsNotWhatWasReservedAtTheFailure) {
  ScriptedProgram program({.card_bytes = 16_GiB, .limit_bytes = 320_MiB});
  const int large = program.alloc(300_MiB, 3);
  program.free(large);
  std::vector<int> pieces;
  for (int i = 0; i < 20; ++i) pieces.push_back(program.alloc(15_MiB, 4));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i % 2 == 0) program.free(pieces[i]);
  }
  const int other = program.alloc(310_MiB, 5);
  ASSERT_EQ(other, ScriptedProgram::kFailed);
  const Diagnosis diagnosis = examined(program.finish());
  ASSERT_TRUE(diagnosis.limit);
  EXPECT_GE(diagnosis.limit->low_bytes, diagnosis.peak_reserved);
  for (const Finding& finding : diagnosis.findings) {
    if (finding.is_proved()) {
      EXPECT_LE(finding.proof->peak_reserved, diagnosis.limit->low_bytes);
    }
  }
}

TEST(LimitOfARecording, IsTheDevicesRoomWhereTheDeviceWasFull) {
  ScriptedProgram program({.card_bytes = 512_MiB});
  for (int i = 0; i < 4; ++i) (void)program.alloc(100_MiB, 7);
  EXPECT_EQ(program.alloc(200_MiB, 8), ScriptedProgram::kFailed);
  const Diagnosis diagnosis = examined(program.finish());
  ASSERT_TRUE(diagnosis.limit);
  EXPECT_EQ(diagnosis.limit->source, LimitSource::kDevice);
  EXPECT_EQ(diagnosis.limit->low_bytes, 512_MiB);
  EXPECT_FALSE(diagnosis.account.limit_bytes) << "the device was full, and nothing else";
}

// --- What would have been ------------------------------------------------------------------------

TEST(WhatIf, ACardSaysWhetherItWouldHaveFitted) {
  ScriptedProgram program;
  std::vector<int> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(program.alloc(100_MiB, 3));
  program.free(blocks);
  for (int i = 0; i < 10; ++i) program.free(program.alloc(100_MiB, 3));
  const trace::Trace trace = program.finish();
  const Diagnosis large = examined(trace, {.card_bytes = 2_GiB});
  ASSERT_TRUE(large.what_if);
  EXPECT_TRUE(large.what_if->fits);
  EXPECT_THAT(report::summary_text(large), HasSubstr("It fits on a card of 2GiB"));
  const Diagnosis small = examined(trace, {.card_bytes = 512_MiB});
  ASSERT_TRUE(small.what_if);
  EXPECT_FALSE(small.what_if->fits);
  EXPECT_EQ(small.explanation.verdict, memory::Verdict::kShortage);
  EXPECT_EQ(small.account.total_bytes, 512_MiB);
  EXPECT_THAT(report::summary_text(small), HasSubstr("It does not fit on a card of 512MiB"));
  EXPECT_FALSE(examined(trace).what_if);
}

TEST(WhatIf, ALargerLimitServesWhatFailed) {
  const auto trace = fragmented(3, {.card_bytes = 16_GiB, .limit_bytes = 128_MiB});
  ASSERT_TRUE(trace);
  const Diagnosis diagnosis = examined(*trace, {.limit_bytes = 4_GiB});
  ASSERT_TRUE(diagnosis.what_if);
  EXPECT_TRUE(diagnosis.what_if->fits);
  EXPECT_EQ(diagnosis.moment, Moment::kPeak);
  EXPECT_THAT(report::summary_text(diagnosis),
              HasSubstr("the requests that failed in the recording succeed"));
}

// --- Failures that were survived -----------------------------------------------------------------

// As cuDNN's search for an algorithm (#22).
TEST(Failures, ThatAProgramCatchesAreToldFromTheOneThatEndsIt) {
  const auto run = [](bool goes_on) {
    ScriptedProgram program({.card_bytes = 16_GiB, .limit_bytes = 256_MiB});
    const int weights = program.alloc(200_MiB, 3);
    for (int i = 0; i < 5; ++i) (void)program.alloc(100_MiB, 4);
    if (goes_on) program.free(program.alloc(20_MiB, 4));
    program.free(weights);
    return examined(program.finish());
  };
  const Diagnosis caught = run(true);
  EXPECT_EQ(caught.failures.count, 5U);
  EXPECT_EQ(caught.failures.bursts, 1U);
  EXPECT_TRUE(caught.failures.went_on);
  EXPECT_THAT(report::summary_text(caught), HasSubstr("the program went on"));
  const Diagnosis ended = run(false);
  EXPECT_FALSE(ended.failures.went_on) << "frees are what an error leaves behind";
  EXPECT_THAT(report::summary_text(ended), Not(HasSubstr("went on")));
}

}  // namespace
}  // namespace headroom::diagnose
