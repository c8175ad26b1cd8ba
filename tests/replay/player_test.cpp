// What a replay reports besides its peaks.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/replay/cards.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/policy.h"

#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using trace::testing::recording;
using trace::testing::trace_of;

struct Loaded {
  explicit Loaded(const std::string& name)
      : trace(trace_of(recording(name))),
        program(compile_with_empty_caches(trace, trace.devices[0])) {}
  trace::Trace trace;
  Program program;
};

class Player : public ::testing::Test {
 protected:
  static const Program& gpt2() {
    static const Loaded loaded("gpt2_varlen");
    return loaded.program;
  }
  static const Program& resnet() {
    static const Loaded loaded("resnet50");
    return loaded.program;
  }
};

memory::AllocatorConfig expandable() {
  memory::AllocatorConfig config;
  config.expandable_segments = true;
  return config;
}

TEST_F(Player, CountsTheCallsOfTheDriver) {
  const ReplayResult plain = replay(gpt2(), as_recorded(gpt2()));
  EXPECT_EQ(plain.calls.device_allocs, 147U);
  EXPECT_EQ(plain.calls.device_frees, 0U);
  EXPECT_EQ(plain.calls.handles_created, 0U);
  EXPECT_GT(plain.calls.driver_us, 147 * 53.0);
  EXPECT_LT(plain.driver_us_second_half, plain.calls.driver_us / 2) << "it settles down";

  const ReplayResult mapped = replay(gpt2(), with_settings(gpt2(), expandable()));
  EXPECT_EQ(mapped.calls.device_allocs, 137U);
  EXPECT_EQ(mapped.calls.handles_created, mapped.calls.handles_mapped);
  EXPECT_GT(mapped.calls.handles_mapped, 600U);
  EXPECT_EQ(mapped.calls.handles_unmapped, 0U);
}

TEST_F(Player, LiveIsTheSameWhateverThePolicy) {
  const ReplayResult plain = replay(gpt2(), as_recorded(gpt2()));
  const ReplayResult mapped = replay(gpt2(), with_settings(gpt2(), expandable()));
  EXPECT_EQ(plain.peak_live, mapped.peak_live);
  EXPECT_EQ(plain.peak_live, gpt2().peak_live);
  EXPECT_EQ(static_cast<std::int64_t>(plain.peak_live), plain.statistics.live_bytes.peak);
  EXPECT_LE(mapped.peak_allocated, plain.peak_allocated);
}

TEST_F(Player, ShowsTheTimeLineAndThePeak) {
  ReplayOptions options = as_recorded(gpt2());
  options.timeline_samples = 100;
  const ReplayResult result = replay(gpt2(), options);
  ASSERT_EQ(result.timeline.size(), 100U);
  EXPECT_EQ(result.timeline.back().op, gpt2().ops.size() - 1);
  for (const TimelineSample& sample : result.timeline) {
    EXPECT_LE(sample.live, sample.active);
    EXPECT_LE(sample.allocated, sample.active);
    EXPECT_LE(sample.active, sample.reserved);
    EXPECT_LE(sample.reserved, result.peak_reserved);
  }
  std::uint64_t seen = 0;
  options.observers = {{.at_op = result.peak_op, .look = [&](const memory::Allocator& a) {
                          seen = a.account().reserved();
                        }}};
  (void)replay(gpt2(), options);
  EXPECT_EQ(seen, result.peak_reserved);
}

TEST_F(Player, ALimitMakesItRetryOrFail) {
  ReplayOptions options = as_recorded(gpt2());
  options.limit_bytes = 15'000'000'000;
  const ReplayResult tight = replay(gpt2(), options);
  EXPECT_TRUE(tight.fits);
  EXPECT_GT(tight.retries, 0U);
  EXPECT_LE(tight.peak_reserved, *options.limit_bytes);

  options.limit_bytes = 13'000'000'000;
  const ReplayResult less = replay(gpt2(), options);
  EXPECT_FALSE(less.fits);
  EXPECT_GT(less.ooms, 0U);
  ASSERT_TRUE(less.first_failure);
  EXPECT_FALSE(less.first_failure->was_recorded);
  EXPECT_EQ(less.unknown_past_op, less.first_failure->op);
  options.stop_at_failure = true;
  EXPECT_EQ(replay(gpt2(), options).first_failure->op, less.first_failure->op);
}

TEST_F(Player, ACardIsABoundToo) {
  ReplayOptions options = as_recorded(gpt2(), {.card_bytes = 13'000'000'000});
  EXPECT_FALSE(replay(gpt2(), options).fits);
  options = as_recorded(gpt2(), {.card_bytes = *parse_card("rtx4090")});
  EXPECT_TRUE(replay(gpt2(), options).fits);
}

// By definition: every 1 % step up to 1.3 survives, and just below it something does not.
TEST_F(Player, FindsTheSmallestLimit) {
  const auto smallest = smallest_limit(resnet(), as_recorded(resnet()));
  ASSERT_TRUE(smallest);
  EXPECT_GE(smallest->bytes, resnet().peak_live);
  EXPECT_LT(smallest->bytes, 3'684'696'064U);
  const auto survives = [&](double share) {
    ReplayOptions options = as_recorded(resnet());
    options.limit_bytes = static_cast<std::uint64_t>(static_cast<double>(smallest->bytes) * share);
    return replay(resnet(), options).fits;
  };
  for (int percent = 0; percent <= 30; ++percent) EXPECT_TRUE(survives(1 + percent / 100.0));
  EXPECT_FALSE(survives(0.998));
  EXPECT_LT(smallest_limit(resnet(), with_settings(resnet(), expandable()))->bytes,
            smallest->bytes);
  EXPECT_FALSE(smallest_limit(resnet(), as_recorded(resnet(), {.card_bytes = 1_GiB})));
}

TEST_F(Player, PoliciesHaveNames) {
  EXPECT_EQ(parse_policy("pytorch").value(), Policy{});
  const auto conf = [](const char* name) { return parse_policy(name)->choice.config.text; };
  EXPECT_EQ(conf("pytorch:default"), "");
  EXPECT_EQ(conf("pytorch:max_split_size_mb:128"), "max_split_size_mb:128");
  EXPECT_EQ(parse_policy("cudaMallocAsync").value().kind, PolicyKind::kAsyncPool);
  EXPECT_EQ(parse_policy("paged").value().kind, PolicyKind::kPaged);
  EXPECT_EQ(conf("paged:page_mb=2,cushion=0.01"), "page_mb=2,cushion=0.01");
  for (const char* name : {"pytorch:default", "pytorch:max_split_size_mb:128", "paged:page_mb=2"}) {
    EXPECT_EQ(policy_of(parse_policy(name)->choice), parse_policy(name).value());
  }
  EXPECT_EQ(policy_of_conf("").name, "pytorch:default");
  EXPECT_THROW((void)policy_of_conf("max_split_size:1"), InvalidArgument);
  EXPECT_FALSE(parse_policy("paged:per_process_memory_fraction=0.5"));
  EXPECT_FALSE(parse_policy("paged:page_mb=0"));
  EXPECT_FALSE(parse_policy("pagedd"));
  EXPECT_FALSE(parse_policy("tcmalloc"));
  EXPECT_FALSE(parse_policy("pytorch:max_split_size:1"));
}

TEST_F(Player, PoliciesRun) {
  const auto run = [&](const char* name, PolicyOptions options = {}) {
    return run_policy(resnet(), parse_policy(name).value(), options);
  };
  const PolicyResult recorded = run("pytorch", {.verifies = true});
  ASSERT_TRUE(recorded.verification);
  EXPECT_TRUE(recorded.verification->is_exact());
  EXPECT_TRUE(recorded.verification->is_version_proved);
  EXPECT_EQ(recorded.result.peak_reserved, 3'684'696'064U);
  EXPECT_FALSE(run("pytorch").verification);
  EXPECT_FALSE(run("pytorch:default", {.verifies = true}).verification);
  EXPECT_EQ(run("pytorch:expandable_segments:True").result.peak_reserved, 3'139'436'544U);
  EXPECT_TRUE(run("cudaMallocAsync").is_model);
  EXPECT_FALSE(run("pytorch", {.limit_bytes = 3_GiB - 500_MiB}).result.fits);
  EXPECT_FALSE(run("cudaMallocAsync", {.limit_bytes = 1_GiB}).result.fits);
  EXPECT_THROW((void)run("pytorch:large_segment_size_mb:40", {.version = memory::kPyTorch29}),
               InvalidArgument);
}

// The limit in the recorded settings is part of them: other settings are exactly what they say.
TEST_F(Player, RecordedLimitsBelongToTheRecordedSettings) {
  const Loaded tight("resnet50_gc_tight");
  EXPECT_LT(run_policy(tight.program, {}).result.peak_reserved, 3'270'000'000U);
  EXPECT_EQ(run_policy(tight.program, parse_policy("pytorch:default").value()).result.peak_reserved,
            3'684'696'064U);
}

TEST(Cards, HaveNamesAndSizes) {
  EXPECT_EQ(parse_card("h200"), kDefaultCardBytes);
  EXPECT_EQ(parse_card("24GiB"), 24_GiB);
  EXPECT_FALSE(parse_card("h20"));
  EXPECT_FALSE(parse_card("0"));
  EXPECT_EQ(card_name(kDefaultCardBytes), "h200");
  EXPECT_FALSE(card_name(1));
  EXPECT_NE(card_names().find("a100-40"), std::string::npos);
}

}  // namespace
}  // namespace headroom::replay
