// The contract of Allocator, for every backend: blocks, misuse, failures, who is told.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/memory/pytorch_message.h"

#include "tests/memory/allocator_backends.h"
#include "tests/support/device_status.h"

namespace headroom::memory::testing {
namespace {

using device::StatusCode;
using headroom::testing::refused;
using headroom::testing::worked;
using ::testing::HasSubstr;

template <class Backend>
class AllocatorSuite : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(AllocatorSuite, AllocatorWorlds, BackendNames);

// What PyTorch's allocator decides so, and ours need not.
template <class Backend>
class CachingSuite : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(CachingSuite, AllocatorBackends, BackendNames);

// --- Blocks --------------------------------------------------------------------------------------

TYPED_TEST(AllocatorSuite, BlocksAreAlignedTo512AndApart) {
  std::vector<BlockInfo> blocks;
  for (const std::uint64_t size : {std::uint64_t{1},
                                   std::uint64_t{511},
                                   std::uint64_t{512},
                                   std::uint64_t{513},
                                   1_MiB,
                                   1_MiB + 1,
                                   10_MiB - 1,
                                   10_MiB + 1,
                                   33_MiB}) {
    const DeviceAddress address = this->allocator().allocate(size);
    EXPECT_EQ(address % kMinBlockBytes, 0U) << size;
    const auto block = this->allocator().find_block(address);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(block->requested_bytes, size);
    EXPECT_GE(block->size_bytes, size);
    for (const BlockInfo& other : blocks) {
      EXPECT_TRUE(address + block->size_bytes <= other.address ||
                  other.address + other.size_bytes <= address);
    }
    blocks.push_back(*block);
  }
}

TYPED_TEST(AllocatorSuite, ZeroBytesGiveNullAndNoEvent) {
  Collector sink;
  this->allocator().add_sink(sink);
  EXPECT_EQ(this->allocator().allocate(0), 0U);
  EXPECT_TRUE(worked(this->allocator().try_free(0)));
  EXPECT_TRUE(worked(this->allocator().record_stream(0, this->new_stream())));
  this->allocator().free(0);
  EXPECT_TRUE(sink.events.empty());
  EXPECT_EQ(this->allocator().misuse_count(), 0U);
  EXPECT_EQ(this->reserved(), 0U);
  this->allocator().remove_sink(sink);
}

TYPED_TEST(AllocatorSuite, AbsurdSizesFailCleanlyWithAReport) {
  auto& allocator = this->allocator();
  for (const std::uint64_t size : {UINT64_MAX,
                                   UINT64_MAX - 511,
                                   UINT64_MAX - 2_MiB,
                                   UINT64_MAX / 2 + 1,
                                   device::kAbsurdSize,
                                   device::kAbsurdSize + 1}) {
    const auto result = allocator.try_allocate(size);
    ASSERT_FALSE(result.has_value()) << size;
    EXPECT_EQ(result.error().reason, FailureReason::kTooLarge) << size;
    ASSERT_NE(result.error().report, nullptr);
    EXPECT_EQ(result.error().report->account.asked_bytes, size);
    EXPECT_THAT(pytorch_message(*result.error().report), HasSubstr("more than 1EB"));
    EXPECT_FALSE(result.error().report->text.empty());
    EXPECT_THROW((void)allocator.allocate(size), OutOfMemory);
  }
  const auto just_below = allocator.try_allocate(device::kAbsurdSize - 1);
  ASSERT_FALSE(just_below.has_value());
  EXPECT_EQ(just_below.error().reason, FailureReason::kOutOfMemory);
  ASSERT_NE(just_below.error().report, nullptr);
  EXPECT_EQ(allocator.statistics().num_ooms, 1) << "what is absurd was never tried";
  EXPECT_EQ(this->reserved(), 0U);
  EXPECT_NE(allocator.allocate(1), 0U);
}

TYPED_TEST(AllocatorSuite, MovesAllocatedActiveAndReserved) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress a = allocator.allocate(3_MiB);
  EXPECT_EQ(this->allocated(), 3_MiB);
  EXPECT_EQ(this->active(), 3_MiB);
  const std::uint64_t reserved = this->reserved();
  EXPECT_EQ(reserved, this->kIsPaged ? 4_MiB : 20_MiB);
  typename TypeParam::Hold hold(this->device(), side);
  ASSERT_TRUE(worked(allocator.record_stream(a, side)));
  allocator.free(a);
  EXPECT_EQ(this->allocated(), 0U);
  EXPECT_EQ(this->active(), 3_MiB) << "another stream may still use it";
  allocator.process_events();
  EXPECT_EQ(this->active(), 3_MiB);
  EXPECT_EQ(allocator.account().pending_bytes, 3_MiB);
  hold.let_go();
  EXPECT_EQ(this->active(), 3_MiB) << "only a malloc or process_events looks";
  allocator.process_events();
  EXPECT_EQ(this->active(), 0U);
  EXPECT_EQ(this->reserved(), reserved);
  EXPECT_EQ(allocator.empty_cache(), reserved);
  EXPECT_EQ(this->reserved(), 0U);
  EXPECT_EQ(this->free_bytes(), this->device().properties().total_bytes);
}

TYPED_TEST(CachingSuite, SplitsABlockAndMergesItWithBothNeighbours) {
  auto& allocator = this->allocator();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(512));
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i], blocks[0] + 512 * i);
  const auto splits = [&] { return allocator.statistics().inactive_split.all.current; };
  EXPECT_EQ(splits(), 1) << "the rest of the segment";
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  EXPECT_EQ(splits(), 3);
  allocator.free(blocks[1]);
  EXPECT_EQ(splits(), 2) << "three became one";
  EXPECT_EQ(allocator.allocate(1536), blocks[0]);
  allocator.free(blocks[0]);
  allocator.free(blocks[3]);
  EXPECT_EQ(splits(), 0) << "the segment is whole again";
  EXPECT_EQ(allocator.allocate(2_KiB), blocks[0]);
}

// --- Misuse --------------------------------------------------------------------------------------

TYPED_TEST(AllocatorSuite, FreeingTwiceIsAClearStatusAndLosesNothing) {
  auto& allocator = this->allocator();
  const DeviceAddress kept = allocator.allocate(1_MiB);
  const DeviceAddress block = allocator.allocate(1_MiB);
  ASSERT_TRUE(worked(allocator.try_free(block)));
  const auto again = allocator.try_free(block);
  ASSERT_TRUE(refused(again, StatusCode::kUnknownHandle));
  EXPECT_THAT(to_string(again.error()), HasSubstr("freed before"));
  EXPECT_EQ(allocator.misuse_count(), 0U) << "try_free tells its caller";
  allocator.free(block);
  allocator.free(block);
  EXPECT_EQ(allocator.misuse_count(), 2U);
  EXPECT_EQ(this->allocated(), 1_MiB);
  EXPECT_EQ(allocator.allocate(1_MiB), block);
  EXPECT_EQ(this->size_of(kept), 1_MiB);
}

TYPED_TEST(AllocatorSuite, FreeingWhatIsPendingIsRefused) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress block = allocator.allocate(4_KiB);
  typename TypeParam::Hold hold(this->device(), side);
  ASSERT_TRUE(worked(allocator.record_stream(block, side)));
  allocator.free(block);
  EXPECT_TRUE(refused(allocator.try_free(block), StatusCode::kUnknownHandle));
  EXPECT_TRUE(refused(allocator.record_stream(block, side), StatusCode::kUnknownHandle));
  EXPECT_EQ(allocator.find_block(block), std::nullopt);
  hold.let_go();
  allocator.process_events();
  EXPECT_EQ(this->active(), 0U);
}

TYPED_TEST(AllocatorSuite, FreeingAForeignPointerIsAClearStatus) {
  auto& allocator = this->allocator();
  const DeviceAddress block = allocator.allocate(4_KiB);
  for (const DeviceAddress foreign :
       {DeviceAddress{1}, DeviceAddress{4096}, UINT64_MAX, block + 1, block + 512}) {
    EXPECT_TRUE(refused(allocator.try_free(foreign), StatusCode::kUnknownHandle)) << foreign;
    EXPECT_EQ(allocator.find_block(foreign), std::nullopt);
  }
  const auto outside = allocator.try_free(4096);
  EXPECT_THAT(to_string(outside.error()), HasSubstr("does not belong"));
  allocator.free(4096);
  EXPECT_EQ(allocator.misuse_count(), 1U);
  EXPECT_EQ(this->size_of(block), 4_KiB);
}

TYPED_TEST(AllocatorSuite, AnotherDevicesStreamAndBlockAreRefused) {
  auto& allocator = this->allocator();
  const TestDevice other_device = TypeParam::make({.capacity_bytes = 64_MiB});
  typename TypeParam::Core other(*other_device);
  const StreamId theirs = other_device->create_stream().value();
  const DeviceAddress their_block = other.allocate(1_MiB, theirs);
  const DeviceAddress block = allocator.allocate(1_MiB);

  const auto result = allocator.try_allocate(1_MiB, theirs);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().reason, FailureReason::kDevice);
  EXPECT_EQ(result.error().status, StatusCode::kUnknownHandle);
  EXPECT_THROW((void)allocator.allocate(1_MiB, theirs), Error);
  const auto reserved = allocator.reserve(2_MiB, theirs);
  ASSERT_FALSE(reserved.has_value());
  EXPECT_EQ(reserved.error().status, StatusCode::kUnknownHandle);
  EXPECT_TRUE(refused(allocator.record_stream(block, theirs), StatusCode::kUnknownHandle));
  if (their_block != block) {
    EXPECT_TRUE(refused(allocator.try_free(their_block), StatusCode::kUnknownHandle));
  }
  EXPECT_EQ(this->allocated(), 1_MiB);
  EXPECT_EQ(this->reserved(), 2_MiB);
  allocator.free(block);
  EXPECT_EQ(this->active(), 0U) << "the refused stream was not noted";
  EXPECT_TRUE(worked(other.try_free(their_block)));
  (void)other_device->release_stream(theirs);
}

// --- Streams and threads -------------------------------------------------------------------------

TYPED_TEST(AllocatorSuite, StreamsMayGoWhileTheirBlocksLive) {
  auto& allocator = this->allocator();
  const StreamId own = this->device().create_stream().value();
  const StreamId side = this->device().create_stream().value();
  const DeviceAddress a = allocator.allocate(1_MiB, own);
  const DeviceAddress b = allocator.allocate(1_MiB);
  ASSERT_TRUE(worked(allocator.record_stream(b, side)));
  ASSERT_TRUE(worked(allocator.record_stream(a, side)));
  ASSERT_TRUE(worked(this->device().release_stream(own)));
  ASSERT_TRUE(worked(this->device().release_stream(side)));
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.empty_cache();
  EXPECT_EQ(this->active(), 0U);
  EXPECT_EQ(this->reserved(), 0U);
}

TYPED_TEST(CachingSuite, ExpandableMemoryOfAStreamThatIsGoneGoesBack) {
  auto& allocator = this->start("expandable_segments:True");
  const StreamId own = this->device().create_stream().value();
  const DeviceAddress a = allocator.allocate(4_MiB, own);
  ASSERT_TRUE(worked(this->device().release_stream(own)));
  allocator.free(a);
  EXPECT_EQ(allocator.empty_cache(), 20_MiB);
  EXPECT_EQ(this->reserved(), 0U);
}

TYPED_TEST(AllocatorSuite, AnotherThreadMayFree) {
  auto& allocator = this->allocator();
  const DeviceAddress block = allocator.allocate(4_MiB);
  std::jthread([&] { allocator.free(block); }).join();
  EXPECT_EQ(this->allocated(), 0U);
  EXPECT_EQ(allocator.misuse_count(), 0U);
  EXPECT_EQ(allocator.allocate(4_MiB), block);
}

// --- Failures ------------------------------------------------------------------------------------

TYPED_TEST(AllocatorSuite, OutOfMemoryCaught100TimesLeavesEverythingUsable) {
  for (const char* settings :
       this->settings({"", "expandable_segments:True", "max_split_size_mb:40"})) {
    auto& allocator = this->start(settings);
    allocator.set_limit(100_MiB);
    const DeviceAddress kept = allocator.allocate(30_MiB);
    for (int i = 0; i < 100; ++i) {
      try {
        (void)allocator.allocate(90_MiB);
        FAIL() << "90 MiB beside 30 MiB under a limit of 100 MiB";
      } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.report().account.asked_bytes, 90_MiB);
        EXPECT_EQ(error.report().account.sum(), error.report().account.total_bytes);
        EXPECT_FALSE(std::string_view(error.what()).empty());
        EXPECT_THAT(pytorch_message(error.report()), HasSubstr("CUDA out of memory"));
      }
      const DeviceAddress small = allocator.allocate(100);
      allocator.free(small);
    }
    EXPECT_EQ(allocator.statistics().num_ooms, 100);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    EXPECT_EQ(this->allocated(), this->size_of(kept));
    allocator.free(kept);
    const auto served = allocator.try_allocate(90_MiB);
    EXPECT_TRUE(served.has_value()) << settings << ": the room is there now";
  }
}

TYPED_TEST(AllocatorSuite, TheDevicesOwnShortageIsAReportToo) {
  auto& allocator = this->allocator();
  const std::uint64_t total = this->device().properties().total_bytes;
  const DeviceAddress most = allocator.allocate(total - 20_MiB);
  const auto failed = allocator.try_allocate(40_MiB);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().reason, FailureReason::kOutOfMemory);
  EXPECT_EQ(failed.error().report->account.free_bytes, 20_MiB);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  allocator.free(most);
  EXPECT_TRUE(allocator.try_allocate(40_MiB).has_value());
}

TYPED_TEST(AllocatorSuite, AFreeCallbackThatFreesServesTheRequest) {
  auto& allocator = this->allocator();
  allocator.set_limit(20_MiB);
  DeviceAddress spare = allocator.allocate(12_MiB);
  int calls = 0;
  const auto id = allocator.add_free_callback([&] {
    ++calls;
    if (spare == 0) return false;
    allocator.free(std::exchange(spare, 0));
    return true;
  });
  const DeviceAddress first = allocator.allocate(12_MiB);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(this->reserved(), 12_MiB) << "no other segment was needed";
  EXPECT_FALSE(allocator.try_allocate(12_MiB).has_value());
  EXPECT_EQ(calls, 2);
  allocator.remove_callback(id);
  EXPECT_FALSE(allocator.try_allocate(12_MiB).has_value());
  EXPECT_EQ(calls, 2);
}

TYPED_TEST(AllocatorSuite, AFreeCallbackServesAPrivatePoolToo) {
  auto& allocator = this->allocator();
  allocator.set_limit(40_MiB);
  DeviceAddress spare = allocator.allocate(32_MiB);
  allocator.add_free_callback([&] {
    if (spare == 0) return false;
    allocator.free(std::exchange(spare, 0));
    return true;
  });
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  EXPECT_TRUE(allocator.try_allocate(20_MiB).has_value());
  EXPECT_EQ(spare, 0U);
  allocator.end_allocate_to_pool(pool);
}

// Whatever a callback does to the pool of the request, the request still has a pool.
TYPED_TEST(CachingSuite, AFreeCallbackMayReleaseThePoolThatIsAskedOf) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  bool is_open = true;
  allocator.add_free_callback([&] {
    if (!is_open) return false;
    is_open = false;
    allocator.end_allocate_to_pool(pool);
    allocator.release_pool(pool);
    allocator.empty_cache();
    return true;
  });
  const DeviceAddress block = allocator.allocate(4_MiB);
  EXPECT_FALSE(is_open);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  allocator.free(block);
  allocator.empty_cache();
  EXPECT_EQ(this->reserved(), 0U);
}

TYPED_TEST(AllocatorSuite, CallbacksThatThrowAreIgnored) {
  auto& allocator = this->allocator();
  allocator.set_limit(4_MiB);
  allocator.add_free_callback([]() -> bool { throw std::runtime_error("mine"); });
  allocator.add_out_of_memory_callback(
      [](const OutOfMemoryReport&) { throw std::runtime_error("mine too"); });
  EXPECT_NE(allocator.allocate(512), 0U);
  const auto failed = allocator.try_allocate(10_MiB);
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().report, nullptr);
}

TYPED_TEST(AllocatorSuite, OutOfMemoryCallbacksAreToldOfEveryFailure) {
  auto& allocator = this->allocator();
  allocator.set_limit(4_MiB);
  std::vector<std::uint64_t> told;
  const auto id = allocator.add_out_of_memory_callback([&](const OutOfMemoryReport& report) {
    told.push_back(report.account.asked_bytes);
    EXPECT_EQ(report.account.sum(), report.account.total_bytes);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt) << "no lock is held";
  });
  (void)allocator.try_allocate(10_MiB);
  (void)allocator.try_allocate(UINT64_MAX);
  EXPECT_THROW((void)allocator.allocate(5_MiB), OutOfMemory);
  EXPECT_THAT(told, ::testing::ElementsAre(10_MiB, UINT64_MAX, 5_MiB));
  allocator.remove_callback(id);
  (void)allocator.try_allocate(10_MiB);
  EXPECT_EQ(told.size(), 3U);
}

// --- Categories, annotations and events ----------------------------------------------------------

TYPED_TEST(AllocatorSuite, CategoryTotalsAreExactAndTravelToOtherThreads) {
  auto& allocator = this->allocator();
  const auto held = [&](Category category) {
    const Statistics stats = allocator.statistics();
    return stats.category_bytes[static_cast<std::size_t>(category)].current;
  };
  DeviceAddress weight = 0;
  DeviceAddress grad = 0;
  {
    const AnnotationScope step("step");
    const CategoryScope parameters(Category::kParameter);
    weight = allocator.allocate(3_MiB);
    const AnnotationScope layer("layer3");
    const CategoryScope gradients(Category::kGradient);
    const AllocationContext context = current_context();
    std::jthread([&] {
      EXPECT_EQ(current_context(), AllocationContext{});
      const ContextScope scope(context);
      grad = allocator.allocate(100);
    }).join();
  }
  const DeviceAddress other = allocator.allocate(1_MiB);
  EXPECT_EQ(held(Category::kParameter), static_cast<std::int64_t>(3_MiB));
  EXPECT_EQ(held(Category::kGradient), 512);
  EXPECT_EQ(held(Category::kUnknown), static_cast<std::int64_t>(1_MiB));
  const auto block = allocator.find_block(grad);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->category, Category::kGradient);
  EXPECT_EQ(annotation_path(block->annotation), "step/layer3");

  const Account account = allocator.account();
  EXPECT_EQ(account.live_bytes[static_cast<std::size_t>(Category::kGradient)], 100U);
  EXPECT_EQ(account.rounding_bytes, 412U);
  ASSERT_EQ(account.sites.size(), 3U);
  EXPECT_EQ(account.sites[0].site, "step");
  EXPECT_EQ(account.sites[2].site, "step/layer3");
  for (const DeviceAddress address : {weight, grad, other}) allocator.free(address);
  for (std::size_t i = 0; i < kCategoryCount; ++i) EXPECT_EQ(held(static_cast<Category>(i)), 0);
}

TYPED_TEST(AllocatorSuite, EventsAreNumberedWithoutAGap) {
  auto& allocator = this->allocator();
  allocator.free(allocator.allocate(1_MiB));  // before anybody listens
  Collector sink;
  allocator.add_sink(sink);
  const StreamId side = this->new_stream();
  allocator.set_limit(64_MiB);
  const CategoryScope category(Category::kData);
  const DeviceAddress a = allocator.allocate(5_MiB, side);
  (void)allocator.try_allocate(100_MiB);
  allocator.free(a);
  allocator.empty_cache();
  if constexpr (!TestFixture::kIsPaged) allocator.configure("expandable_segments:True");
  allocator.free(allocator.allocate(5_MiB));
  allocator.empty_cache();
  allocator.remove_sink(sink);

  ASSERT_FALSE(sink.events.empty());
  for (std::size_t i = 1; i < sink.events.size(); ++i) {
    EXPECT_EQ(sink.events[i].sequence, sink.events[i - 1].sequence + 1);
  }
  EXPECT_EQ(sink.count(Action::kAlloc), 2U);
  EXPECT_EQ(sink.count(Action::kFreeRequested), 2U);
  EXPECT_EQ(sink.count(Action::kFreeCompleted), 2U);
  EXPECT_EQ(sink.count(Action::kOutOfMemory), 1U);
  if constexpr (TestFixture::kIsPaged) {
    EXPECT_EQ(sink.count(Action::kSegmentAlloc), 0U) << "pages are mapped";
    EXPECT_GE(sink.count(Action::kSegmentMap), 2U);
  } else {
    EXPECT_EQ(sink.count(Action::kSegmentAlloc), 1U);
    EXPECT_EQ(sink.count(Action::kSegmentFree), 2U) << "the small one from before too";
    EXPECT_EQ(sink.count(Action::kSegmentMap), 1U);
    EXPECT_EQ(sink.count(Action::kSegmentUnmap), 1U);
  }
  for (const Event& event : sink.events) {
    if (event.action != Action::kAlloc) continue;
    EXPECT_EQ(event.size_bytes, 5_MiB) << "as asked for";
    EXPECT_EQ(event.category, Category::kData);
  }
}

// --- The account ---------------------------------------------------------------------------------

TYPED_TEST(CachingSuite, TheAccountAddsUpAndNamesEachKindOfCachedMemory) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress small = allocator.allocate(1000);
  const DeviceAddress whole = allocator.allocate(12_MiB);
  const DeviceAddress foreign = allocator.allocate(30_MiB, side);
  allocator.free(whole);
  allocator.free(foreign);
  const Account account = allocator.account();
  EXPECT_EQ(account.live(), 1000U);
  EXPECT_EQ(account.rounding_bytes, 24U);
  EXPECT_EQ(account.cached_hard_bytes, 2_MiB - 1024);
  EXPECT_EQ(account.cached_soft_bytes, 12_MiB);
  EXPECT_EQ(account.cached_stream_bytes, 30_MiB);
  EXPECT_EQ(account.largest_cached_bytes, 12_MiB);
  EXPECT_EQ(account.reserved(), this->reserved());
  EXPECT_EQ(account.free_bytes, this->free_bytes());
  EXPECT_EQ(account.sum(), account.total_bytes);
  allocator.free(small);
}

}  // namespace
}  // namespace headroom::memory::testing
