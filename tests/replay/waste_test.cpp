// The lines of waste add up, and are the allocator's own account.
#include "headroom/replay/waste.h"

#include <numeric>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/infer_empty_caches.h"

#include "tests/replay/recorder.h"
#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using headroom::testing::seed_text;
using headroom::testing::test_seed;
using testing::record_traffic;
using testing::TrafficOptions;

std::uint64_t pinned(const Waste& waste) {
  return std::accumulate(
      waste.pinned_by.begin(),
      waste.pinned_by.end(),
      std::uint64_t{0},
      [](std::uint64_t sum, const PinningSite& site) { return sum + site.pinned_bytes; });
}

memory::Account account_at(const Program& program, ReplayOptions options, std::size_t op) {
  memory::Account account;
  options.observers.push_back({.at_op = op, .look = [&](const memory::Allocator& allocator) {
                                 account = allocator.account();
                               }});
  (void)replay(program, options);
  return account;
}

void expect_account(const Waste& waste, const memory::Account& account) {
  EXPECT_EQ(waste.lines.reserved, account.reserved());
  EXPECT_EQ(waste.lines.live, account.live());
  EXPECT_EQ(waste.lines.rounding + waste.lines.unsplit, account.rounding_bytes);
  EXPECT_EQ(waste.lines.pending, account.pending_bytes);
  EXPECT_EQ(waste.lines.cached(), account.cached());
  if (waste.stream != StreamId::kDefault) return;  // an account judges by that one
  EXPECT_EQ(waste.lines.hard, account.cached_hard_bytes);
  EXPECT_EQ(waste.lines.soft, account.cached_soft_bytes);
  EXPECT_EQ(waste.lines.stream, account.cached_stream_bytes);
  EXPECT_EQ(waste.largest_free, account.largest_cached_bytes);
}

TEST(Waste, AddsUpAtAnyOpOfAnyTraffic) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  for (const char* conf : {"",
                           "expandable_segments:True",
                           "max_split_size_mb:21",
                           "roundup_power2_divisions:4",
                           "expandable_segments:True,roundup_power2_divisions:[4:0,>:2]"}) {
    for (const int streams : {1, 3}) {
      const TrafficOptions traffic{.conf = conf,
                                   .limit_share = 0.5,
                                   .steps = 1500,
                                   .streams = streams,
                                   .hold = streams > 1 ? 0.2 : 0};
      const trace::Trace trace = record_traffic(traffic, static_cast<unsigned>(random())).trace();
      const Program program = compile_with_empty_caches(
          trace, trace.devices[0], {.version = traffic.version, .card_bytes = traffic.card_bytes});
      const ReplayOptions options = as_recorded(program, traffic.card_bytes);
      for (int look = 0; look < 8; ++look) {
        const std::size_t op = random() % program.ops.size();
        SCOPED_TRACE(std::string(conf) + " after op " + std::to_string(op));
        const Waste waste = waste_at(program, options, op);
        EXPECT_EQ(waste.lines.sum(), waste.lines.reserved);
        EXPECT_EQ(waste.op, op);
        expect_account(waste, account_at(program, options, op));
        if (streams == 1) {
          EXPECT_EQ(pinned(waste), waste.lines.hard);
        }
      }
      for (const WasteSample& sample : waste_over_time(program, options, 16)) {
        EXPECT_EQ(sample.lines.sum(), sample.lines.reserved);
        EXPECT_EQ(sample.lines, waste_at(program, options, sample.op).lines);
      }
    }
  }
}

TEST(Waste, AtThePeakOfARecordingIsWhatWasReserved) {
  const trace::Trace trace = trace::testing::trace_of(trace::testing::recording("gnn_sampled"));
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  const ReplayOptions options = as_recorded(program);
  const ReplayResult result = replay(program, options);
  const Waste waste = waste_at(program, options, result.peak_op);
  EXPECT_EQ(waste.lines.reserved, result.peak_reserved);
  EXPECT_EQ(waste.lines.sum(), result.peak_reserved);
  EXPECT_GT(waste.lines.wasted(), 5'000'000'000U);
  EXPECT_GT(waste.pinned_segments, 0U);
  EXPECT_GE(waste.segments, waste.pinned_segments);
}

TEST(Waste, NamesTheSitesThatPin) {
  const trace::Trace trace = trace::testing::small_trace();
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  const ReplayOptions options = as_recorded(program);
  bool has_site = false;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const Waste waste = waste_at(program, options, op);
    EXPECT_EQ(pinned(waste), waste.lines.hard);
    for (const PinningSite& one : waste.pinned_by) {
      has_site = has_site || one.site.starts_with("train.py:");
      EXPECT_GT(one.blocks, 0U);
      EXPECT_GT(one.held_bytes, 0U);
    }
  }
  EXPECT_TRUE(has_site);
}

TEST(Waste, OfNothingIsNothing) {
  const Program program;
  EXPECT_EQ(waste_at(program, {}, 0).lines.sum(), 0U);
  EXPECT_TRUE(waste_over_time(program, {}, 4).empty());
}

}  // namespace
}  // namespace headroom::replay
