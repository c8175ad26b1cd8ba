// What a recording becomes, be it sound or not.
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/verify.h"

#include "tests/replay/recorder.h"
#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using memory::Action;
using memory::testing::RecordedEvent;
using trace::testing::trace_of;

constexpr DeviceAddress kSegment = 0x7f0000000000;

std::vector<OpKind> kinds(const Program& program) {
  std::vector<OpKind> out;
  for (const Op& op : program.ops) out.push_back(op.kind);
  return out;
}

TEST(Program, NamesBlocksBySlotsThatAreReused) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kSegment, 2_MiB},
      {Action::kAlloc, kSegment, 1000},
      {Action::kAlloc, kSegment + 1024, 600},
      {Action::kFreeRequested, kSegment, 1000},
      {Action::kFreeCompleted, kSegment, 1000},
      {Action::kAlloc, kSegment, 512},
  };
  const trace::Trace trace = trace_of(events, {}, "");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_EQ(kinds(program),
            (std::vector{OpKind::kAllocate, OpKind::kAllocate, OpKind::kFree, OpKind::kAllocate}));
  EXPECT_EQ(program.slot_count, 2U);
  EXPECT_EQ(program.ops[3].slot, program.ops[0].slot);
  EXPECT_EQ(program.allocs, 3U);
  EXPECT_EQ(program.peak_live, 1024U + 1024U);
  EXPECT_EQ(program.peak_live_op, 1U);
  EXPECT_EQ(program.op_events, (std::vector<std::uint32_t>{1, 2, 3, 5}));
  EXPECT_TRUE(program.is_whole());
}

TEST(Program, HoldsWhatAnotherStreamUses) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kSegment, 2_MiB},
      {Action::kAlloc, kSegment, 1000},
      {Action::kFreeRequested, kSegment, 1000},
      {Action::kAlloc, kSegment + 1024, 1000},
      {Action::kFreeCompleted, kSegment, 1000},
      {Action::kAlloc, kSegment, 1000},
  };
  const trace::Trace trace = trace_of(events, {}, "");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_EQ(kinds(program),
            (std::vector{OpKind::kAllocate,
                         OpKind::kFreeHeld,
                         OpKind::kAllocate,
                         OpKind::kComplete,
                         OpKind::kAllocate}));
  EXPECT_EQ(program.peak_live, 2048U) << "live until the free has completed";
  EXPECT_TRUE(verify(program).is_exact());
}

TEST(Program, AFailureIsARequest) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kSegment, 20_MiB},
      {Action::kAlloc, kSegment, 5_MiB},
      {Action::kOutOfMemory, 1_GiB, 40_MiB},
  };
  const trace::Trace trace = trace_of(events, {}, "");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_EQ(program.failures, 1U);
  EXPECT_EQ(program.first_failure_op, 1U);
  EXPECT_EQ(program.limit.reached_bytes, 20_MiB);
  EXPECT_EQ(program.limit.refused_bytes, 60_MiB);
  EXPECT_EQ(program.limit.floor_bytes, 20_MiB) << "1 GiB was free, so a limit came first";
  EXPECT_FALSE(program.limit.was_device_full);

  const ReplayResult as_was = replay(program, as_recorded(program));
  EXPECT_FALSE(as_was.fits);
  ASSERT_TRUE(as_was.first_failure);
  EXPECT_TRUE(as_was.first_failure->was_recorded);

  ReplayOptions roomy = as_recorded(program);
  roomy.limit_bytes = 1_GiB;
  const ReplayResult served = replay(program, roomy);
  EXPECT_TRUE(served.fits);
  EXPECT_EQ(served.recorded_ooms_served, 1U);
  EXPECT_EQ(served.unknown_past_op, 1U);
}

TEST(Program, AFullDeviceIsNoLimit) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kSegment, 20_MiB},
      {Action::kAlloc, kSegment, 5_MiB},
      {Action::kOutOfMemory, 10_MiB, 40_MiB},
  };
  const trace::Trace trace = trace_of(events, {}, "garbage_collection_threshold:0.5");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_TRUE(program.limit.was_device_full);
  EXPECT_EQ(program.limit.floor_bytes, 30_MiB);
  const ReplayOptions options = as_recorded(program, {.card_bytes = 32_MiB});
  EXPECT_FALSE(options.limit_bytes);
  EXPECT_EQ(options.outside_bytes, 2_MiB);
  EXPECT_FALSE(replay(program, options).fits);
  // On a card so much larger it did not run: nothing of that one was in use by others.
  const ReplayOptions larger = as_recorded(program, {.card_bytes = 1_GiB});
  EXPECT_EQ(larger.outside_bytes, 0);
  EXPECT_TRUE(replay(program, larger).fits);
}

TEST(Program, OddEventsAreCountedAndPassedOver) {
  const std::vector<RecordedEvent> events{
      {Action::kFreeRequested, kSegment + 4096, 512},  // of nothing, in a whole history
      {Action::kSegmentAlloc, kSegment, 2_MiB},
      {Action::kAlloc, kSegment, 1000},
      {Action::kAlloc, kSegment, 1000},  // at a live address
      {Action::kFreeCompleted, kSegment + 8192, 512},
      {Action::kFreeRequested, kSegment, 1000},
      {Action::kFreeRequested, kSegment, 1000},  // twice
      {Action::kFreeCompleted, kSegment, 1000},
      {Action::kUserDefined, 0, 0},
      {Action::kUnknown, 7, 7},
      {Action::kAlloc, kSegment, 0},
  };
  const trace::Trace trace = trace_of(events, {}, "");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_GT(program.anomalies.total(), 0U);
  EXPECT_EQ(program.anomalies.allocs_at_live_address, 1U);
  const ReplayResult result = replay(program, as_recorded(program));
  EXPECT_EQ(result.allocs, 3U);
  (void)verify(program);
}

TEST(Program, RefusesPinnedMemory) {
  trace::Trace trace;
  trace.devices.push_back({.is_host = true});
  EXPECT_THROW((void)compile_with_empty_caches(trace, trace.devices[0]), Error);
  EXPECT_TRUE(replayable(trace).empty());
}

TEST(Program, AnEmptyHistoryIsAnEmptyProgram) {
  trace::Trace trace;
  trace.devices.emplace_back();
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_TRUE(program.ops.empty());
  EXPECT_TRUE(replay(program, as_recorded(program)).fits);
  EXPECT_TRUE(verify(program).is_exact());
  EXPECT_EQ(program.time_us_at(0), 0);
}

// Events lost, doubled, moved and changed: any recording can be replayed.
TEST(Program, NoDamageCrashesIt) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    testing::TrafficOptions traffic{
        .limit_share = 0.3, .steps = 300, .streams = 2, .hold = 0.2, .empty_cache = 0.02};
    if (round % 2 == 0) traffic.conf = "expandable_segments:True";
    testing::Recorded recorded = testing::record_traffic(traffic, static_cast<unsigned>(random()));
    auto& events = recorded.events;
    for (int i = 0; i < 20 && events.size() > 2; ++i) {
      const std::size_t at = random() % events.size();
      const auto place = events.begin() + static_cast<std::ptrdiff_t>(at);
      switch (random() % 5) {
        case 0:
          events.erase(place);
          break;
        case 1:
          events.insert(place, RecordedEvent(*place));
          break;
        case 2:
          std::swap(events[at], events[random() % events.size()]);
          break;
        case 3:
          place->address += (random() % 3) * 512;
          break;
        default:
          place->size_bytes = random() % 80_MiB;
      }
    }
    if (round % 3 == 0) recorded.final_segments.clear();
    const trace::Trace trace = recorded.trace(random() % 20);
    const Program program =
        compile_with_empty_caches(trace, trace.devices[0], {.card_bytes = traffic.card_bytes});
    (void)verify(program, {.card_bytes = traffic.card_bytes});
    (void)replay_bounds(program, as_recorded(program, {.card_bytes = traffic.card_bytes}));
  }
}

TEST(Program, FindsTheEmptiedCaches) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kSegment, 20_MiB},
      {Action::kAlloc, kSegment, 5_MiB},
      {Action::kFreeRequested, kSegment, 5_MiB},
      {Action::kFreeCompleted, kSegment, 5_MiB},
      {Action::kSegmentFree, kSegment, 20_MiB},
      {Action::kSegmentAlloc, kSegment, 20_MiB},
      {Action::kAlloc, kSegment, 5_MiB},
      {Action::kFreeRequested, kSegment, 5_MiB},
      {Action::kFreeCompleted, kSegment, 5_MiB},
      {Action::kSegmentFree, kSegment, 20_MiB},
  };
  const trace::Trace trace = trace_of(events, {}, "");
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_EQ(program.empty_caches, 2U);
  EXPECT_EQ(kinds(program),
            (std::vector{OpKind::kAllocate,
                         OpKind::kFree,
                         OpKind::kEmptyCache,
                         OpKind::kAllocate,
                         OpKind::kFree,
                         OpKind::kEmptyCache}));
  const ReplayResult result = replay(program, as_recorded(program));
  EXPECT_EQ(result.calls.device_allocs, 2U);
  EXPECT_EQ(result.calls.device_frees, 2U);
  EXPECT_TRUE(verify(program).is_exact());
}

// #22: recording to program and nothing more; what takes a run is asked for by name.
TEST(Program, CompilingRunsNothing) {
  const std::vector<RecordedEvent> events{{Action::kSegmentAlloc, kSegment, 20_MiB},
                                          {Action::kAlloc, kSegment, 5_MiB},
                                          {Action::kFreeRequested, kSegment, 5_MiB},
                                          {Action::kFreeCompleted, kSegment, 5_MiB},
                                          {Action::kSegmentFree, kSegment, 20_MiB}};
  const trace::Trace trace = trace_of(events, {}, "");
  const Program plain = compile(trace, trace.devices[0]);
  EXPECT_EQ(plain.empty_caches, 0U);
  EXPECT_EQ(kinds(plain), (std::vector{OpKind::kAllocate, OpKind::kFree}));
  const Program inferred = with_inferred_empty_caches(plain);
  EXPECT_EQ(inferred.empty_caches, 1U);
  // They are found once.
  EXPECT_EQ(with_inferred_empty_caches(inferred).ops, inferred.ops);
}

TEST(Program, TheFieldsOfARecordingSayWhichReleaseWroteIt) {
  const std::vector<RecordedEvent> events{{Action::kSegmentAlloc, kSegment, 20_MiB},
                                          {Action::kAlloc, kSegment, 5_MiB}};
  trace::Trace trace = trace_of(events, {}, "");
  EXPECT_FALSE(recorded_version(trace).is_known);
  EXPECT_EQ(recorded_version(trace).version, memory::kPyTorch211);
  trace.has_host = true;
  EXPECT_TRUE(recorded_version(trace).is_known);
  EXPECT_EQ(recorded_version(trace).version, memory::kPyTorch214);
  EXPECT_EQ(compile(trace, trace.devices[0], {.version = memory::kPyTorch210}).version,
            memory::kPyTorch210);
}

}  // namespace
}  // namespace headroom::replay
