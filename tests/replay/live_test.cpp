// What a replay counts as live, and what it reads out of recordings of our own allocators (#21).
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/replay/async_pool_model.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/player.h"
#include "headroom/replay/policy.h"
#include "headroom/trace/record/history.h"

#include "tests/memory/recording.h"
#include "tests/replay/program_of.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using memory::Action;
using memory::testing::RecordedEvent;
using trace::testing::trace_of;

constexpr DeviceAddress kRecordedAt = 0x7f0000000000;

// --- Failures that are served --------------------------------------------------------------------

// 30 MiB are live when 45 MiB fail, 40 MiB later on.
trace::Trace with_a_failure() {
  const std::vector<RecordedEvent> events{
      {Action::kSegmentAlloc, kRecordedAt, 20_MiB},
      {Action::kAlloc, kRecordedAt, 20_MiB},
      {Action::kSegmentAlloc, kRecordedAt + 20_MiB, 20_MiB},
      {Action::kAlloc, kRecordedAt + 20_MiB, 10_MiB},
      {Action::kOutOfMemory, 1_MiB, 45_MiB},
      {Action::kAlloc, kRecordedAt + 30_MiB, 10_MiB},
  };
  return trace_of(events, {}, "");
}

ReplayOptions without_bounds(ReplayOptions options) {
  options.limit_bytes.reset();
  options.outside_bytes = 0;
  return options;
}

TEST(LiveOfAReplay, AFailureThatIsServedIsLiveForItsMoment) {
  const trace::Trace trace = with_a_failure();
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_EQ(program.peak_live, 40_MiB) << "of the recording";
  EXPECT_EQ(program.peak_live_if_served, 75_MiB);
  for (const ReplayOptions& bounded : {as_recorded(program), with_paged(program)}) {
    const ReplayResult served = replay(program, without_bounds(bounded));
    EXPECT_EQ(served.recorded_ooms_served, 1U);
    EXPECT_EQ(served.peak_live, 75_MiB);
    EXPECT_GE(served.peak_reserved, served.peak_live);
  }
  EXPECT_EQ(model_async_pool(program).peak_live, 75_MiB);
  EXPECT_EQ(model_async_pool(program).recorded_ooms_served, 1U);
}

TEST(LiveOfAReplay, AFailureThatFailsAgainIsNotLive) {
  const trace::Trace trace = with_a_failure();
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  for (ReplayOptions options : {as_recorded(program), with_paged(program)}) {
    options.limit_bytes = 64_MiB;
    const ReplayResult result = replay(program, options);
    EXPECT_EQ(result.recorded_ooms_served, 0U);
    EXPECT_EQ(result.peak_live, 40_MiB);
  }
  EXPECT_EQ(model_async_pool(program, 70_MiB).peak_live, 40_MiB);
}

TEST(LiveOfAReplay, ARequestThatFailsHereAloneIsNotLive) {
  const trace::Trace trace = with_a_failure();
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  ReplayOptions options = with_paged(program);
  options.limit_bytes = 34_MiB;
  const ReplayResult result = replay(program, options);
  EXPECT_EQ(result.ooms, 2U);
  EXPECT_EQ(result.peak_live, 30_MiB);
  EXPECT_GE(result.peak_reserved, result.peak_live);
}

class LiveOfRecordings : public ::testing::TestWithParam<std::string> {};

TEST_P(LiveOfRecordings, IsTheSameWhateverThePolicyWhereNothingFailed) {
  const Program& program = program_of(GetParam());
  for (const char* name : {"paged", "pytorch", "pytorch:default", "cudaMallocAsync"}) {
    const ReplayResult result = run_policy(program, parse_policy(name).value()).result;
    const bool serves_all = result.fits && program.failures == 0;
    if (serves_all) {
      EXPECT_EQ(result.peak_live, program.peak_live) << name;
    }
    EXPECT_LE(result.peak_live, program.peak_live_if_served) << name;
    EXPECT_GE(result.peak_reserved, result.peak_live) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kept,
                         LiveOfRecordings,
                         ::testing::ValuesIn(trace::testing::recording_names()),
                         [](const auto& test) { return test.param; });

// --- empty_cache ---------------------------------------------------------------------------------

// Blocks of many sizes under a limit, so that memory has to move or to go back.
trace::Trace record_churn(memory::Allocator& allocator, int empty_caches) {
  trace::History history;
  history.attach(allocator);
  allocator.set_limit(192_MiB);
  std::mt19937 random(7);
  std::vector<DeviceAddress> held;
  for (int i = 0; i < 600; ++i) {
    const std::uint64_t bytes = 1_MiB * (1 + random() % 40);
    while (!held.empty() && (held.size() > 6 || random() % 3 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      allocator.free(held.back());
      held.pop_back();
    }
    const auto block = allocator.try_allocate(bytes);
    if (block) held.push_back(*block);
    if (empty_caches > 0 && i % (600 / empty_caches) == 0) allocator.empty_cache();
  }
  for (const DeviceAddress block : held) allocator.free(block);
  return history.snapshot();
}

std::size_t count_of(const trace::Trace& trace, Action action) {
  const trace::Events& events = trace.devices[0].events;
  std::size_t count = 0;
  for (std::size_t i = 0; i < events.size(); ++i) count += events.action(i) == action ? 1 : 0;
  return count;
}

TEST(EmptyCaches, AreNotReadOutOfUnmappedPages) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  memory::PagedAllocator allocator(*device);
  const trace::Trace trace = record_churn(allocator, 0);
  ASSERT_GT(count_of(trace, Action::kSegmentUnmap), 0U);
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_TRUE(program.is_of_paged);
  EXPECT_EQ(program.empty_caches, 0U);
  EXPECT_EQ(std::ranges::count(program.ops, OpKind::kEmptyCache, &Op::kind), 0);
}

TEST(EmptyCaches, AreReadOutOfWhatPyTorchsDecisionsGaveBack) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  memory::CachingAllocator allocator(*device);
  const trace::Trace trace = record_churn(allocator, 5);
  const Program program = compile_with_empty_caches(trace, trace.devices[0]);
  EXPECT_FALSE(program.is_of_paged);
  EXPECT_GT(program.empty_caches, 0U);
  EXPECT_LE(program.empty_caches, 5U);
}

}  // namespace
}  // namespace headroom::replay
