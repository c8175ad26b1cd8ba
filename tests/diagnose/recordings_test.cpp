// Verdicts on recordings of PyTorch, beside what PyTorch did.
#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/diagnose/doctor.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/program.h"
#include "headroom/report/doctor_text.h"

#include "tests/support/sanitized.h"
#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::diagnose {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using trace::testing::recording;
using trace::testing::trace_of;

// Whether the program survived a limit of so many times its peak of allocated, on an H200 with
// PyTorch 2.11 and its factory settings.
struct Survived {
  const char* name;
  std::uint64_t peak_allocated;
  bool at_101, at_103, at_106, at_112, at_125;
};

constexpr Survived kSurvived[] = {
    {"resnet50", 3'077'896'704, false, false, true, true, true},
    {"gpt2_varlen", 12'985'996'800, false, false, false, true, true},
    {"llama_serve", 4'900'414'976, false, false, false, false, true},
    {"gnn_sampled", 9'328'110'080, false, false, false, false, false},
};

class MeasuredLimits : public ::testing::TestWithParam<Survived> {};

TEST_P(MeasuredLimits, AreSurvivedHereWhereTheyWereThere) {
  const Survived& measured = GetParam();
  const trace::Trace trace = trace_of(recording(measured.name));
  const analysis::TraceIndex index(trace, trace.devices[0]);
  const Replays replays(index, {});
  const auto fits = [&](double times) {
    const auto limit =
        static_cast<std::uint64_t>(times * static_cast<double>(measured.peak_allocated));
    return replays.foresee({.limit_bytes = limit}).fits;
  };
  EXPECT_EQ(fits(1.01), measured.at_101);
  EXPECT_EQ(fits(1.03), measured.at_103);
  EXPECT_EQ(fits(1.06), measured.at_106);
  EXPECT_EQ(fits(1.12), measured.at_112);
  EXPECT_EQ(fits(1.25), measured.at_125);
}

INSTANTIATE_TEST_SUITE_P(Recordings,
                         MeasuredLimits,
                         ::testing::ValuesIn(kSurvived),
                         [](const auto& one) { return std::string(one.param.name); });

bool holds(const replay::Program& program, const Finding& finding) {
  const replay::Policy policy = replay::policy_of(finding.proof->choice);
  const auto run =
      replay::run_policy(program, policy, {.limit_bytes = finding.proof->limit_bytes}).result;
  return run.fits && run.peak_reserved <= finding.proof->limit_bytes.value_or(UINT64_MAX);
}

TEST(ProvedRemedies, NeverFailUnderTheLimitTheyWereProvedUnder) {
  std::mt19937_64 random(22);
  int proved = 0;
  for (const char* name : {"resnet50", "gnn_sampled", "streams", "seed_deepnet"}) {
    const trace::Trace trace = trace_of(recording(name));
    const analysis::TraceIndex index(trace, trace.devices[0]);
    const replay::Program program = replay::compile_with_empty_caches(trace, trace.devices[0]);
    for (int i = 0; i < testing::rounds(3); ++i) {
      const double times = 0.97 + static_cast<double>(random() % 1000) / 2500;
      const auto limit =
          static_cast<std::uint64_t>(times * static_cast<double>(index.peaks().allocated.bytes));
      const Diagnosis diagnosis = examine(index, {.bounds = {.limit_bytes = limit}});
      for (const Finding& finding : diagnosis.findings) {
        if (!finding.is_proved()) continue;
        ++proved;
        EXPECT_TRUE(holds(program, finding)) << name << " " << limit << " " << finding.proof->conf;
        // Without a fraction, which no setting sets here, PyTorch would not act on it.
        EXPECT_THAT(finding.proof->conf, Not(HasSubstr("garbage_collection_threshold")));
      }
    }
  }
  EXPECT_GT(proved, testing::rounds(6));
}

// As a ring buffer leaves it: the first events are gone.
trace::Trace without_begin(trace::Trace trace, std::size_t cut) {
  trace::Events kept;
  const trace::Events& all = trace.devices[0].events;
  for (std::size_t i = cut; i < all.size(); ++i) kept.push_back(all[i]);
  trace.devices[0].events = std::move(kept);
  return trace;
}

TEST(ProvedRemedies, HoldOfHistoriesThatWereCut) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937_64 random(seed);
  for (const char* name : {"gnn_sampled", "streams"}) {
    const trace::Trace whole = trace_of(recording(name));
    for (int i = 0; i < testing::rounds(3); ++i) {
      const std::size_t cut = random() % (whole.devices[0].events.size() * 9 / 10);
      const trace::Trace trace = without_begin(whole, cut);
      const analysis::TraceIndex index(trace, trace.devices[0]);
      const replay::Program program =
          from_live_blocks(replay::compile_with_empty_caches(trace, trace.devices[0]));
      const auto limit = index.peaks().allocated.bytes / 100 * (98 + random() % 30);
      const Diagnosis diagnosis = examine(index, {.bounds = {.limit_bytes = limit}});
      for (const Finding& finding : diagnosis.findings) {
        if (!finding.is_proved()) continue;
        EXPECT_TRUE(holds(program, finding)) << name << " " << cut << " " << limit;
      }
    }
  }
}

// The plug-in was recommended to a program of two streams without a word of what that takes, nor of
// its driver time (#22).
TEST(OurAllocator, IsRecommendedWithWhatItTakes) {
  const auto diagnosis_of = [](const char* name) {
    const trace::Trace trace = trace_of(recording(name));
    const analysis::TraceIndex index(trace, trace.devices[0]);
    return examine(index, {});
  };
  const auto paged = [](const Diagnosis& diagnosis) {
    const auto found =
        std::ranges::find(diagnosis.findings, Advice::kPagedAllocator, &Finding::advice);
    EXPECT_NE(found, diagnosis.findings.end());
    return found;
  };
  const Diagnosis two_streams = diagnosis_of("streams");
  EXPECT_TRUE(two_streams.uses_streams);
  EXPECT_THAT(report::remedy_text(two_streams, *paged(two_streams)), HasSubstr("record_stream"));
  EXPECT_THAT(report::reason_text(two_streams, *paged(two_streams)),
              HasSubstr("its driver calls take"));
  const Diagnosis one_stream = diagnosis_of("gnn_sampled");
  EXPECT_FALSE(one_stream.uses_streams);
  EXPECT_THAT(report::remedy_text(one_stream, *paged(one_stream)), Not(HasSubstr("record_stream")));
}

// PyTorch's settings inherited what was reserved before, and our allocator started empty (#22).
TEST(HistoriesThatStartInTheMiddle, AreComparedFromTheSameStart) {
  const trace::Trace trace = trace_of(recording("gpt2_partial"));
  const analysis::TraceIndex index(trace, trace.devices[0]);
  ASSERT_FALSE(index.start().is_empty());
  const Replays replays(index, {});
  const auto proof = replays.prove({});
  ASSERT_TRUE(proof && proof->paged);
  EXPECT_LT(proof->current.peak_reserved, index.peaks().reserved.bytes)
      << "what was cached before is nobody's";
  const replay::Program program =
      replay::from_live_blocks(replay::compile_with_empty_caches(trace, trace.devices[0]));
  EXPECT_TRUE(program.start.is_empty() && program.starts_with_live_blocks);
  EXPECT_EQ(replay::replay(program, as_recorded(program)).peak_live, index.peaks().live.bytes);
  EXPECT_EQ(replay::replay(program, with_paged(program)).peak_live, index.peaks().live.bytes);
}

}  // namespace
}  // namespace headroom::diagnose
