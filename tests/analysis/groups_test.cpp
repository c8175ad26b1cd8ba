// Sites, sums and histograms.
#include "headroom/analysis/groups.h"

#include <gtest/gtest.h>

#include "headroom/analysis/histograms.h"
#include "headroom/analysis/sites.h"
#include "headroom/base/bytes.h"

#include "tests/trace/samples.h"

namespace headroom::analysis {
namespace {

TEST(Sites, AreTheUsersOwnCode) {
  EXPECT_TRUE(is_user_frame("/home/me/train.py", "step"));
  EXPECT_TRUE(is_user_frame("train.py", "<module>"));
  EXPECT_TRUE(is_user_frame("<stdin>", "<module>"));
  EXPECT_TRUE(is_user_frame("<ipython-input-3-12ab>", "f"));
  EXPECT_TRUE(is_user_frame("/src/app/model.cpp", "Model::forward()"));
  EXPECT_FALSE(is_user_frame("/v/lib/python3.12/site-packages/torch/nn/functional.py", "linear"));
  EXPECT_FALSE(is_user_frame("/usr/lib/python3/dist-packages/numpy/core.py", "f"));
  EXPECT_FALSE(is_user_frame("/opt/python/lib/python3.12/threading.py", "run"));
  EXPECT_FALSE(is_user_frame("<frozen importlib._bootstrap>", "_call"));
  EXPECT_FALSE(is_user_frame("<eval_with_key>.12", "forward"));
  EXPECT_FALSE(is_user_frame("??", "main"));
  EXPECT_FALSE(is_user_frame("", ""));
  EXPECT_FALSE(is_user_frame("/usr/include/c++/12/bits/new_allocator.h", "allocate"));
  EXPECT_FALSE(is_user_frame("/src/headroom/memory/allocator.cpp",
                             "headroom::memory::Allocator::allocate(unsigned long)"));
  EXPECT_FALSE(is_user_frame("/x/any.cpp", "std::vector<int>::push_back(int&&)"));
  EXPECT_FALSE(is_user_frame("/build/aten/src/ATen/native/Linear.cpp", "linear"));
}

TEST(Sites, NameFileLineAndFunction) {
  const Trace trace = trace::testing::small_trace();
  Sites sites(trace);
  EXPECT_EQ(sites.name(sites.site_of(trace.devices[0].events.stack(1))), "train.py:12 build");
  EXPECT_EQ(sites.site_of(0), kNoSite);
  EXPECT_EQ(sites.name(kNoSite), "(no stack)");
}

TEST(Sites, FallBackToTheInnermostFrameWithAName) {
  Trace trace;
  const StringId unknown = trace.strings.intern("??");
  const std::vector<Frame> frames{{.name = unknown, .file = unknown},
                                  {.name = trace.strings.intern("cudnn"), .file = unknown},
                                  {.name = trace.strings.intern("outer"), .file = unknown}};
  const StackId stack = trace.stacks.intern(frames);
  Sites sites(trace);
  EXPECT_EQ(sites.name(sites.site_of(stack)), "cudnn");
}

TEST(GroupBlocks, AddUpToThePeak) {
  const Trace trace = trace::testing::small_trace();
  const TraceIndex index(trace, trace.devices[0]);
  const auto peak = index.allocated_at(index.peaks().allocated.position);
  for (const GroupBy by : {GroupBy::kSite,
                           GroupBy::kStack,
                           GroupBy::kCategory,
                           GroupBy::kAnnotation,
                           GroupBy::kSize}) {
    std::uint64_t bytes = 0;
    for (const Group& group : group_blocks(index, peak, by)) bytes += group.bytes;
    EXPECT_EQ(bytes, index.peaks().allocated.bytes);
  }
  const auto sites = group_blocks(index, peak, GroupBy::kSite);
  ASSERT_EQ(sites.size(), 3U);
  EXPECT_EQ(sites[0].label, "train.py:30 forward");
  EXPECT_EQ(sites[0].bytes, 28_MiB);
  EXPECT_EQ(sites[0].blocks, 2U);
  EXPECT_EQ(sites[0].largest_bytes, 20_MiB);
  EXPECT_EQ(group_blocks(index, peak, GroupBy::kSize)[0].label, "16MiB");
  EXPECT_EQ(group_blocks(index, peak, GroupBy::kAnnotation)[0].label, "(none)");
  EXPECT_EQ(group_blocks(index, peak, GroupBy::kCategory)[0].label, "activation");
}

TEST(SizeHistogram, CountsEveryBlockOnce) {
  const Trace trace = trace::testing::small_trace();
  const TraceIndex index(trace, trace.devices[0]);
  const auto bins = size_histogram(index);
  ASSERT_EQ(bins.size(), 2U);
  EXPECT_EQ(bins[0].low, 8_MiB);
  EXPECT_EQ(bins[0].high, 16_MiB);
  EXPECT_EQ(bins[0].blocks, 3U);
  EXPECT_EQ(bins[1].blocks, 7U);
  EXPECT_EQ(bins[1].bytes, 16_MiB + 3 * 36_MiB);
}

TEST(LifetimeHistogram, TellsShortFromLongAndFromNeverFreed) {
  const Trace trace = trace::testing::small_trace();
  const TraceIndex index(trace, trace.devices[0]);
  const LifetimeHistogram histogram = lifetime_histogram(index);
  EXPECT_EQ(histogram.final.blocks, 1U);
  EXPECT_EQ(histogram.final.bytes, 16_MiB);
  EXPECT_EQ(histogram.initial.blocks, 0U);
  ASSERT_EQ(histogram.by_events.size(), 1U);
  EXPECT_EQ(histogram.by_events[0].low, 1U);
  ASSERT_EQ(histogram.by_time_us.size(), 2U);
  EXPECT_EQ(histogram.by_time_us[0].blocks, 3U);  // 750 us
  EXPECT_EQ(histogram.by_time_us[1].blocks, 6U);
}

TEST(Histograms, TakeOddNumbers) {
  Trace trace;
  Events& events = trace.devices.emplace_back().events;
  events.push_back({.address = 512, .size_bytes = UINT64_MAX, .time_us = INT64_MAX});
  events.push_back(
      {.action = Action::kFreeCompleted, .address = 512, .size_bytes = 0, .time_us = INT64_MIN});
  events.push_back({.address = 1024, .size_bytes = 0});
  const TraceIndex index(trace, trace.devices[0]);
  EXPECT_EQ(size_histogram(index).size(), 65U);
  EXPECT_EQ(lifetime_histogram(index).by_time_us.size(), 1U);
  EXPECT_EQ(lifetime_histogram(index).final.blocks, 1U);
}

}  // namespace
}  // namespace headroom::analysis
