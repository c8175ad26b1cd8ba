// PyTorch's decisions at their boundaries, for every backend.
#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"

#include "tests/memory/allocator_backends.h"
#include "tests/support/device_status.h"

namespace headroom::memory::testing {
namespace {

using device::Call;
using headroom::testing::worked;

template <class Backend>
class Decisions : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(Decisions, AllocatorBackends, BackendNames);

// --- Rounding, segments and splits ---------------------------------------------------------------

TYPED_TEST(Decisions, SizesChooseTheirSegment) {
  struct Case {
    const char* settings;
    std::uint64_t asked;
    std::uint64_t block;
    std::uint64_t segment;
  };
  for (const Case& c : {Case{"", 1, 512, 2_MiB},
                        Case{"", 513, 1024, 2_MiB},
                        Case{"", 1_MiB, 1_MiB, 2_MiB},
                        Case{"", 1_MiB + 1, 1_MiB + 512, 20_MiB},
                        Case{"", 10_MiB - 512, 10_MiB - 512, 20_MiB},
                        Case{"", 10_MiB - 511, 10_MiB, 10_MiB},
                        Case{"", 10_MiB, 10_MiB, 10_MiB},
                        // Up to 1 MiB behind a block is not split off.
                        Case{"", 11_MiB, 12_MiB, 12_MiB},
                        Case{"", 11_MiB - 512, 11_MiB - 512, 12_MiB},
                        Case{"roundup_power2_divisions:4", 1200, 1536, 2_MiB},
                        Case{"roundup_power2_divisions:4", 1_MiB + 1, 1310720, 20_MiB},
                        Case{"roundup_power2_divisions:4", 5_MiB + 1, 6_MiB, 20_MiB},
                        Case{"roundup_power2_divisions:4", 100_MiB + 1, 112_MiB, 112_MiB},
                        Case{"large_segment_size_mb:32", 2_MiB, 2_MiB, 32_MiB}}) {
    CachingAllocator& allocator = this->start(c.settings);
    const DeviceAddress block = allocator.allocate(c.asked);
    EXPECT_EQ(this->size_of(block), c.block) << c.settings << " " << c.asked;
    EXPECT_EQ(this->reserved(), c.segment) << c.settings << " " << c.asked;
    EXPECT_EQ(this->allocated(), c.block) << c.settings << " " << c.asked;
  }
}

TYPED_TEST(Decisions, ALargeRemainderIsSplitOffAbove1MiB) {
  CachingAllocator& allocator = this->allocator();
  const DeviceAddress whole = allocator.allocate(12_MiB);
  allocator.free(whole);
  EXPECT_EQ(allocator.allocate(11_MiB), whole);
  EXPECT_EQ(this->size_of(whole), 12_MiB) << "exactly 1 MiB stays with the block";
  EXPECT_EQ(allocator.statistics().inactive_split.all.current, 0);
  allocator.free(whole);
  EXPECT_EQ(allocator.allocate(11_MiB - 512), whole);
  EXPECT_EQ(this->size_of(whole), 11_MiB - 512) << "1 MiB + 512 does not";
  EXPECT_EQ(allocator.statistics().inactive_split_bytes.all.current, 1_MiB + 512);
}

TYPED_TEST(Decisions, ASmallRemainderOf512IsSplitOff) {
  CachingAllocator& allocator = this->allocator();
  const DeviceAddress first = allocator.allocate(1_MiB);
  const DeviceAddress second = allocator.allocate(1_MiB - 512);
  EXPECT_EQ(second, first + 1_MiB);
  EXPECT_EQ(this->size_of(second), 1_MiB - 512);
  EXPECT_EQ(allocator.allocate(1), first + 2_MiB - 512);
  EXPECT_EQ(this->reserved(), 2_MiB);
}

TYPED_TEST(Decisions, TheSmallestBlockThatFitsIsTaken) {
  CachingAllocator& allocator = this->allocator();
  const DeviceAddress large = allocator.allocate(40_MiB);
  const DeviceAddress fitting = allocator.allocate(14_MiB);
  const DeviceAddress too_small = allocator.allocate(12_MiB);
  for (const DeviceAddress block : {large, fitting, too_small}) allocator.free(block);
  EXPECT_EQ(allocator.allocate(13_MiB), fitting);
}

// From 2.13 on the oldest segment wins, before that the lowest address.
TYPED_TEST(Decisions, TiesBetweenSegmentsAreBrokenByVersion) {
  for (const PyTorchVersion version : {kPyTorch29, kPyTorch211, kPyTorch213, kPyTorch215}) {
    CachingAllocator& allocator = this->start("", version);
    std::vector<DeviceAddress> segments;
    for (int i = 0; i < 4; ++i) segments.push_back(allocator.allocate(12_MiB));
    for (const std::size_t i : {2U, 0U, 3U, 1U}) allocator.free(segments[i]);
    if (version < kPyTorch213) std::ranges::sort(segments);
    for (const DeviceAddress expected : segments) {
      EXPECT_EQ(allocator.allocate(12_MiB), expected) << "2." << version.minor;
    }
  }
}

// --- Streams -------------------------------------------------------------------------------------

TYPED_TEST(Decisions, TwoStreamsNeverShare) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress block = allocator.allocate(12_MiB);
  allocator.free(block);
  EXPECT_NE(allocator.allocate(12_MiB, side), block);
  EXPECT_EQ(this->reserved(), 24_MiB);
  EXPECT_EQ(allocator.allocate(12_MiB), block);
}

TYPED_TEST(Decisions, ARecordedStreamDelaysReuseUntilTheNextMallocAfterItsEvent) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress block = allocator.allocate(12_MiB);
  typename TypeParam::Hold hold(this->device(), side);
  ASSERT_TRUE(worked(allocator.record_stream(block, side)));
  allocator.free(block);
  const DeviceAddress other = allocator.allocate(12_MiB);
  EXPECT_NE(other, block);
  hold.let_go();
  allocator.free(other);
  EXPECT_EQ(this->active(), 12_MiB) << "a free looks at no events";
  EXPECT_EQ(allocator.allocate(12_MiB), block) << "the older segment";
  EXPECT_EQ(this->active(), 12_MiB);
}

TYPED_TEST(Decisions, RecordingItsOwnStreamOrTheSameTwiceChangesNothing) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress own = allocator.allocate(512, side);
  ASSERT_TRUE(worked(allocator.record_stream(own, side)));
  allocator.free(own);
  EXPECT_EQ(this->active(), 0U);
  const DeviceAddress twice = allocator.allocate(512);
  const std::uint64_t events = this->device().calls(Call::kRecordEvent);
  ASSERT_TRUE(worked(allocator.record_stream(twice, side)));
  ASSERT_TRUE(worked(allocator.record_stream(twice, side)));
  EXPECT_EQ(this->device().calls(Call::kRecordEvent), events) << "only the free records";
  allocator.free(twice);
  EXPECT_EQ(this->device().calls(Call::kRecordEvent), events + 1);
  allocator.empty_cache();
  EXPECT_EQ(this->active(), 0U);
}

// https://github.com/pytorch/pytorch/issues/189504: the flush completes a fitting free, and the
// request fails all the same.
TYPED_TEST(Decisions, TheFlushDoesNotSearchThePoolAgain) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  allocator.set_limit(20_MiB);
  const DeviceAddress first = allocator.allocate(2_MiB);
  const DeviceAddress fitting = allocator.allocate(8_MiB);
  const DeviceAddress last = allocator.allocate(9_MiB);
  ASSERT_EQ(this->size_of(last), 10_MiB);
  typename TypeParam::Hold hold(this->device(), side);
  ASSERT_TRUE(worked(allocator.record_stream(fitting, side)));
  allocator.free(fitting);

  const std::uint64_t waits = this->device().calls(Call::kSynchronizeEvent);
  std::jthread opener([&] {  // the flush waits for the stream
    while (this->device().calls(Call::kSynchronizeEvent) == waits) std::this_thread::yield();
    hold.let_go();
  });
  EXPECT_FALSE(allocator.try_allocate(8_MiB).has_value());
  opener.join();
  EXPECT_EQ(this->active(), 12_MiB) << "the free is complete";
  EXPECT_EQ(allocator.statistics().num_sync_all_streams, 1);
  EXPECT_EQ(allocator.allocate(8_MiB), fitting);
  allocator.free(first);
}

// --- max_split_size ------------------------------------------------------------------------------

TYPED_TEST(Decisions, AnOversizeBlockServesNoNormalRequest) {
  CachingAllocator& allocator = this->start("max_split_size_mb:40");
  const DeviceAddress oversize = allocator.allocate(40_MiB);
  allocator.free(oversize);
  const DeviceAddress normal = allocator.allocate(38_MiB);
  EXPECT_NE(normal, oversize) << "a block of exactly the size is oversize";
  allocator.free(normal);
  EXPECT_EQ(allocator.allocate(30_MiB), normal);
  EXPECT_EQ(this->size_of(normal), 30_MiB) << "below it, blocks are split as ever";
  EXPECT_EQ(this->reserved(), 78_MiB);
  EXPECT_EQ(allocator.statistics().oversize_segments.current, 1);
  EXPECT_EQ(allocator.statistics().max_split_size, static_cast<std::int64_t>(40_MiB));
}

TYPED_TEST(Decisions, AnOversizeRequestTakesNoBlockThatIsTooLargeForIt) {
  CachingAllocator& allocator = this->start("max_split_size_mb:40");
  const DeviceAddress block = allocator.allocate(60_MiB);
  allocator.free(block);
  const DeviceAddress other = allocator.allocate(40_MiB);
  EXPECT_NE(other, block) << "60 MiB is 40 MiB and the rounding of 20 MiB";
  EXPECT_EQ(allocator.allocate(40_MiB + 512), block);
  EXPECT_EQ(this->size_of(block), 60_MiB) << "oversize blocks are not split";
  EXPECT_EQ(allocator.statistics().oversize_allocations.current, 2);
}

TYPED_TEST(Decisions, OversizeBlocksAreReleasedForARequestBeforeEverythingIs) {
  CachingAllocator& allocator = this->start("max_split_size_mb:40");
  allocator.set_limit(130_MiB);
  const DeviceAddress one = allocator.allocate(40_MiB);
  const DeviceAddress two = allocator.allocate(40_MiB);
  const DeviceAddress normal = allocator.allocate(12_MiB);
  for (const DeviceAddress block : {one, two, normal}) allocator.free(block);
  (void)allocator.allocate(80_MiB);
  EXPECT_EQ(this->reserved(), 92_MiB) << "both oversize blocks went, the normal one stayed";
  EXPECT_EQ(allocator.statistics().num_sync_all_streams, 0);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 0);
}

TYPED_TEST(Decisions, TheSmallestOversizeBlockThatIsLargeEnoughGoesAlone) {
  CachingAllocator& allocator = this->start("max_split_size_mb:40");
  allocator.set_limit(250_MiB);
  const DeviceAddress huge = allocator.allocate(120_MiB);
  const DeviceAddress fitting = allocator.allocate(90_MiB);
  allocator.free(huge);
  allocator.free(fitting);
  (void)allocator.allocate(60_MiB);  // 90 MiB is more than 20 MiB too large for it
  EXPECT_EQ(this->reserved(), 180_MiB);
  EXPECT_EQ(allocator.statistics().num_sync_all_streams, 0);
}

// --- Garbage collection --------------------------------------------------------------------------

TYPED_TEST(Decisions, GarbageOfEqualAgeGoesAllTogether) {
  CachingAllocator& allocator = this->start("garbage_collection_threshold:0.5");
  allocator.set_limit(100_MiB);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(20_MiB));
  for (const DeviceAddress block : blocks) allocator.free(block);
  (void)allocator.allocate(30_MiB);
  EXPECT_EQ(this->reserved(), 30_MiB) << "10 MiB were to go, but all are as old as the average";
}

TYPED_TEST(Decisions, OnlyGarbageOlderThanTheAverageGoesWhenThatIsEnough) {
  CachingAllocator& allocator = this->start("garbage_collection_threshold:0.5");
  allocator.set_limit(200_MiB);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(30_MiB));
  allocator.free(blocks[0]);
  (void)allocator.allocate(4_MiB, this->new_stream());  // time passes for the large pool
  allocator.free(blocks[1]);
  allocator.free(blocks[2]);
  (void)allocator.allocate(40_MiB);
  EXPECT_EQ(this->reserved(), (3 * 30 - 30 + 20) * 1_MiB + 40_MiB);
  EXPECT_EQ(allocator.allocate(30_MiB), blocks[1]);
}

TYPED_TEST(Decisions, WithoutALimitNothingIsCollected) {
  CachingAllocator& allocator = this->start("garbage_collection_threshold:0.01");
  allocator.free(allocator.allocate(100_MiB));
  (void)allocator.allocate(200_MiB);
  EXPECT_EQ(this->reserved(), 300_MiB);
}

// --- Expandable segments -------------------------------------------------------------------------

TYPED_TEST(Decisions, AnExpandableTailGrows) {
  CachingAllocator& allocator = this->start("expandable_segments:True");
  const DeviceAddress first = allocator.allocate(30_MiB);
  EXPECT_EQ(this->reserved(), 40_MiB);
  const DeviceAddress second = allocator.allocate(25_MiB);
  EXPECT_EQ(second, first + 30_MiB);
  EXPECT_EQ(this->reserved(), 60_MiB);
  EXPECT_EQ(allocator.allocate(5_MiB), first + 55_MiB);
  EXPECT_EQ(this->reserved(), 60_MiB);
  EXPECT_EQ(allocator.statistics().segment.all.current, 0) << "mapped pages are no segments";
  EXPECT_EQ(allocator.statistics().inactive_split.all.current, 0);
  ASSERT_EQ(allocator.segments().size(), 1U);
  EXPECT_TRUE(allocator.segments()[0].is_expandable);
}

TYPED_TEST(Decisions, AHoleIsPreferredToTheTailThatCanGrow) {
  CachingAllocator& allocator = this->start("expandable_segments:True");
  (void)allocator.allocate(4_MiB);
  const DeviceAddress hole = allocator.allocate(6_MiB);
  (void)allocator.allocate(5_MiB);
  allocator.free(hole);
  EXPECT_EQ(allocator.allocate(5_MiB), hole) << "although the tail of 5 MiB fits better";
  EXPECT_EQ(this->size_of(hole), 5_MiB);
}

TYPED_TEST(Decisions, UnmappingLeavesPartsOfPages) {
  CachingAllocator& allocator = this->start("expandable_segments:True");
  const DeviceAddress first = allocator.allocate(4_MiB);
  const DeviceAddress second = allocator.allocate(50_MiB);
  EXPECT_EQ(this->reserved(), 60_MiB);
  allocator.free(second);
  EXPECT_EQ(allocator.empty_cache(), 40_MiB);
  EXPECT_EQ(this->reserved(), 20_MiB);
  EXPECT_EQ(allocator.allocate(16_MiB), first + 4_MiB);
  EXPECT_EQ(this->reserved(), 20_MiB);
  EXPECT_EQ(allocator.allocate(1_MiB + 1), first + 20_MiB) << "the addresses stayed";
}

TYPED_TEST(Decisions, ExpandableBlocksServeOnlyWhileTheSettingIsOn) {
  CachingAllocator& allocator = this->start("expandable_segments:True");
  const DeviceAddress expandable = allocator.allocate(16_MiB);
  allocator.free(expandable);
  allocator.configure("expandable_segments:False");
  const DeviceAddress plain = allocator.allocate(16_MiB);
  EXPECT_NE(plain, expandable);
  EXPECT_EQ(this->reserved(), 36_MiB);
  allocator.free(plain);
  EXPECT_EQ(allocator.allocate(16_MiB), plain);
  allocator.configure("expandable_segments:True");
  EXPECT_EQ(allocator.allocate(16_MiB), expandable);
}

// A request that a fresh segment's pages do not fit leaves its addresses behind, as in PyTorch; an
// empty_cache gives them back, and so does the end of the allocator.
TYPED_TEST(Decisions, AddressesOfAnEmptyExpandableSegmentGoBackWithTheCache) {
  CachingAllocator& allocator = this->start("expandable_segments:True");
  const std::uint64_t total = this->device().properties().total_bytes;
  EXPECT_FALSE(allocator.try_allocate(total).has_value());  // not a multiple of the page
  const std::uint64_t released = this->device().calls(Call::kReleaseAddresses);
  EXPECT_EQ(allocator.empty_cache(), 0U);
  EXPECT_EQ(this->device().calls(Call::kReleaseAddresses), released + 1);
  EXPECT_FALSE(allocator.try_allocate(total).has_value());
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// --- Private pools and captures ------------------------------------------------------------------

TYPED_TEST(Decisions, TheNewestScopeThatAcceptsTheStreamWins) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const PoolId all = allocator.new_pool_id();
  const PoolId some = allocator.new_pool_id();
  const auto pool_of = [&](DeviceAddress address) {
    for (const SegmentInfo& segment : allocator.segments()) {
      if (segment.address <= address && address < segment.address + segment.size_bytes) {
        return segment.pool;
      }
    }
    return PoolId{};
  };
  allocator.begin_allocate_to_pool(all, nullptr);
  allocator.begin_allocate_to_pool(some, [side](StreamId stream) { return stream == side; });
  EXPECT_EQ(pool_of(allocator.allocate(512)), all);
  EXPECT_EQ(pool_of(allocator.allocate(512, side)), some);
  allocator.end_allocate_to_pool(some);
  EXPECT_EQ(pool_of(allocator.allocate(512, side)), all);
  allocator.end_allocate_to_pool(all);
  EXPECT_TRUE(pool_of(allocator.allocate(512)).is_default());
  EXPECT_EQ(this->reserved(), 8_MiB) << "nothing was shared";
}

// Up to 2.12 an open scope counts as a capture, which suppresses the flush.
TYPED_TEST(Decisions, AnOpenScopeSuppressesTheFlushUpTo212) {
  for (const PyTorchVersion version : {kPyTorch29, kPyTorch212, kPyTorch213}) {
    CachingAllocator& allocator = this->start("", version);
    allocator.set_limit(40_MiB);
    allocator.free(allocator.allocate(30_MiB));
    allocator.begin_allocate_to_pool(allocator.new_pool_id(), nullptr);
    EXPECT_EQ(allocator.try_allocate(20_MiB).has_value(), version >= kPyTorch213)
        << "2." << version.minor;
  }
}

TYPED_TEST(Decisions, DuringACaptureNothingIsGivenBackAndNothingWaits) {
  CachingAllocator& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress used = allocator.allocate(12_MiB);
  allocator.free(allocator.allocate(30_MiB));
  allocator.begin_capture();
  const std::uint64_t events = this->device().calls(Call::kRecordEvent);
  ASSERT_TRUE(worked(allocator.record_stream(used, side)));
  allocator.free(used);
  EXPECT_EQ(this->device().calls(Call::kRecordEvent), events) << "not while a capture runs";
  EXPECT_EQ(allocator.empty_cache(), 0U);
  EXPECT_EQ(allocator.trim(1_MiB), 0U);
  EXPECT_EQ(this->device().calls(Call::kRecordEvent), events);
  EXPECT_EQ(this->active(), 12_MiB);
  allocator.end_capture();
  EXPECT_EQ(allocator.empty_cache(), 42_MiB);
  EXPECT_EQ(this->active(), 0U);
}

// --- Limits --------------------------------------------------------------------------------------

TYPED_TEST(Decisions, TheLimitIsHitBeforeTheDeviceIsAsked) {
  for (const char* settings : {"", "expandable_segments:True"}) {
    CachingAllocator& allocator = this->start(settings);
    const auto asked = [&] {
      return this->device().calls(Call::kAllocateSegment) +
             this->device().calls(Call::kCreatePages) +
             this->device().calls(Call::kReserveAddresses);
    };
    allocator.set_limit(20_MiB);
    EXPECT_NE(allocator.allocate(2_MiB), 0U) << "20 MiB are allowed to the byte";
    const std::uint64_t before = asked();
    EXPECT_FALSE(allocator.try_allocate(1).has_value()) << "its segment is one too many";
    EXPECT_FALSE(allocator.try_allocate(30_MiB).has_value());
    EXPECT_EQ(asked(), before);
    EXPECT_NE(allocator.allocate(18_MiB), 0U) << "the cache is not limited";
    EXPECT_EQ(allocator.statistics().num_ooms, 2);
  }
}

TYPED_TEST(Decisions, APolicyRejectionTriesNothing) {
  CachingAllocator& allocator =
      this->start("per_process_memory_fraction:0.125,throw_on_cudamalloc_oom:True", kPyTorch212);
  allocator.set_limit(std::nullopt);
  allocator.free(allocator.allocate(60_MiB));
  const auto rejected = allocator.try_allocate(62_MiB);
  ASSERT_FALSE(rejected.has_value());
  EXPECT_EQ(rejected.error().reason, FailureReason::kRejected);
  EXPECT_EQ(rejected.error().report->reason, FailureReason::kRejected);
  EXPECT_EQ(allocator.statistics().num_oom_rejections, 1);
  EXPECT_EQ(allocator.statistics().num_ooms, 0);
  EXPECT_EQ(this->reserved(), 60_MiB) << "the cache was not flushed";
  EXPECT_THROW((void)allocator.allocate(62_MiB), OutOfMemory);
}

}  // namespace
}  // namespace headroom::memory::testing
