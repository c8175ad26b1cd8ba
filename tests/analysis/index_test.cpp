#include "headroom/analysis/index.h"

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::analysis {
namespace {

using memory::BlockState;
using memory::SegmentInfo;
using memory::testing::RecordedEvent;
using trace::testing::trace_of;

constexpr RecordedEvent alloc(DeviceAddress address, std::uint64_t size) {
  return {Action::kAlloc, address, size};
}
constexpr RecordedEvent request(DeviceAddress address, std::uint64_t size) {
  return {Action::kFreeRequested, address, size};
}
constexpr RecordedEvent complete(DeviceAddress address, std::uint64_t size) {
  return {Action::kFreeCompleted, address, size};
}

// What is live at a position, told event by event.
std::vector<std::uint32_t> live_by_walking(const TraceIndex& index, std::uint32_t position) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t id = 0; id < index.lifetimes().size(); ++id) {
    const Lifetime& lifetime = index.lifetimes()[id];
    const bool has_begun = lifetime.is_initial() || lifetime.alloc_event < position;
    const bool has_ended = !lifetime.is_final() && lifetime.end_event < position;
    if (has_begun && !has_ended) out.push_back(id);
  }
  return out;
}

class IndexOf : public ::testing::TestWithParam<std::string> {};

TEST_P(IndexOf, ARecordingHasPyTorchsPeaks) {
  const auto recording = trace::testing::recording(GetParam());
  const auto played = memory::testing::play(recording);
  const Trace trace = trace_of(recording);
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.peaks().allocated.bytes, played.peak_allocated);
  EXPECT_EQ(index.peaks().reserved.bytes, played.peak_reserved);
  EXPECT_LE(index.peaks().live.bytes, index.peaks().active.bytes);
  EXPECT_EQ(index.count(Action::kAlloc), played.allocs);
  EXPECT_EQ(index.anomalies().total(), 0U);
}

TEST_P(IndexOf, ARecordingEndsAsItsFinalState) {
  const Trace trace = trace_of(trace::testing::recording(GetParam()));
  const TraceIndex index(trace, trace.devices[0]);
  Totals end{};
  for (const Segment& segment : trace.segments) {
    end.reserved += segment.size_bytes;
    for (const Block& block : segment.blocks) {
      if (block.state == BlockState::kInactive) continue;
      end.active += block.size_bytes;
      end.live += (*block.requested_bytes + 511) / 512 * 512;
      if (block.state == BlockState::kAllocated) end.allocated += block.size_bytes;
    }
  }
  TotalsCursor at(index);
  while (!at.is_at_end()) at.step();
  EXPECT_EQ(at.totals(), end);
}

TEST_P(IndexOf, ARecordingKnowsWhatWasLive) {
  const Trace trace = trace_of(trace::testing::recording(GetParam()));
  const TraceIndex index(trace, trace.devices[0]);
  const std::uint32_t end = index.end_position();
  for (const std::uint32_t position : {0U, 1U, end / 7, end / 3, end / 2, end - 1, end}) {
    EXPECT_EQ(index.live_at(position), live_by_walking(index, position)) << position;
  }
  std::uint64_t bytes = 0;
  for (const std::uint32_t id : index.live_at(index.peaks().active.position)) {
    bytes += index.lifetimes()[id].block_bytes;
  }
  EXPECT_EQ(bytes, index.peaks().active.bytes);
}

INSTANTIATE_TEST_SUITE_P(Recordings,
                         IndexOf,
                         ::testing::ValuesIn(trace::testing::recording_names()),
                         [](const auto& each) { return each.param; });

TEST(TraceIndex, AnAddressUsedTwiceIsTwoBlocks) {
  const std::vector<RecordedEvent> events{
      alloc(512, 100), request(512, 100), complete(512, 100), alloc(512, 900), request(512, 900)};
  const Trace trace = trace_of(events, {}, "");
  const TraceIndex index(trace, trace.devices[0]);
  ASSERT_EQ(index.lifetimes().size(), 2U);
  EXPECT_EQ(index.lifetimes()[0].end_event, 2U);
  EXPECT_EQ(index.lifetimes()[1].free_event, 4U);
  EXPECT_TRUE(index.lifetimes()[1].is_final());
  EXPECT_EQ(index.lifetime_of(3), 1U);
  EXPECT_EQ(index.live_at(1), std::vector<std::uint32_t>{0});
  EXPECT_EQ(index.live_at(3), std::vector<std::uint32_t>{});
  EXPECT_EQ(index.live_at(5), std::vector<std::uint32_t>{1});
  EXPECT_EQ(index.peaks().allocated.bytes, 1024U);
  EXPECT_EQ(index.peaks().allocated.position, 4U);
}

TEST(TraceIndex, ABlockThatAnotherStreamHoldsIsActiveButNotAllocated) {
  const std::vector<RecordedEvent> events{
      alloc(512, 512), request(512, 512), alloc(4096, 512), complete(512, 512)};
  const Trace trace = trace_of(events, {}, "");
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.peaks().allocated.bytes, 512U);
  EXPECT_EQ(index.peaks().active.bytes, 1024U);
  EXPECT_EQ(index.peaks().live.bytes, 1024U);
}

TEST(TraceIndex, ARestUpToAMebibyteBelongsToTheBlock) {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, 0, 20_MiB}, alloc(0, 5_MiB), alloc(5_MiB, 14_MiB)};
  const Trace trace = trace_of(events, {}, "");
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.lifetimes()[0].block_bytes, 5_MiB);
  EXPECT_EQ(index.lifetimes()[1].block_bytes, 15_MiB);
  const Trace expandable = trace_of(events, {}, "expandable_segments:True");
  EXPECT_EQ(TraceIndex(expandable, expandable.devices[0]).lifetimes()[1].block_bytes, 14_MiB);
}

TEST(TraceIndex, CountsWhatDoesNotFitTogether) {
  const std::vector<RecordedEvent> events{
      alloc(512, 1), alloc(512, 2), complete(512, 2), complete(1024, 9), request(1024, 9)};
  const std::vector<SegmentInfo> end{
      {.address = 8192, .size_bytes = 512, .blocks = {{.address = 8192, .size_bytes = 512}}}};
  const Trace trace = trace_of(events, end, "");
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.anomalies().allocs_at_live_address, 1U);
  EXPECT_EQ(index.anomalies().frees_of_nothing, 1U);
  TotalsCursor at(index);
  while (!at.is_at_end()) at.step();
  EXPECT_EQ(at.totals().live, 0U);
}

TEST(TraceIndex, WhereCompletionsAreNotRecordedTheRequestIsTheEnd) {
  const std::vector<RecordedEvent> events{
      alloc(512, 1), request(512, 1), alloc(512, 2), request(512, 2)};
  const std::vector<SegmentInfo> end{
      {.address = 512, .size_bytes = 512, .blocks = {{.address = 512, .size_bytes = 512}}}};
  const Trace trace = trace_of(events, end, "");
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.peaks().active.bytes, 512U);
  EXPECT_EQ(index.lifetimes()[1].end_event, 3U);
  EXPECT_TRUE(index.live_at(4).empty());
}

TEST(TraceIndex, OfNothingIsEmpty) {
  Trace trace;
  trace.devices.emplace_back();
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_TRUE(index.live_at(0).empty());
  EXPECT_EQ(index.peaks().reserved.bytes, 0U);
  EXPECT_EQ(index.time_us_at(0), 0);
  EXPECT_EQ(index.position_at(7), 0U);
}

TEST(TraceIndex, FindsAMoment) {
  const Trace trace = trace_of(std::vector{alloc(512, 1), alloc(1024, 1), alloc(2048, 1)}, {}, "");
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(index.position_at(999'999), 0U);
  EXPECT_EQ(index.position_at(1'000'000), 1U);
  EXPECT_EQ(index.position_at(2'000'000), 3U);
  EXPECT_EQ(index.time_us_at(3), 1'000'002);
}

// Recordings of which actions were left out, or that are nonsense: whatever the events say, totals
// and what is live agree.
TEST(TraceIndex, AgreesWithItselfOnAnyEvents) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<RecordedEvent> events;
    for (int i = 0; i < 120; ++i) {
      const std::uint64_t size = random() % 8 == 0 ? random() : random() % 30_MiB;
      events.push_back({static_cast<Action>(random() % memory::kActionCount),
                        random() % 64 == 0 ? random() : (random() % 12) * 2_MiB,
                        size});
    }
    std::vector<SegmentInfo> end;
    for (DeviceAddress at = 0; at < 24_MiB && round % 2 == 0; at += 4_MiB) {
      const bool is_held = random() % 2 == 0;
      end.push_back(
          {.address = at,
           .size_bytes = 4_MiB,
           .is_small = random() % 2 == 0,
           .is_expandable = random() % 3 == 0,
           .blocks = {{.address = at,
                       .size_bytes = random() % 16 == 0 ? random() : 2_MiB,
                       .requested_bytes = 1_MiB,
                       .state = is_held ? BlockState::kAllocated : BlockState::kPendingFree}}});
    }
    const Trace trace = trace_of(events, end, round % 3 == 0 ? "max_split_size_mb:20" : "");
    const TraceIndex index(trace, trace.devices[0]);
    for (TotalsCursor at(index);; at.step()) {
      const auto live = index.live_at(at.position());
      ASSERT_EQ(live, live_by_walking(index, at.position()));
      std::uint64_t live_bytes = 0;
      std::uint64_t active = 0;
      std::uint64_t allocated = 0;
      for (const std::uint32_t id : live) {
        live_bytes += index.lifetimes()[id].live_bytes();
        active += index.lifetimes()[id].block_bytes;
      }
      for (const std::uint32_t id : index.allocated_at(at.position())) {
        allocated += index.lifetimes()[id].block_bytes;
      }
      ASSERT_EQ(at.totals().live, live_bytes) << "round " << round << " at " << at.position();
      ASSERT_EQ(at.totals().active, active) << "round " << round << " at " << at.position();
      ASSERT_EQ(at.totals().allocated, allocated) << "round " << round << " at " << at.position();
      if (at.is_at_end()) break;
    }
  }
}

TEST(TraceIndex, IsMadeQuickly) {
  const Trace trace = trace_of(trace::testing::recording("llama_serve"));
  const auto before = std::chrono::steady_clock::now();
  const TraceIndex index(trace, trace.devices[0]);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - before;
  RecordProperty("milliseconds", std::to_string(taken.count() * 1e3));
  EXPECT_EQ(index.count(Action::kAlloc), 180'710U);
}

}  // namespace
}  // namespace headroom::analysis
