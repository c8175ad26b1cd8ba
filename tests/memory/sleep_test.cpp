// Sleep and wake: memory goes back to the device and comes back at the same addresses, and nothing
// else loses a byte.
#include "headroom/memory/sleep.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/stream_gate.h"

namespace headroom::memory {
namespace {

using device::CpuDevice;
using headroom::testing::StreamGate;
using headroom::testing::worked;

// Pages of one size, and none that are kept without a reason.
constexpr PagedOptions kSleepPages{.page_bytes = 256_KiB,
                                   .large_page_bytes = 1_MiB,
                                   .large_from_bytes = 512_MiB,
                                   .cushion_fraction = 0,
                                   .cushion_bytes = 0};
constexpr std::uint64_t kSleepCapacity = 64_MiB;

class SleepTest : public ::testing::Test {
 protected:
  DeviceAddress allocate(std::string_view scope,
                         std::uint64_t size,
                         StreamId stream = StreamId::kDefault) {
    const AnnotationScope names(scope);
    return allocator_.allocate(size, stream);
  }
  void fill(DeviceAddress address, int value, std::uint64_t size) {
    EXPECT_TRUE(
        worked(device_->fill(address, static_cast<std::uint8_t>(value), size, StreamId::kDefault)));
  }
  [[nodiscard]] bool holds(DeviceAddress address, int value, std::uint64_t size) const {
    std::vector<std::uint8_t> bytes(size);
    EXPECT_TRUE(worked(device_->copy_to_host(bytes.data(), address, size, StreamId::kDefault)));
    return std::ranges::count(bytes, value) == static_cast<std::ptrdiff_t>(size);
  }
  [[nodiscard]] std::uint64_t free_bytes() const { return device_->memory_info()->free_bytes; }
  [[nodiscard]] std::int64_t allocated() const {
    return allocator_.statistics().allocated_bytes.all.current;
  }
  [[nodiscard]] std::int64_t reserved() const {
    return allocator_.statistics().reserved_bytes.all.current;
  }
  [[nodiscard]] std::int64_t sleeping() const {
    return allocator_.statistics().sleeping_bytes.current;
  }
  void TearDown() override {
    EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
    const Account account = allocator_.account();
    EXPECT_EQ(account.sum(), account.total_bytes);
    EXPECT_EQ(account.reserved(), static_cast<std::uint64_t>(reserved()));
  }

  std::unique_ptr<CpuDevice> device_ =
      CpuDevice::create({.capacity_bytes = kSleepCapacity, .granularity_bytes = 64_KiB});
  PagedAllocator allocator_{*device_, kSleepPages};
};

TEST_F(SleepTest, MemoryGoesBackAndComesBackAtTheSameAddress) {
  const DeviceAddress weights = allocate("weights", 8_MiB);
  const DeviceAddress other = allocate("other", 4_MiB);
  fill(other, 7, 4_MiB);
  const std::uint64_t before = free_bytes();
  const std::int64_t reserved_before = reserved();

  const SleepChange slept = allocator_.sleep("weights");
  EXPECT_EQ(slept.blocks, 1U);
  EXPECT_EQ(slept.block_bytes, 8_MiB);
  EXPECT_EQ(slept.device_bytes, 8_MiB);
  EXPECT_EQ(free_bytes() - before, 8_MiB);
  EXPECT_EQ(reserved_before - reserved(), 8_MiB);
  EXPECT_EQ(allocated(), 4_MiB);
  EXPECT_EQ(sleeping(), 8_MiB);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_EQ(allocator_.find_block(weights), std::nullopt);

  const SleepChange woken = allocator_.wake("weights");
  EXPECT_EQ(woken.blocks, 1U);
  EXPECT_EQ(woken.device_bytes, 8_MiB);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(reserved(), reserved_before);
  EXPECT_EQ(sleeping(), 0);
  ASSERT_NE(allocator_.find_block(weights), std::nullopt);
  EXPECT_EQ(allocator_.find_block(weights)->requested_bytes, 8_MiB);
  fill(weights, 3, 8_MiB);
  EXPECT_TRUE(holds(weights, 3, 8_MiB));
  EXPECT_TRUE(holds(other, 7, 4_MiB));
}

TEST_F(SleepTest, ContentsThatAreKeptComeBack) {
  const DeviceAddress weights = allocate("weights", 3_MiB + 512);
  fill(weights, 9, 3_MiB + 512);
  (void)allocator_.sleep("weights", SleepContents::kKeptOnHost);
  const DeviceAddress passing = allocator_.allocate(6_MiB);
  fill(passing, 1, 6_MiB);
  allocator_.free(passing);
  (void)allocator_.wake("weights");
  EXPECT_TRUE(holds(weights, 9, 3_MiB + 512));
}

TEST_F(SleepTest, OthersUseTheMemoryMeanwhile) {
  const DeviceAddress weights = allocate("weights", 48_MiB);
  EXPECT_FALSE(allocator_.try_allocate(32_MiB));
  (void)allocator_.sleep("weights");
  const DeviceAddress other = allocator_.allocate(32_MiB);
  // Until it is gone, there is no room.
  const auto woken = allocator_.try_wake("weights");
  ASSERT_FALSE(woken);
  EXPECT_EQ(woken.error().reason, FailureReason::kOutOfMemory);
  ASSERT_NE(woken.error().report, nullptr);
  EXPECT_EQ(woken.error().report->account.asked_bytes, 48_MiB);
  EXPECT_THROW((void)allocator_.wake("weights"), OutOfMemory);
  EXPECT_EQ(sleeping(), 48_MiB);
  EXPECT_EQ(reserved(), 32_MiB);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);

  allocator_.free(other);  // stays cached: waking finds it
  EXPECT_EQ(allocator_.wake("weights").blocks, 1U);
  fill(weights, 4, 48_MiB);
  EXPECT_TRUE(holds(weights, 4, 48_MiB));
}

TEST_F(SleepTest, WhatIsCachedServesUnderALimit) {
  (void)allocate("weights", 24_MiB);
  allocator_.set_limit(24_MiB);
  (void)allocator_.sleep("weights");
  allocator_.free(allocator_.allocate(20_MiB));
  EXPECT_EQ(reserved(), 20_MiB);
  EXPECT_EQ(allocator_.wake("weights").device_bytes, 24_MiB);
  EXPECT_EQ(reserved(), 24_MiB);
}

TEST_F(SleepTest, PagesThatAreSharedWithBlocksAwakeStay) {
  const DeviceAddress first = allocate("awake", 320_KiB);
  const DeviceAddress middle = allocate("weights", 1_MiB);
  const DeviceAddress last = allocate("awake", 320_KiB);
  ASSERT_EQ(middle, first + 320_KiB);
  ASSERT_EQ(last, middle + 1_MiB);
  fill(first, 1, 320_KiB);
  fill(last, 2, 320_KiB);
  const SleepChange slept = allocator_.sleep("weights");
  EXPECT_LT(slept.device_bytes, 1_MiB);
  EXPECT_GE(slept.device_bytes, 512_KiB);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_TRUE(holds(first, 1, 320_KiB));
  EXPECT_TRUE(holds(last, 2, 320_KiB));
  // Once it is free, the rest of the page goes as the cache does.
  allocator_.free(last);
  const std::int64_t before = reserved();
  EXPECT_GT(allocator_.empty_cache(), 0U);
  EXPECT_LT(reserved(), before);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  (void)allocator_.wake("weights");
  fill(middle, 3, 1_MiB);
  EXPECT_TRUE(holds(first, 1, 320_KiB));
}

TEST_F(SleepTest, ARequestThatWouldFailGetsWhatOnlySleepersKeep) {
  const DeviceAddress first = allocate("awake", 320_KiB);
  (void)allocate("weights", 1_MiB);
  const DeviceAddress last = allocate("awake", 320_KiB);
  (void)allocator_.sleep("weights");
  allocator_.free(first);
  allocator_.free(last);
  const auto limit = static_cast<std::uint64_t>(reserved());
  ASSERT_GE(limit, 512_KiB);
  allocator_.set_limit(limit);
  EXPECT_TRUE(allocator_.try_allocate(limit)) << "it would take all that is reserved";
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
}

TEST_F(SleepTest, NeighboursThatSleepShareAPageThatGoes) {
  const DeviceAddress first = allocate("a", 320_KiB);
  const DeviceAddress second = allocate("b", 320_KiB);
  fill(first, 1, 320_KiB);
  fill(second, 2, 320_KiB);
  (void)allocator_.sleep("a", SleepContents::kKeptOnHost);
  EXPECT_GT(reserved(), 0);
  (void)allocator_.sleep("b", SleepContents::kKeptOnHost);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  (void)allocator_.wake("b");
  EXPECT_TRUE(holds(second, 2, 320_KiB));
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  (void)allocator_.wake("a");
  EXPECT_TRUE(holds(first, 1, 320_KiB));
  EXPECT_TRUE(holds(second, 2, 320_KiB));
}

TEST_F(SleepTest, ASleepingBlockCanBeFreed) {
  const DeviceAddress first = allocate("a", 320_KiB);
  const DeviceAddress second = allocate("a", 5_MiB);
  (void)allocator_.sleep("a");
  const auto events = allocator_.statistics().allocation.all.current;
  EXPECT_TRUE(worked(allocator_.try_free(second)));
  EXPECT_EQ(sleeping(), 320_KiB);
  EXPECT_EQ(allocator_.statistics().allocation.all.current, events);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_FALSE(allocator_.try_free(second));
  EXPECT_TRUE(worked(allocator_.try_free(first)));
  EXPECT_EQ(sleeping(), 0);
  EXPECT_EQ(allocator_.wake("a").blocks, 0U);
  // Their addresses serve again.
  EXPECT_EQ(allocator_.allocate(4_MiB), first);
}

TEST_F(SleepTest, NobodyGetsTheAddressesOfASleeper) {
  const DeviceAddress weights = allocate("weights", 8_MiB);
  (void)allocator_.sleep("weights");
  for (int i = 0; i < 24; ++i) {
    const DeviceAddress other = allocator_.allocate(1_MiB + 64_KiB);
    EXPECT_TRUE(other + 1_MiB + 64_KiB <= weights || other >= weights + 8_MiB);
  }
}

TEST_F(SleepTest, NamesAreThoseOfScopes) {
  const AnnotationScope model("model");
  (void)allocate("weights", 1_MiB);
  (void)allocate("weights/layer1", 1_MiB);
  (void)allocate("weights2", 1_MiB);
  (void)allocate("cache", 1_MiB);
  EXPECT_EQ(allocator_.sleep("weight").blocks, 0U);
  EXPECT_EQ(allocator_.sleep("layer1/weights").blocks, 0U);
  EXPECT_EQ(allocator_.sleep("weights/layer1").blocks, 1U);
  EXPECT_EQ(allocator_.sleep("weights").blocks, 1U);  // the other one sleeps already
  EXPECT_EQ(allocator_.sleep("model/cache").blocks, 1U);
  EXPECT_EQ(allocator_.sleep("").blocks, 1U);
  EXPECT_EQ(allocator_.wake("layer1").blocks, 1U);
  EXPECT_EQ(allocator_.wake("").blocks, 3U);
}

// Small blocks lie in pages of 2 MiB, which go where all that is held in them sleeps.
TEST_F(SleepTest, SmallBlocksSleepByThePage) {
  std::vector<DeviceAddress> norms;
  for (int i = 0; i < 40; ++i) {
    norms.push_back(allocate("weights", 4_KiB + 100));
    fill(norms.back(), i, 4_KiB + 100);
  }
  const std::int64_t bytes = allocated();
  const SleepChange slept = allocator_.sleep("weights", SleepContents::kKeptOnHost);
  EXPECT_EQ(slept.blocks, 40U);
  EXPECT_EQ(slept.device_bytes, 2_MiB);
  EXPECT_EQ(sleeping(), bytes);
  EXPECT_EQ(allocated(), 0);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(allocator_.find_block(norms[3]), std::nullopt);
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  // Others get no block of that page, and two of these are freed.
  const DeviceAddress other = allocate("other", 4_KiB + 100);
  EXPECT_EQ(std::ranges::count(norms, other), 0);
  EXPECT_TRUE(worked(allocator_.try_free(norms[5])));
  EXPECT_TRUE(worked(allocator_.try_free(norms[39])));
  EXPECT_FALSE(allocator_.try_free(norms[5]));
  EXPECT_FALSE(allocator_.try_free(norms[6] + 512));
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_EQ(allocator_.wake("weights").blocks, 38U);
  for (int i = 0; i < 39; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_TRUE(i == 5 || holds(norms[at], i, 4_KiB + 100)) << i;
  }
  EXPECT_FALSE(allocator_.try_free(norms[5]));
  EXPECT_TRUE(worked(allocator_.try_free(norms[6])));
}

TEST_F(SleepTest, SmallBlocksStayWithOneThatIsAwake) {
  const DeviceAddress norm = allocate("weights", 4_KiB);
  const DeviceAddress other = allocate("other", 60_KiB);
  fill(norm, 5, 4_KiB);
  EXPECT_EQ(allocator_.sleep("weights").blocks, 0U);
  EXPECT_TRUE(holds(norm, 5, 4_KiB));
  allocator_.free(other);
  EXPECT_EQ(allocator_.sleep("weights").blocks, 1U);
  EXPECT_TRUE(worked(allocator_.try_free(norm)));
  EXPECT_EQ(allocator_.check_invariants(), std::nullopt);
  EXPECT_EQ(sleeping(), 0);
  const DeviceAddress again = allocate("weights", 4_KiB);  // perhaps of the same page
  fill(again, 6, 4_KiB);
  EXPECT_TRUE(holds(again, 6, 4_KiB));
}

TEST_F(SleepTest, WaitsForWhatIsQueued) {
  const StreamId stream = device_->create_stream().value();
  const StreamId reader = device_->create_stream().value();
  const DeviceAddress weights = allocate("weights", 1_MiB, stream);
  EXPECT_TRUE(worked(device_->fill(weights, 6, 1_MiB, stream)));
  EXPECT_TRUE(worked(device_->synchronize_stream(stream)));
  EXPECT_TRUE(worked(allocator_.record_stream(weights, reader)));
  std::vector<std::uint8_t> read(1_MiB);
  {
    StreamGate gate(*device_, reader);
    EXPECT_TRUE(worked(device_->copy_to_host(read.data(), weights, 1_MiB, reader)));
    gate.open();
  }
  (void)allocator_.sleep("weights");
  EXPECT_EQ(std::ranges::count(read, 6), static_cast<std::ptrdiff_t>(1_MiB));
  (void)allocator_.wake("weights");
}

TEST_F(SleepTest, WhatCannotSleepIsRefusedInOneLine) {
  const DeviceAddress weights = allocate("weights", 1_MiB);
  const PoolId pool = allocator_.new_pool_id();
  allocator_.begin_allocate_to_pool(pool, nullptr);
  (void)allocate("graph", 1_MiB);
  allocator_.end_allocate_to_pool(pool);
  const auto refusal = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      refusal([&] { (void)allocator_.sleep("graph"); }).find("1 (1MiB) are in a private pool"),
      std::string::npos)
      << refusal([&] { (void)allocator_.sleep("graph"); });
  EXPECT_NE(refusal([&] { (void)allocator_.sleep(""); }).find("private pool"), std::string::npos);
  allocator_.begin_capture();
  EXPECT_NE(refusal([&] { (void)allocator_.sleep("weights"); }).find("capture"), std::string::npos);
  allocator_.end_capture();
  (void)allocator_.sleep("weights");
  allocator_.begin_capture();
  EXPECT_NE(refusal([&] { (void)allocator_.wake("weights"); }).find("capture"), std::string::npos);
  EXPECT_TRUE(worked(allocator_.try_free(weights)));
  allocator_.end_capture();

  CachingAllocator caching(*device_);
  EXPECT_NE(refusal([&] { (void)caching.sleep("weights"); }).find("backend:paged"),
            std::string::npos);
  EXPECT_NE(refusal([&] { (void)caching.wake("weights"); }).find("backend:paged"),
            std::string::npos);
}

TEST_F(SleepTest, TheReportSaysWhatSleeps) {
  (void)allocate("weights", 2_MiB);
  EXPECT_EQ(to_text(allocator_.account()).find("asleep"), std::string::npos);
  (void)allocator_.sleep("weights");
  const Account account = allocator_.account();
  EXPECT_EQ(account.sleeping_bytes, 2_MiB);
  EXPECT_NE(to_text(account).find("2MiB asleep"), std::string::npos) << to_text(account);
  EXPECT_EQ(account.live(), 0U);
}

// Keeps what it is told of blocks.
struct SleepEvents final : EventSink {
  void record(const Event& event) noexcept override {
    seen.push_back(event);
    tags.push_back(event.tag != nullptr ? *event.tag : Tag{});
  }
  std::vector<Event> seen;
  std::vector<Tag> tags;
};

TEST_F(SleepTest, RecordingsSeeAFreeAndAnAllocation) {
  int made = 0;
  allocator_.set_tag_maker([&made] { return std::make_shared<int>(++made); });
  const DeviceAddress weights = allocate("weights", 1_MiB);
  const Tag tag = allocator_.find_block(weights)->tag;
  SleepEvents events;
  allocator_.add_sink(events, kBlockActions);
  (void)allocator_.sleep("weights");
  (void)allocator_.wake("weights");
  allocator_.remove_sink(events);
  ASSERT_EQ(events.seen.size(), 3U);
  EXPECT_EQ(events.seen[0].action, Action::kFreeRequested);
  EXPECT_EQ(events.seen[1].action, Action::kFreeCompleted);
  EXPECT_EQ(events.seen[2].action, Action::kAlloc);
  EXPECT_EQ(events.seen[2].address, weights);
  EXPECT_EQ(events.seen[2].size_bytes, 1_MiB);
  EXPECT_EQ(events.tags[2], tag);
  EXPECT_EQ(allocator_.find_block(weights)->tag, tag);
}

TEST_F(SleepTest, SnapshotsLeaveOutWhatSleeps) {
  (void)allocate("awake", 320_KiB);
  (void)allocate("weights", 1_MiB);
  (void)allocator_.sleep("weights");
  std::uint64_t bytes = 0;
  for (const SegmentInfo& segment : allocator_.segments()) {
    std::uint64_t at = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.size_bytes;
      EXPECT_TRUE(block.state != BlockState::kAllocated || block.size_bytes == 320_KiB);
    }
    EXPECT_EQ(at, segment.address + segment.size_bytes);
    bytes += segment.size_bytes;
  }
  EXPECT_EQ(bytes, static_cast<std::uint64_t>(reserved()));
}

}  // namespace
}  // namespace headroom::memory
