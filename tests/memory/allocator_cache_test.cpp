// Limits, cached memory, peaks, settings and pools of an allocator, for every backend.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/peak_scope.h"

#include "tests/memory/allocator_backends.h"
#include "tests/support/device_status.h"

namespace headroom::memory::testing {
namespace {

using device::Call;
using device::StatusCode;
using headroom::testing::refused;
using headroom::testing::worked;
using ::testing::HasSubstr;

template <class Backend>
class AllocatorCache : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(AllocatorCache, AllocatorWorlds, BackendNames);

// What PyTorch's allocator decides so, and ours need not.
template <class Backend>
class CachingCache : public AllocatorFixture<Backend> {};
TYPED_TEST_SUITE(CachingCache, AllocatorBackends, BackendNames);

// --- Limits --------------------------------------------------------------------------------------

TYPED_TEST(AllocatorCache, FractionsOutsideZeroToOneAreRefused) {
  auto& allocator = this->allocator();
  allocator.set_memory_fraction(0.25);
  for (const double fraction : {1.0001, 2.0, -0.1, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(allocator.set_memory_fraction(fraction), InvalidArgument) << fraction;
  }
  EXPECT_EQ(allocator.limit(), this->kCapacity / 4) << "nothing has changed";
  EXPECT_EQ(allocator.memory_fraction(), 0.25);
  allocator.set_memory_fraction(0);
  EXPECT_FALSE(allocator.try_allocate(1).has_value());
  EXPECT_EQ(allocator.limit(), 0U);
}

TYPED_TEST(CachingCache, FractionsAreRoundedAsTheVersionDoes) {
  const auto limit_of = [&](double fraction, PyTorchVersion version) {
    auto& allocator = this->start("", version);
    allocator.set_memory_fraction(fraction);
    return allocator.limit();
  };
  const double total = static_cast<double>(this->device().properties().total_bytes);
  const double fraction = 1234567.75 / total;  // three quarters of a byte too many
  EXPECT_EQ(limit_of(fraction, kPyTorch29), 1234567U);
  EXPECT_EQ(limit_of(fraction, kPyTorch211), 1234567U);
  EXPECT_EQ(limit_of(fraction, kPyTorch213), 1234568U);
  EXPECT_EQ(limit_of(1.0, kPyTorch29), this->device().properties().total_bytes)
      << "2.9 keeps a limit";
  EXPECT_EQ(limit_of(1.0, kPyTorch211), std::nullopt);
  EXPECT_EQ(limit_of(1.0, kPyTorch213), std::nullopt);
}

TYPED_TEST(CachingCache, TheSettingsFractionIsTheFirstLimit) {
  auto& allocator = this->start("per_process_memory_fraction:0.5");
  EXPECT_EQ(allocator.limit(), this->kCapacity / 2);
  allocator.configure("per_process_memory_fraction:0.25");
  EXPECT_EQ(allocator.limit(), this->kCapacity / 2) << "later readings change no live limit";
}

TYPED_TEST(AllocatorCache, ALimitBelowWhatIsReservedTakesNothingAway) {
  auto& allocator = this->allocator();
  const DeviceAddress block = allocator.allocate(32_MiB);
  allocator.set_limit(1_MiB);
  EXPECT_EQ(this->reserved(), 32_MiB);
  EXPECT_FALSE(allocator.try_allocate(1).has_value());
  allocator.free(block);
  EXPECT_EQ(allocator.allocate(32_MiB), block) << "from the cache";
  allocator.set_limit(std::nullopt);
  EXPECT_TRUE(allocator.try_allocate(1).has_value());
}

// --- Trimming ------------------------------------------------------------------------------------

TYPED_TEST(CachingCache, EmptyCacheGivesBackWholeSegmentsOnly) {
  auto& allocator = this->allocator();
  const DeviceAddress held = allocator.allocate(512);
  allocator.free(allocator.allocate(1_MiB));
  allocator.free(allocator.allocate(50_MiB));
  EXPECT_EQ(allocator.empty_cache(), 50_MiB);
  EXPECT_EQ(this->reserved(), 2_MiB) << "the segment of a held block stays";
  EXPECT_EQ(this->free_bytes(), this->device().properties().total_bytes - 2_MiB);
  allocator.free(held);
  EXPECT_EQ(allocator.empty_cache(), 2_MiB);
  EXPECT_EQ(allocator.empty_cache(), 0U);
}

TYPED_TEST(CachingCache, TrimKeepsWhatItIsAskedTo) {
  auto& allocator = this->allocator();
  std::vector<DeviceAddress> blocks;
  for (const std::uint64_t size : {10_MiB, 40_MiB, 20_MiB, 512_KiB}) {
    blocks.push_back(allocator.allocate(size));
  }
  const DeviceAddress held = allocator.allocate(30_MiB);
  for (const DeviceAddress block : blocks) allocator.free(block);
  EXPECT_EQ(allocator.trim(100_MiB), 0U) << "72 MiB are cached";
  EXPECT_EQ(allocator.trim(32_MiB), 40_MiB) << "the largest first";
  EXPECT_EQ(this->reserved(), 62_MiB);
  EXPECT_EQ(allocator.trim(12_MiB), 20_MiB);
  EXPECT_EQ(allocator.trim(0), 12_MiB);
  EXPECT_EQ(this->reserved(), 30_MiB);
  EXPECT_EQ(this->size_of(held), 30_MiB);
}

TYPED_TEST(CachingCache, TrimUnmapsExpandablePages) {
  auto& allocator = this->start("expandable_segments:True");
  const DeviceAddress held = allocator.allocate(4_MiB);
  allocator.free(allocator.allocate(100_MiB));
  EXPECT_EQ(this->reserved(), 120_MiB);
  EXPECT_EQ(allocator.trim(116_MiB), 0U);
  EXPECT_EQ(allocator.trim(100_MiB), 100_MiB) << "the free run goes as a whole";
  EXPECT_EQ(this->reserved(), 20_MiB);
  EXPECT_EQ(this->size_of(held), 4_MiB);
}

TYPED_TEST(AllocatorCache, TrimReachesPoolsThatAreReleased) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  allocator.free(allocator.allocate(30_MiB));
  allocator.end_allocate_to_pool(pool);
  EXPECT_EQ(allocator.trim(1_MiB), 0U) << "the pool is still needed";
  allocator.release_pool(pool);
  EXPECT_EQ(allocator.trim(1_MiB), 30_MiB);
  EXPECT_EQ(this->reserved(), 0U);
}

TYPED_TEST(AllocatorCache, TrimWaitsForPendingFrees) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  const DeviceAddress block = allocator.allocate(32_MiB);
  ASSERT_TRUE(worked(allocator.record_stream(block, side)));
  allocator.free(block);
  EXPECT_EQ(allocator.trim(1_MiB), 32_MiB);
  EXPECT_EQ(this->reserved(), 0U);
}

// --- Reserving -----------------------------------------------------------------------------------

TYPED_TEST(AllocatorCache, ReserveTakesNBytesThatLaterServe) {
  for (const char* settings :
       this->settings({"", "max_split_size_mb:40", "expandable_segments:True"})) {
    auto& allocator = this->start(settings);
    const auto taken = allocator.reserve(100_MiB);
    ASSERT_TRUE(taken.has_value()) << settings;
    EXPECT_EQ(*taken, 100_MiB) << settings;
    EXPECT_EQ(this->reserved(), 100_MiB) << settings;
    EXPECT_EQ(this->allocated(), 0U);
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
    const std::uint64_t asked = this->device().calls(Call::kAllocateSegment);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(allocator.try_allocate(12_MiB).has_value());
    EXPECT_EQ(this->reserved(), 100_MiB) << settings;
    EXPECT_EQ(this->device().calls(Call::kAllocateSegment), asked) << settings;
  }
}

TYPED_TEST(AllocatorCache, ReserveCountsWhatItTakesBesidesWhatIsCached) {
  for (const char* settings : this->settings(
           {"", "expandable_segments:True", "expandable_segments:True,max_split_size_mb:20"})) {
    auto& allocator = this->start(settings);
    const DeviceAddress held = allocator.allocate(4_MiB);
    allocator.free(allocator.allocate(36_MiB));
    const std::uint64_t before = this->reserved();
    const auto taken = allocator.reserve(60_MiB);
    ASSERT_TRUE(taken.has_value()) << settings;
    EXPECT_EQ(*taken, 60_MiB) << settings;
    EXPECT_EQ(this->reserved(), before + 60_MiB) << settings;
    const std::uint64_t kept = this->kIsPaged ? 4_MiB : 20_MiB;
    EXPECT_EQ(allocator.empty_cache(), before + 60_MiB - kept) << settings;
    EXPECT_EQ(this->size_of(held), 4_MiB);
  }
}

TYPED_TEST(AllocatorCache, ReserveWithoutASizeTakesTheRest) {
  for (const char* settings :
       this->settings({"", "max_split_size_mb:64", "expandable_segments:True"})) {
    auto& allocator = this->start(settings);
    (void)allocator.allocate(30_MiB);
    const std::uint64_t before = this->reserved();
    const auto taken = allocator.reserve();
    ASSERT_TRUE(taken.has_value()) << settings;
    EXPECT_EQ(this->reserved(), before + *taken) << settings;
    EXPECT_LT(this->free_bytes(), 20_MiB) << settings;
    allocator.set_limit(this->reserved());
    EXPECT_EQ(allocator.reserve().value(), 0U) << "the limit leaves nothing";
    EXPECT_TRUE(allocator.try_allocate(31_MiB).has_value()) << settings;
    EXPECT_EQ(this->reserved(), before + *taken) << settings << ": it was served from the cache";
  }
}

TYPED_TEST(AllocatorCache, WhatIsReservedGoesBackOnDemand) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  ASSERT_TRUE(allocator.reserve().has_value());
  EXPECT_EQ(this->free_bytes(), 0U);
  const auto served = allocator.try_allocate(100_MiB, side);
  EXPECT_TRUE(served.has_value()) << "another stream cannot use the cache, but its memory";
  if constexpr (TestFixture::kIsPaged) {
    EXPECT_EQ(this->reserved(), this->kCapacity) << "pages are moved";
  } else {
    EXPECT_EQ(this->reserved(), 100_MiB);
  }
}

TYPED_TEST(AllocatorCache, ReserveTakesAllOrSaysSo) {
  auto& allocator = this->allocator();
  EXPECT_EQ(allocator.reserve(0).value(), 0U);
  for (const std::uint64_t size : {this->kCapacity + 1, device::kAbsurdSize, UINT64_MAX}) {
    const auto taken = allocator.reserve(size);
    ASSERT_FALSE(taken.has_value()) << size;
    EXPECT_EQ(taken.error().reason, FailureReason::kOutOfMemory) << size;
    EXPECT_NE(taken.error().report, nullptr);
  }
  allocator.set_limit(32_MiB);
  EXPECT_FALSE(allocator.reserve(40_MiB).has_value());
  EXPECT_TRUE(allocator.reserve(32_MiB).has_value());
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

// --- Peaks ---------------------------------------------------------------------------------------

TYPED_TEST(AllocatorCache, PeakScopesNestAndOverlap) {
  auto& allocator = this->allocator();
  const auto use = [&](std::uint64_t size) { allocator.free(allocator.allocate(size)); };
  const DeviceAddress base = allocator.allocate(2_MiB);
  auto outer = std::make_unique<PeakScope>(allocator);
  EXPECT_EQ(outer->peak_allocated(), 2_MiB);
  use(40_MiB);
  auto inner = std::make_unique<PeakScope>(allocator);
  EXPECT_EQ(inner->peak_allocated(), 2_MiB) << "from here on only";
  use(16_MiB);
  EXPECT_EQ(inner->peak_allocated(), 18_MiB);
  EXPECT_EQ(outer->peak_allocated(), 42_MiB);
  allocator.reset_peak_statistics();
  EXPECT_EQ(outer->peak_allocated(), 42_MiB) << "whatever else is reset";
  outer.reset();  // they overlap
  use(30_MiB);
  EXPECT_EQ(inner->peak_allocated(), 32_MiB);
  EXPECT_EQ(inner->peak_reserved(), this->kIsPaged ? 42_MiB : 60_MiB);
  EXPECT_EQ(inner->peak_live(), 32_MiB);
  EXPECT_EQ(allocator.statistics().allocated_bytes.all.peak, static_cast<std::int64_t>(32_MiB));
  allocator.free(base);
  EXPECT_EQ(inner->peak_allocated(), 32_MiB);
}

// --- Settings at run time ------------------------------------------------------------------------

TYPED_TEST(CachingCache, BadSettingsAreRefusedAndChangeNothing) {
  auto& allocator = this->start("max_split_size_mb:64");
  for (const char* text : {"max_split_size_mb:1",
                           "no_such_key:1",
                           "garbage_collection_threshold:1.5",
                           "expandable_segments:perhaps",
                           "max_split_size_mb",
                           "roundup_power2_divisions:3",
                           "max_split_size_mb:128,",
                           "expandable_segments:True,nonsense"}) {
    EXPECT_THROW(allocator.configure(text), InvalidArgument) << text;
    EXPECT_EQ(allocator.config().max_split_bytes, 64_MiB) << text;
    EXPECT_FALSE(allocator.config().expandable_segments) << text;
  }
  allocator.configure("expandable_segments:True");
  EXPECT_TRUE(allocator.config().expandable_segments);
  EXPECT_EQ(allocator.config().max_split_bytes, AllocatorConfig::kUnlimited)
      << "every reading resets it, as in PyTorch";
}

TYPED_TEST(CachingCache, SettingsChangedWhileBlocksLiveHoldForWhatComes) {
  auto& allocator = this->allocator();
  const DeviceAddress before = allocator.allocate(3_MiB + 1);
  EXPECT_EQ(this->size_of(before), 3_MiB + 512);
  allocator.configure("roundup_power2_divisions:2");
  const DeviceAddress after = allocator.allocate(3_MiB + 1);
  EXPECT_EQ(this->size_of(after), 4_MiB);
  EXPECT_EQ(this->size_of(before), 3_MiB + 512);
  allocator.free(before);
  allocator.free(after);
  EXPECT_EQ(allocator.empty_cache(), 20_MiB);
}

TYPED_TEST(AllocatorCache, SaysWhichAllocatorItIsAndHowItIsSet) {
  auto& allocator = this->allocator();
  const AllocatorChoice choice = allocator.settings();
  EXPECT_EQ(choice.paged.has_value(), TestFixture::kIsPaged);
  EXPECT_FALSE(choice.is_default);
  const auto twin = make_allocator(allocator.device(), choice);
  EXPECT_EQ(twin->settings(), choice);
  allocator.configure(choice);
  allocator.configure("");
  EXPECT_EQ(allocator.settings(), choice);
}

TYPED_TEST(AllocatorCache, AnotherAllocatorsSettingsAreRefused) {
  auto& allocator = this->allocator();
  const AllocatorChoice before = allocator.settings();
  const bool is_paged = TestFixture::kIsPaged;
  for (const char* text : {is_paged ? "backend:native" : "backend:paged", "no_such_key:1"}) {
    EXPECT_THROW(allocator.configure(text), InvalidArgument) << text;
  }
  if (is_paged) {
    EXPECT_THROW(allocator.configure("cushion:0.5"), InvalidArgument);
  } else {
    allocator.configure("max_split_size_mb:64");
    EXPECT_EQ(allocator.settings().config.max_split_bytes, 64_MiB);
    EXPECT_EQ(to_string(allocator.settings()), "pytorch:max_split_size_mb:64");
    allocator.configure(before);
  }
  EXPECT_EQ(allocator.settings(), before);
}

TYPED_TEST(AllocatorCache, KnowsWhetherACaptureIsUnderWay) {
  auto& allocator = this->allocator();
  EXPECT_FALSE(allocator.is_capturing());
  allocator.begin_capture();
  allocator.begin_capture();
  allocator.end_capture();
  EXPECT_TRUE(allocator.is_capturing());
  const DeviceAddress block = allocator.allocate(3_MiB);
  allocator.free(block);
  EXPECT_EQ(allocator.empty_cache(), 0U) << "nothing is given back";
  allocator.end_capture();
  EXPECT_FALSE(allocator.is_capturing());
  EXPECT_THROW(allocator.end_capture(), InvalidArgument);
  EXPECT_GT(allocator.empty_cache(), 0U);
}

// --- Private pools -------------------------------------------------------------------------------

TYPED_TEST(AllocatorCache, PoolsRefuseWhatMakesNoSense) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  EXPECT_THROW(allocator.begin_allocate_to_pool({}, nullptr), InvalidArgument);
  EXPECT_THROW(allocator.end_allocate_to_pool(pool), InvalidArgument);
  EXPECT_THROW(allocator.release_pool(pool), InvalidArgument);
  EXPECT_THROW(allocator.end_capture(), InvalidArgument);
  allocator.begin_allocate_to_pool(pool, nullptr);
  EXPECT_THROW(allocator.begin_allocate_to_pool(pool, nullptr), InvalidArgument) << "open";
  const DeviceAddress block = allocator.allocate(1_MiB);
  allocator.end_allocate_to_pool(pool);
  EXPECT_THROW(allocator.end_allocate_to_pool(pool), InvalidArgument);
  allocator.begin_allocate_to_pool(pool, nullptr);  // a second user
  allocator.end_allocate_to_pool(pool);
  allocator.release_pool(pool);
  allocator.release_pool(pool);
  EXPECT_THROW(allocator.release_pool(pool), InvalidArgument);
  EXPECT_THROW(allocator.begin_allocate_to_pool(pool, nullptr), InvalidArgument) << "released";
  allocator.free(block);
}

TYPED_TEST(AllocatorCache, APoolKeepsItsMemoryUntilItIsReleased) {
  for (const char* settings : this->settings({"", "expandable_segments:True"})) {
    auto& allocator = this->start(settings);
    const PoolId pool = allocator.new_pool_id();
    allocator.begin_allocate_to_pool(pool, nullptr);
    const DeviceAddress large = allocator.allocate(30_MiB);
    allocator.free(allocator.allocate(512));
    allocator.end_allocate_to_pool(pool);
    allocator.free(large);
    const std::uint64_t reserved = this->reserved();
    EXPECT_EQ(allocator.empty_cache(), 0U) << settings << ": the pool is still needed";
    EXPECT_NE(allocator.allocate(30_MiB), large) << settings << ": and serves nobody else";
    allocator.release_pool(pool);
    EXPECT_GE(allocator.empty_cache(), reserved) << settings;
    EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  }
}

TYPED_TEST(AllocatorCache, APoolReleasedWhileItIsOpenServesUntilItIsEnded) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  allocator.release_pool(pool);
  allocator.empty_cache();
  const auto served = allocator.try_allocate(4_MiB);
  ASSERT_TRUE(served.has_value());
  EXPECT_EQ(allocator.segments().at(0).pool, pool);
  allocator.end_allocate_to_pool(pool);
  const std::uint64_t of_pool = allocator.segments().at(0).size_bytes;
  allocator.free(*served);
  EXPECT_EQ(allocator.empty_cache(), of_pool);
  EXPECT_TRUE(allocator.segments().empty());
}

TYPED_TEST(AllocatorCache, ABlockOutlivesItsPool) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  allocator.begin_allocate_to_pool(pool, nullptr);
  const DeviceAddress block = allocator.allocate(4_MiB);
  allocator.end_allocate_to_pool(pool);
  allocator.release_pool(pool);
  allocator.empty_cache();
  EXPECT_EQ(this->size_of(block), 4_MiB);
  const std::uint64_t of_pool = allocator.segments().at(0).size_bytes;
  allocator.free(block);
  EXPECT_EQ(allocator.empty_cache(), of_pool);
  EXPECT_TRUE(allocator.segments().empty());
}

// --- Restoring -----------------------------------------------------------------------------------

TYPED_TEST(CachingCache, RestoreRefusesWhatCannotBe) {
  auto& allocator = this->allocator();
  const DeviceAddress at = this->device().allocate_segment(2_MiB).value();
  const auto block = [](DeviceAddress address, std::uint64_t size, BlockState state) {
    return BlockInfo{.address = address,
                     .size_bytes = size,
                     .requested_bytes = state == BlockState::kInactive ? 0 : size,
                     .state = state};
  };
  const auto segment = [&](std::vector<BlockInfo> blocks) {
    return SegmentInfo{
        .address = at, .size_bytes = 2_MiB, .is_small = true, .blocks = std::move(blocks)};
  };
  const SegmentInfo good = segment(
      {block(at, 1_MiB, BlockState::kAllocated), block(at + 1_MiB, 1_MiB, BlockState::kInactive)});
  SegmentInfo expandable = good;
  expandable.is_expandable = true;
  SegmentInfo nowhere = good;
  nowhere.address = 512;
  nowhere.blocks = {block(512, 2_MiB, BlockState::kAllocated)};
  SegmentInfo too_much_asked = good;
  too_much_asked.blocks[0].requested_bytes = 1_MiB + 1;
  using Segments = std::vector<SegmentInfo>;
  const std::vector<std::pair<const char*, Segments>> cases{
      {"a gap", {segment({block(at, 512, BlockState::kAllocated)})}},
      {"no blocks", {segment({})}},
      {"no bytes", {SegmentInfo{.address = at}}},
      {"an odd size",
       {segment({block(at, 1000, BlockState::kAllocated),
                 block(at + 1000, 2_MiB - 1000, BlockState::kInactive)})}},
      {"a size of zero",
       {segment({block(at, 0, BlockState::kAllocated), block(at, 2_MiB, BlockState::kInactive)})}},
      {"past the end", {segment({block(at, 3_MiB, BlockState::kAllocated)})}},
      {"free neighbours",
       {segment({block(at, 1_MiB, BlockState::kInactive),
                 block(at + 1_MiB, 1_MiB, BlockState::kInactive)})}},
      {"an unmapped block", {segment({block(at, 2_MiB, BlockState::kUnmapped)})}},
      {"more asked for than there is", {too_much_asked}},
      {"an expandable segment", {expandable}},
      {"memory that is not the device's", {nowhere}},
      {"the same segment twice", {good, good}},
      {"a good one and a bad one", {good, nowhere}}};
  for (const auto& [name, segments] : cases) {
    EXPECT_TRUE(refused(allocator.restore(segments), StatusCode::kInvalidArgument)) << name;
    EXPECT_EQ(this->reserved(), 0U) << name;
    EXPECT_EQ(allocator.check_invariants(), std::nullopt) << name;
  }

  ASSERT_TRUE(worked(allocator.restore(std::array{good})));
  EXPECT_EQ(this->reserved(), 2_MiB);
  EXPECT_EQ(this->allocated(), 1_MiB);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  EXPECT_TRUE(refused(allocator.restore(std::array{good}), StatusCode::kInvalidArgument))
      << "the allocator is in use";
  EXPECT_EQ(allocator.allocate(1_MiB), at + 1_MiB);
  allocator.free(at);
}

// Runs with holes, a tail and blocks in use: what one allocator has, another takes over and goes on
// with as the first would have.
TEST(RestoreExpandable, GoesOnWhereTheOtherStopped) {
  const device::MetaOptions card{.capacity_bytes = 1_GiB};
  const CachingOptions options{.config = {.expandable_segments = true}};
  const auto device = device::MetaDevice::create(card);
  CachingAllocator allocator(*device, options);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(allocator.allocate(15_MiB));
  blocks.push_back(allocator.allocate(300'000));
  for (const std::size_t i : {1U, 2U, 3U, 4U, 7U, 11U}) allocator.free(blocks[i]);
  ASSERT_GT(allocator.empty_cache(), 0U);

  const auto twin = device::MetaDevice::create(card);
  const device::MetaState state = device->state();
  const auto pages = twin->restore(state).value();
  std::vector<ReservationInfo> reservations;
  for (const auto& reservation : state.reservations) {
    const std::uint64_t page = reservation.pages.front().size_bytes;
    ReservationInfo& info = reservations.emplace_back();
    info.address = reservation.address;
    info.size_bytes = reservation.size_bytes;
    info.is_small = page == kSmallSegmentBytes;
    info.pages.resize(reservation.size_bytes / page, device::PageHandle::kNone);
    for (const device::RestoredPages& mapped : pages) {
      const std::uint64_t offset = mapped.address - reservation.address;
      if (offset < reservation.size_bytes) info.pages[offset / page] = mapped.handle;
    }
  }
  CachingAllocator other(*twin, options);
  const std::vector<SegmentInfo> segments = allocator.segments();
  ASSERT_GT(segments.size(), 2U) << "there are holes";
  EXPECT_TRUE(refused(other.restore(segments), StatusCode::kInvalidArgument));
  auto wrong = reservations;
  std::ranges::fill(wrong[0].pages, device::PageHandle::kNone);
  EXPECT_TRUE(refused(other.restore(segments, wrong), StatusCode::kInvalidArgument));
  ASSERT_TRUE(worked(other.restore(segments, reservations)));
  EXPECT_EQ(other.check_invariants(), std::nullopt);
  for (const std::uint64_t size : {4_MiB, 30_MiB, 16_MiB, 70_MiB, 2_MiB, 100_KiB}) {
    EXPECT_EQ(other.allocate(size), allocator.allocate(size)) << size;
  }
  EXPECT_EQ(other.empty_cache(), allocator.empty_cache());
  EXPECT_EQ(other.check_invariants(), std::nullopt);
}

// The flush takes two block objects for what sticks out of the pages it gives back; the request
// then splits one of the pieces and needs a third.
TEST(ExpandableFlush, LeavesWhatASplitNeeds) {
  const auto device = device::MetaDevice::create(
      {.capacity_bytes = 1_GiB, .events = device::EventCompletion::kByHand});
  CachingAllocator allocator(*device, {.config = {.expandable_segments = true}});
  const StreamId side = device->create_stream().value();
  const DeviceAddress front = allocator.allocate(5_MiB);
  const DeviceAddress held = allocator.allocate(50_MiB);
  const DeviceAddress back = allocator.allocate(5_MiB);
  ASSERT_EQ(held, front + 5_MiB);
  ASSERT_EQ(back, held + 50_MiB);
  ASSERT_TRUE(allocator.record_stream(held, side).has_value());
  allocator.free(held);
  allocator.set_limit(60_MiB);
  EXPECT_EQ(allocator.allocate(4_MiB), held) << "in front of the page that went";
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
  EXPECT_EQ(allocator.statistics().reserved_bytes.all.current, 40_MiB);
}

}  // namespace
}  // namespace headroom::memory::testing
