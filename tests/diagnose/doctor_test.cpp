// Each verdict on a program written for it.
#include "headroom/diagnose/doctor.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/report/doctor_text.h"

#include "tests/analysis/scripted_program.h"

namespace headroom::diagnose {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using analysis::testing::ScriptedProgram;
using analysis::testing::Training;

DoctorOptions with_one_thread(DoctorOptions options) {
  options.replays.threads = 1;
  return options;
}

Diagnosis diagnosis_of(ScriptedProgram& program, const DoctorOptions& options = {}) {
  const trace::Trace trace = program.finish();
  const analysis::TraceIndex index(trace, trace.devices[0]);
  Diagnosis diagnosis = examine(index, with_one_thread(options));
  EXPECT_EQ(diagnosis.account.sum(), diagnosis.account.total_bytes);
  return diagnosis;
}

TEST(Doctor, TrainingWithStateIsHealthy) {
  ScriptedProgram program;
  Training training(program);
  for (int i = 0; i < 12; ++i) (void)training.step();
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kHealthy);
  EXPECT_TRUE(diagnosis.is_good());
  EXPECT_EQ(diagnosis.iterations, 11U);
}

TEST(Doctor, AKeptGraphIsALeakWithItsLine) {
  ScriptedProgram program;
  Training training(program);
  for (int i = 0; i < 12; ++i) (void)training.step(1, true);
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kLeak);
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_EQ(diagnosis.findings[0].kind, FindingKind::kLeak);
  EXPECT_EQ(diagnosis.findings[0].bytes, 5_MiB);
  EXPECT_EQ(diagnosis.findings[0].site, "train.py:11 train");
}

TEST(Doctor, ALeakThatEndsInAFailureIsALeak) {
  ScriptedProgram program({.card_bytes = 256_MiB});
  Training training(program);
  bool failed = false;
  for (int i = 0; i < 60 && !failed; ++i) {
    for (const int block : training.step(1, true)) failed = failed || block < 0;
  }
  ASSERT_TRUE(failed);
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kLeak);
  EXPECT_EQ(diagnosis.findings[0].bytes, 5_MiB);
  EXPECT_NE(diagnosis.findings.back().kind, FindingKind::kLeak);
  EXPECT_THAT(report::summary_text(diagnosis), HasSubstr("until an allocation failed"));
}

// Findings that name our own allocator, with what it was measured to take.
std::ptrdiff_t proved_for_paged(const Diagnosis& diagnosis) {
  return std::ranges::count_if(diagnosis.findings, [](const Finding& finding) {
    return finding.is_proved() && finding.advice == Advice::kPagedAllocator;
  });
}

// However the first failure looks.
TEST(Doctor, MoreThanTheLimitLiveAtOnceIsAShortage) {
  ScriptedProgram program;
  Training training(program);
  for (int i = 0; i < 6; ++i) (void)training.step();
  const Diagnosis diagnosis = diagnosis_of(program, {.bounds = {.limit_bytes = 20_MiB}});
  ASSERT_GT(diagnosis.peak_live, 20_MiB);
  EXPECT_EQ(diagnosis.health, Health::kShortage);
  EXPECT_THAT(report::summary_text(diagnosis), HasSubstr("is live at once, more than the 20MiB"));
  for (const Finding& finding : diagnosis.findings) EXPECT_FALSE(finding.remedy.is_enough);
}

TEST(Doctor, ACardThatLeavesNothingForCudaIsTooSmall) {
  ScriptedProgram program;
  for (int i = 0; i < 3; ++i) program.free(program.alloc(512_MiB));
  const Diagnosis tight = diagnosis_of(program, {.bounds = {.card_bytes = 516_MiB}});
  EXPECT_FALSE(tight.is_good());
  EXPECT_THAT(report::summary_text(tight), HasSubstr("It does not fit on a card of 516MiB"));
}

TEST(Doctor, ACardWithRoomForCudaFits) {
  ScriptedProgram program;
  for (int i = 0; i < 3; ++i) program.free(program.alloc(512_MiB));
  const Diagnosis roomy = diagnosis_of(program, {.bounds = {.card_bytes = 2_GiB}});
  EXPECT_TRUE(roomy.is_good());
  EXPECT_THAT(report::summary_text(roomy), HasSubstr("It fits on a card of 2GiB"));
}

// What stays keeps a page each, and no setting of any allocator helps against that.
TEST(Doctor, BlocksSpreadThinAreNamed) {
  ScriptedProgram program;
  std::vector<int> loaded;
  for (int i = 0; i < 4'000; ++i) loaded.push_back(program.alloc(100_KiB, i % 20 == 0 ? 7 : 8));
  for (int i = 0; i < 4'000; ++i) {
    if (i % 20 != 0) program.free(loaded[static_cast<std::size_t>(i)]);
  }
  (void)program.alloc(512_MiB, 9);
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kFragmentation);
  const auto found = std::ranges::find(diagnosis.findings, Advice::kKeepApart, &Finding::advice);
  ASSERT_NE(found, diagnosis.findings.end());
  EXPECT_EQ(found->bytes, 200 * (2_MiB - 100_KiB));
  EXPECT_EQ(found->site, "train.py:7 train");
  EXPECT_THAT(report::remedy_text(diagnosis, *found), HasSubstr("keep blocks that stay apart"));
  EXPECT_THAT(report::reason_text(diagnosis, *found),
              HasSubstr("200 blocks, 19.53MiB in all, keep 380.47MiB of 200 pages of 2MiB"));
}

TEST(Doctor, WhatNeverFitsIsAShortage) {
  ScriptedProgram program({.card_bytes = 512_MiB});
  for (int i = 0; i < 4; ++i) (void)program.alloc(100_MiB, 7);
  EXPECT_EQ(program.alloc(200_MiB, 8), ScriptedProgram::kFailed);
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kShortage);
  EXPECT_EQ(diagnosis.moment, Moment::kFailure);
  EXPECT_EQ(diagnosis.account.asked_bytes, 200_MiB);
  EXPECT_EQ(diagnosis.account.free_bytes, 112_MiB);
  for (const Finding& finding : diagnosis.findings) EXPECT_FALSE(finding.is_proved());
  EXPECT_EQ(proved_for_paged(diagnosis), 0);
}

// Every second of many pieces stays: half is free, and no hole is large.
TEST(Doctor, HolesAreFragmentationWithAProvedSetting) {
  ScriptedProgram program({.card_bytes = 512_MiB});
  std::vector<int> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(program.alloc(120_MiB, 5));
  program.free(batches);
  std::vector<int> pieces;
  for (int i = 0; i < 48; ++i) pieces.push_back(program.alloc(10_MiB, 6));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i % 8 != 4) program.free(pieces[i]);
  }
  ASSERT_EQ(program.alloc(200_MiB, 8), ScriptedProgram::kFailed);
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kFragmentation);
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_TRUE(diagnosis.findings[0].is_proved());
  EXPECT_THAT(report::remedy_text(diagnosis, diagnosis.findings[0]),
              StartsWith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  ASSERT_TRUE(diagnosis.proof && diagnosis.proof->paged);
  EXPECT_TRUE(diagnosis.proof->paged->fits);
  EXPECT_EQ(proved_for_paged(diagnosis), 1);
}

TEST(Doctor, SizesThatNeverRepeatAreFragmentationAtThePeak) {
  ScriptedProgram program({.card_bytes = 64_GiB});
  for (std::uint64_t i = 0; i < 24; ++i) {
    const int first = program.alloc((40 + i) * 2_MiB, 5);
    const int second = program.alloc((30 + i) * 2_MiB, 6);
    program.free({first, second});
  }
  const Diagnosis diagnosis = diagnosis_of(program);
  EXPECT_EQ(diagnosis.health, Health::kFragmentation);
  EXPECT_EQ(diagnosis.moment, Moment::kPeak);
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_TRUE(diagnosis.findings[0].is_proved());
  ASSERT_TRUE(diagnosis.proof && diagnosis.proof->paged);
  EXPECT_LE(diagnosis.proof->paged->peak_reserved, diagnosis.peak_live * 103 / 100 + 8_MiB);
  EXPECT_EQ(proved_for_paged(diagnosis), 1);
}

TEST(Doctor, ALimitTurnsAHealthyProgramIntoAShortage) {
  ScriptedProgram program;
  Training training(program);
  for (int i = 0; i < 12; ++i) (void)training.step();
  const Diagnosis diagnosis = diagnosis_of(program, {.bounds = {.limit_bytes = 40_MiB}});
  EXPECT_EQ(diagnosis.health, Health::kShortage);
  EXPECT_EQ(diagnosis.moment, Moment::kForeseenFailure);
  EXPECT_EQ(diagnosis.account.total_bytes, 40_MiB);
}

TEST(Doctor, BoundsAreForContinuousIntegration) {
  const auto run = [](const DoctorOptions& options, bool leaks) {
    ScriptedProgram program;
    Training training(program);
    for (int i = 0; i < 12; ++i) (void)training.step(1, leaks);
    return diagnosis_of(program, options);
  };
  EXPECT_TRUE(run({.max_peak_bytes = 1_GiB}, false).is_good());
  const Diagnosis over = run({.max_peak_bytes = 10_MiB}, false);
  EXPECT_EQ(over.health, Health::kHealthy);
  EXPECT_FALSE(over.is_good());
  EXPECT_EQ(over.findings.back().kind, FindingKind::kPeak);
  EXPECT_TRUE(run({.max_growth_bytes = 5_MiB}, true).is_good());
  EXPECT_FALSE(run({.max_growth_bytes = 5_MiB - 1}, true).is_good());
}

TEST(Doctor, AListIsQuotedForTheShell) {
  EXPECT_EQ(report::export_line("expandable_segments:True"),
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_THAT(report::export_line("roundup_power2_divisions:[16:0,>:2]"), HasSubstr("='roundup"));
}

}  // namespace
}  // namespace headroom::diagnose
