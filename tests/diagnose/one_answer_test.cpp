// Whether a program would have fitted is one question, and replay, its comparison with the
// recording, tune and doctor give it one answer (#22).
#include <array>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "headroom/diagnose/doctor.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/tune.h"

#include "tests/analysis/scripted_program.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::diagnose {
namespace {

using analysis::testing::ScriptedProgram;
using analysis::testing::ScriptOptions;
using headroom::testing::seed_text;
using headroom::testing::test_seed;
using replay::Program;

bool replayed(const Program& recorded,
              const Program& asked_of,
              const Bounds& asked,
              bool verifies) {
  return replay::run_policy(asked_of,
                            {},
                            {.card_bytes = asked.card_bytes,
                             .limit_bytes = asked.limit_bytes,
                             .verifies = verifies,
                             .recorded = &recorded})
      .result.fits;
}

// Everything but the searches' own candidates: those of tune and doctor are not at stake.
void expect_one_answer(const trace::Trace& trace, const Bounds& asked, bool searches) {
  const trace::DeviceTrace& device = trace.devices[0];
  const Program recorded = replay::compile_with_empty_caches(
      trace, device, {.card_bytes = asked.card_bytes, .limit_bytes = asked.limit_bytes});
  const bool is_recorded = runs_as_recorded(recorded, asked);
  const Program program = is_recorded ? recorded : from_live_blocks(recorded);
  const bool fits = replayed(recorded, program, asked, false);
  EXPECT_EQ(replayed(recorded, program, asked, true), fits);

  const analysis::TraceIndex index(trace, device);
  const Replays replays(index, {}, asked);
  EXPECT_EQ(replays.run_as_recorded(asked), is_recorded);
  const bool by_doctor = is_recorded ? recorded.failures == 0 : replays.foresee(asked).fits;
  EXPECT_EQ(by_doctor, fits);
  if (!searches) return;

  const Diagnosis diagnosis = examine(index, {.bounds = asked, .replays = {.threads = 1}});
  ASSERT_TRUE(diagnosis.what_if);
  EXPECT_EQ(diagnosis.what_if->fits, fits);
  const std::array programs{&program};
  const replay::TuneResult tuned = tune(
      programs, {.limit_bytes = asked.limit_bytes, .card_bytes = asked.card_bytes, .threads = 1});
  EXPECT_EQ(tuned.current.fits, fits);
}

// Around what was live and what was reserved, and at the very edges of what a failure tells.
Bounds random_bounds(const trace::Trace& trace, std::mt19937_64& random) {
  const analysis::TraceIndex index(trace, trace.devices[0]);
  const std::uint64_t low = index.peaks().live.bytes / 10 * 9;
  const std::uint64_t high = std::max(index.peaks().reserved.bytes / 20 * 21, low + 1);
  std::uint64_t bytes = low + random() % (high - low);
  const auto limit =
      limit_range(replay::recorded_limit(trace, trace.devices[0], index.start()), {});
  if (random() % 2 == 0) {
    bytes = index.peaks().reserved.bytes - random() % 2;
    if (limit) bytes = random() % 2 == 0 ? limit->low_bytes : limit->high_bytes.value_or(high);
    bytes -= random() % 2;
  }
  if (random() % 4 == 0) return {.card_bytes = bytes};
  return {.limit_bytes = bytes};
}

// A program that fails or not, with streams of sizes that repeat or not.
trace::Trace scripted(std::uint64_t seed) {
  constexpr std::array kConfs{"",
                              "expandable_segments:True",
                              "max_split_size_mb:24",
                              "garbage_collection_threshold:0.6",
                              "roundup_power2_divisions:4"};
  std::mt19937_64 random(seed);
  ScriptOptions options{.card_bytes = 16_GiB, .conf = kConfs[seed % kConfs.size()]};
  if (random() % 3 == 0) options.card_bytes = 64_MiB + random() % 256_MiB;
  if (random() % 2 == 0) options.limit_bytes = 64_MiB + random() % 256_MiB;
  ScriptedProgram program(options);
  std::vector<int> held;
  for (int i = 0; i < 200; ++i) {
    if (!held.empty() && random() % 100 < 47) {
      const std::size_t which = random() % held.size();
      program.free(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const std::uint64_t size = random() % 4 == 0 ? 512 + random() % 1_MiB : random() % 32_MiB + 1;
    const int block = program.alloc(size);
    if (block != ScriptedProgram::kFailed) held.push_back(block);
  }
  return program.finish();
}

TEST(OneAnswer, IsGivenByAllWhoAreAskedWhetherAProgramFits) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < testing::rounds(16); ++i) {
    const std::uint64_t number = random();
    SCOPED_TRACE("program " + std::to_string(number));
    const trace::Trace trace = scripted(number);
    for (int k = 0; k < 4; ++k) {
      const Bounds asked = random_bounds(trace, random);
      SCOPED_TRACE("card " + std::to_string(asked.card_bytes.value_or(0)) + ", limit " +
                   std::to_string(asked.limit_bytes.value_or(0)));
      expect_one_answer(trace, asked, k == 0);
    }
  }
}

struct Recorded {
  const char* name;
  bool searches;  // quickly
};

class OneAnswerOf : public ::testing::TestWithParam<Recorded> {};

// A failure that the recording does not explain is served when it is played again; what the program
// reserved is what the recording says all the same.
TEST(OneAnswer, TheRecordedPeakIsThatOfTheRecording) {
  ScriptedProgram program({.limit_bytes = 600_MiB});
  program.free(program.alloc(200_MiB));
  const int kept = program.alloc(300_MiB);
  ASSERT_EQ(program.alloc(400_MiB), ScriptedProgram::kFailed);
  program.free(kept);
  trace::Trace trace = program.finish();
  trace::Events changed;
  for (std::size_t i = 0; i < trace.devices[0].events.size(); ++i) {
    trace::Entry entry = trace.devices[0].events[i];
    if (entry.action == memory::Action::kOutOfMemory) entry.address = 390_MiB;  // nearly enough
    changed.push_back(entry);
  }
  trace.devices[0].events = changed;
  const analysis::TraceIndex index(trace, trace.devices[0]);
  const Program recorded = replay::compile_with_empty_caches(trace, trace.devices[0]);
  const auto result = replay::run_policy(recorded, {}, {}).result;
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.peak_reserved, index.peaks().reserved.bytes);
}

TEST_P(OneAnswerOf, ARecording) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937_64 random(seed);
  const trace::Trace trace = trace::testing::trace_of(trace::testing::recording(GetParam().name));
  for (int i = 0; i < testing::rounds(6); ++i) {
    const Bounds asked = random_bounds(trace, random);
    SCOPED_TRACE("card " + std::to_string(asked.card_bytes.value_or(0)) + ", limit " +
                 std::to_string(asked.limit_bytes.value_or(0)));
    expect_one_answer(trace, asked, GetParam().searches && i < 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings,
                         OneAnswerOf,
                         ::testing::Values(Recorded{"resnet50", true},
                                           Recorded{"resnet50_gc_tight", true},
                                           Recorded{"streams", true},
                                           Recorded{"streams_expandable", true},
                                           Recorded{"seed_deepnet", true},
                                           Recorded{"gnn_sampled", true},
                                           Recorded{"leak_loss", true},
                                           Recorded{"gpt2_varlen", false},
                                           Recorded{"gpt2_partial", false},
                                           Recorded{"gpt2_expandable_tight", false},
                                           Recorded{"llama_serve", false}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace headroom::diagnose
