// The state before a recording begins, against the allocator's own state at that moment.
#include "headroom/analysis/start_state.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "tests/support/seed.h"
#include "tests/trace/samples.h"

namespace headroom::analysis {
namespace {

using memory::BlockInfo;
using memory::BlockState;
using memory::SegmentInfo;
using memory::testing::RecordedEvent;
using memory::testing::Recording;
using trace::testing::trace_of;

// Up to 1 MiB behind a block belongs to it or to the cached block behind it; where nothing ever
// stood there, no event tells which. Such a rest is counted here and given to the cached block.
int hide_tails(std::vector<BlockInfo>& truth, const std::vector<BlockInfo>& derived) {
  int hidden = 0;
  for (std::size_t i = 0; i + 1 < std::min(truth.size(), derived.size()); ++i) {
    BlockInfo& block = truth[i];
    BlockInfo& behind = truth[i + 1];
    const std::uint64_t tail = block.size_bytes - derived[i].size_bytes;
    const bool is_hidden = block.state != BlockState::kInactive &&
                           behind.state == BlockState::kInactive && tail > 0 && tail <= 1_MiB;
    if (!is_hidden) continue;
    block.size_bytes -= tail;
    behind.address -= tail;
    behind.size_bytes += tail;
    ++hidden;
  }
  return hidden;
}

std::string text_of(const std::vector<BlockInfo>& blocks) {
  std::string out;
  for (const BlockInfo& block : blocks) {
    const bool is_live = block.state != BlockState::kInactive;
    out += std::to_string(block.address) + "+" + std::to_string(block.size_bytes) + " " +
           std::to_string(static_cast<int>(block.state)) + " " +
           std::to_string(is_live ? block.requested_bytes : 0) + "\n";
  }
  return out;
}

// Returns how many tails were hidden.
int expect_same(std::vector<SegmentInfo> truth, const std::vector<SegmentInfo>& derived) {
  std::ranges::sort(truth, {}, &SegmentInfo::address);
  EXPECT_EQ(truth.size(), derived.size());
  int hidden = 0;
  for (std::size_t i = 0; i < std::min(truth.size(), derived.size()); ++i) {
    EXPECT_EQ(truth[i].address, derived[i].address);
    EXPECT_EQ(truth[i].size_bytes, derived[i].size_bytes);
    EXPECT_EQ(truth[i].stream, derived[i].stream);
    EXPECT_EQ(truth[i].is_small, derived[i].is_small) << derived[i].size_bytes;
    EXPECT_EQ(truth[i].is_expandable, derived[i].is_expandable);
    if (!derived[i].is_small && !derived[i].is_expandable) {
      hidden += hide_tails(truth[i].blocks, derived[i].blocks);
    }
    EXPECT_EQ(text_of(truth[i].blocks), text_of(derived[i].blocks));
    if (::testing::Test::HasFailure()) break;
  }
  return hidden;
}

// A moment between two calls: behind an alloc, or behind a free that completed at once.
std::size_t call_boundary(const Recording& recording, std::size_t near) {
  for (std::size_t i = near; i > 1; --i) {
    const RecordedEvent& last = recording.events[i - 1];
    const RecordedEvent& before = recording.events[i - 2];
    if (last.action == Action::kAlloc) return i;
    if (last.action == Action::kFreeCompleted && before.action == Action::kFreeRequested &&
        last.address == before.address) {
      return i;
    }
  }
  return 0;
}

class StartStateOf : public ::testing::TestWithParam<std::string> {};

TEST_P(StartStateOf, ACutRecordingIsWhatTheAllocatorHadThere) {
  const Recording whole = trace::testing::recording(GetParam());
  if (!start_state(trace_of(whole), trace_of(whole).devices[0]).is_empty()) {
    GTEST_SKIP() << "is cut already";
  }
  for (const double part : {0.1, 0.37, 0.62, 0.9}) {
    const std::size_t cut = call_boundary(
        whole, static_cast<std::size_t>(part * static_cast<double>(whole.events.size())));
    Recording before = whole;
    before.events.resize(cut);
    before.final_segments.clear();
    const auto truth = memory::testing::play(before);
    const Trace rest = trace_of(whole, cut);
    const StartState derived = start_state(rest, rest.devices[0]);
    EXPECT_EQ(derived.contradictions, 0U);
    const int hidden = expect_same(truth.end_segments, derived.segments);
    EXPECT_LE(hidden, 3) << "at " << cut;
    if (HasFailure()) break;
  }
}

TEST_P(StartStateOf, AWholeRecordingIsNothing) {
  const Trace trace = trace_of(trace::testing::recording(GetParam()));
  const StartState state = start_state(trace, trace.devices[0]);
  EXPECT_EQ(state.is_empty(), GetParam() != "gpt2_partial");
  EXPECT_EQ(state.contradictions, 0U);
  EXPECT_TRUE(state.has_final_state);
}

INSTANTIATE_TEST_SUITE_P(Recordings,
                         StartStateOf,
                         ::testing::ValuesIn(trace::testing::recording_names()),
                         [](const auto& each) { return each.param; });

// gpt2_partial is gpt2_varlen of another run with a ring: the sizes are the same, so the state at
// its start is what the whole history has there.
TEST(StartState, OfAWrappedRingHasTheBytesOfTheWholeHistory) {
  const Recording partial = trace::testing::recording("gpt2_partial");
  const Recording whole = trace::testing::recording("gpt2_varlen");
  Recording before = whole;
  before.events.resize(whole.events.size() - partial.events.size());
  before.final_segments.clear();
  const auto truth = memory::testing::play(before).end_segments;
  const Trace trace = trace_of(partial);
  const StartState derived = start_state(trace, trace.devices[0]);
  ASSERT_EQ(truth.size(), derived.segments.size());
  std::uint64_t reserved = 0;
  std::uint64_t requested = 0;
  std::size_t blocks = 0;
  for (const SegmentInfo& segment : truth) {
    reserved += segment.size_bytes;
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::kInactive) continue;
      requested += block.requested_bytes;
      ++blocks;
    }
  }
  EXPECT_EQ(derived.reserved_bytes, reserved);
  EXPECT_EQ(derived.live.size(), blocks);
  std::uint64_t derived_requested = 0;
  for (const StartBlock& block : derived.live) derived_requested += block.requested_bytes;
  EXPECT_EQ(derived_requested, requested);
}

class Collector final : public memory::EventSink {
 public:
  void record(const memory::Event& event) noexcept override {
    events.push_back({event.action, event.address, event.size_bytes, event.stream});
  }
  std::vector<RecordedEvent> events;
};

// A program that allocates and frees at random, with pauses in which it looks at the state.
struct Program {
  Collector sink{};
  std::vector<std::size_t> moments{};
  std::vector<std::vector<SegmentInfo>> truths{};
  std::vector<SegmentInfo> end{};

  void run(const std::string& settings, std::uint64_t seed) {
    const auto device = device::MetaDevice::create({.capacity_bytes = 4_GiB});
    memory::CachingAllocator allocator(*device,
                                       {.config = memory::parse_config(settings).value().config});
    allocator.add_sink(sink);
    std::mt19937_64 random(seed);
    std::vector<DeviceAddress> held;
    for (int step = 0; step < 3000; ++step) {
      const bool frees = !held.empty() && (held.size() > 60 || random() % 2 == 0);
      if (frees) {
        std::swap(held[random() % held.size()], held.back());
        allocator.free(held.back());
        held.pop_back();
      } else if (const auto block = allocator.try_allocate(size(random), {})) {
        held.push_back(*block);
      }
      if (random() % 500 == 0) allocator.empty_cache();
      if (random() % 100 != 0) continue;
      moments.push_back(sink.events.size());
      truths.push_back(allocator.segments());
    }
    end = allocator.segments();
    allocator.remove_sink(sink);
    for (const DeviceAddress address : held) allocator.free(address);
  }

  static std::uint64_t size(std::mt19937_64& random) {
    const std::uint64_t scale = std::uint64_t{1} << (8 + random() % 18);
    return 1 + random() % scale;
  }
};

TEST(StartState, IsTheTruthUnderAnySettings) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  for (const char* settings : {"",
                               "max_split_size_mb:20",
                               "max_split_size_mb:32,max_non_split_rounding_mb:24",
                               "roundup_power2_divisions:4",
                               "expandable_segments:True"}) {
    SCOPED_TRACE(settings);
    Program program;
    program.run(settings, seed);
    for (std::size_t i = 0; i < program.moments.size() && !HasFailure(); ++i) {
      const auto rest = std::span(program.sink.events).subspan(program.moments[i]);
      const Trace trace = trace_of(rest, program.end, settings);
      const StartState derived = start_state(trace, trace.devices[0]);
      EXPECT_EQ(derived.contradictions, 0U);
      expect_same(program.truths[i], derived.segments);
    }
  }
}

TEST(StartState, WithoutAFinalStateIsWhatWasFreed) {
  const std::vector<RecordedEvent> events{{Action::kAlloc, 4096, 100},
                                          {Action::kFreeRequested, 512, 700},
                                          {Action::kFreeCompleted, 512, 700}};
  const Trace trace = trace_of(events, {}, "");
  const StartState state = start_state(trace, trace.devices[0]);
  EXPECT_FALSE(state.has_final_state);
  EXPECT_EQ(state.contradictions, 0U);
  ASSERT_EQ(state.live.size(), 1U);
  EXPECT_EQ(state.live[0].address, 512U);
  EXPECT_EQ(state.live[0].size_bytes, 1024U);
  EXPECT_TRUE(state.segments.empty());
}

TEST(StartState, ABlockFreedBeforeAndCompletedAfterIsPending) {
  const std::vector<RecordedEvent> events{{Action::kFreeCompleted, 512, 700}};
  const Trace trace = trace_of(events, {}, "");
  EXPECT_TRUE(start_state(trace, trace.devices[0]).live.at(0).is_pending);
}

TEST(StartState, CountsWhatCannotHaveHappened) {
  const std::vector<RecordedEvent> events{{Action::kFreeCompleted, 512, 700},
                                          {Action::kFreeCompleted, 512, 700},
                                          {Action::kAlloc, 8192, 7},
                                          {Action::kSegmentAlloc, 1_MiB, 2_MiB},
                                          {Action::kSegmentMap, 64_MiB, UINT64_MAX}};
  const std::vector<SegmentInfo> end{
      {.address = 0,
       .size_bytes = 4096,
       .blocks = {{.address = 0, .size_bytes = UINT64_MAX, .state = BlockState::kAllocated}}}};
  const Trace trace = trace_of(events, end, "nonsense");
  EXPECT_EQ(start_state(trace, trace.devices[0]).contradictions, 5U);
}

}  // namespace
}  // namespace headroom::analysis
