// What a program that replaces another allocator asks of ours, for every backend: interior
// addresses, the largest cached block, pools with users and rules, tags.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"

#include "tests/memory/allocator_backends.h"
#include "tests/support/device_status.h"

namespace headroom::memory::testing {
namespace {

template <class Backend>
class AllocatorInterface : public AllocatorFixture<Backend> {
 protected:
  // A block of a private pool.
  DeviceAddress allocate_in(PoolId pool, std::uint64_t size_bytes) {
    this->allocator().begin_allocate_to_pool(pool, nullptr);
    const DeviceAddress block = this->allocator().allocate(size_bytes);
    this->allocator().end_allocate_to_pool(pool);
    this->allocator().release_pool(pool);  // the scope's own use
    return block;
  }
  PoolId retained_pool() {
    const PoolId pool = this->allocator().new_pool_id();
    this->allocator().retain_pool(pool);
    return pool;
  }
};
TYPED_TEST_SUITE(AllocatorInterface, AllocatorWorlds, BackendNames);

// --- Addresses -----------------------------------------------------------------------------------

TYPED_TEST(AllocatorInterface, AnInteriorAddressLeadsToItsBlock) {
  for (const char* settings : this->settings({"", "expandable_segments:True"})) {
    auto& allocator = this->start(settings);
    const StreamId side = this->new_stream();
    for (const std::uint64_t size : {std::uint64_t{1}, 5_KiB, 64_KiB, 700_KiB, 3_MiB, 45_MiB}) {
      const DeviceAddress other = allocator.allocate(size, side);
      const DeviceAddress block = allocator.allocate(size, side);
      const std::uint64_t whole = this->size_of(block);
      for (const DeviceAddress at : {block, block + size / 2, block + whole - 1}) {
        const auto place = allocator.locate(at);
        ASSERT_TRUE(place.has_value()) << size;
        EXPECT_EQ(place->block.address, block) << size;
        EXPECT_EQ(place->block.size_bytes, whole);
        EXPECT_EQ(place->block.requested_bytes, size);
        EXPECT_EQ(place->stream, side);
        EXPECT_TRUE(place->pool.is_default());
        const std::vector<SegmentInfo> segments = allocator.segments();
        const auto segment =
            std::ranges::find(segments, place->segment_address, &SegmentInfo::address);
        ASSERT_NE(segment, segments.end()) << size;
        EXPECT_EQ(place->segment_bytes, segment->size_bytes);
        EXPECT_LE(place->segment_address, block);
        EXPECT_GE(place->segment_address + place->segment_bytes, block + whole);
      }
      allocator.free(block);
      EXPECT_FALSE(allocator.locate(block).has_value()) << "freed";
      allocator.free(other);
    }
    EXPECT_FALSE(allocator.locate(0).has_value());
    EXPECT_FALSE(allocator.locate(4096).has_value());
  }
}

TYPED_TEST(AllocatorInterface, TheLargestCachedBlockIsWhatOneRequestGets) {
  auto& allocator = this->allocator();
  const StreamId side = this->new_stream();
  EXPECT_EQ(allocator.largest_cached_bytes(), 0U);
  // Both at once: a paged allocator would serve the second with the pages of the first.
  const DeviceAddress sides = allocator.allocate(48_MiB, side);
  const DeviceAddress own = allocator.allocate(24_MiB);
  allocator.free(sides);
  allocator.free(own);
  EXPECT_EQ(allocator.largest_cached_bytes(), 24_MiB);
  EXPECT_EQ(allocator.largest_cached_bytes(side), 48_MiB);
  const std::uint64_t reserved = this->reserved();
  const DeviceAddress block = allocator.allocate(allocator.largest_cached_bytes(side), side);
  EXPECT_EQ(this->reserved(), reserved);
  EXPECT_EQ(allocator.largest_cached_bytes(side), 0U);
  allocator.free(block);
}

// --- Pools ---------------------------------------------------------------------------------------

TYPED_TEST(AllocatorInterface, APoolCountsItsUsers) {
  auto& allocator = this->allocator();
  const PoolId pool = allocator.new_pool_id();
  EXPECT_EQ(allocator.pool_use_count(pool), 0);
  allocator.retain_pool(pool);
  EXPECT_EQ(allocator.pool_use_count(pool), 1);
  allocator.begin_allocate_to_pool(pool, nullptr);
  allocator.end_allocate_to_pool(pool);
  EXPECT_EQ(allocator.pool_use_count(pool), 2) << "a begin counts until it is released";
  allocator.retain_pool(pool);
  for (int left = 2; left >= 0; --left) {
    allocator.release_pool(pool);
    EXPECT_EQ(allocator.pool_use_count(pool), left);
  }
  EXPECT_THROW(allocator.release_pool(pool), InvalidArgument);
  EXPECT_THROW(allocator.retain_pool(pool), InvalidArgument) << "it cannot come back";
  EXPECT_THROW(allocator.retain_pool({}), InvalidArgument);
  for (const PoolId gone : {pool, allocator.new_pool_id()}) {
    EXPECT_THROW(allocator.set_pool_no_split(gone), InvalidArgument);
    EXPECT_THROW(allocator.set_pool_use_on_failure(gone, true), InvalidArgument);
  }
}

TYPED_TEST(AllocatorInterface, OnePoolIsListedAndEmptiedAlone) {
  for (const char* settings : this->settings({"", "expandable_segments:True"})) {
    auto& allocator = this->start(settings);
    const PoolId a = this->retained_pool();
    const PoolId b = this->retained_pool();
    const DeviceAddress in_default = allocator.allocate(3_MiB);
    const DeviceAddress in_a = this->allocate_in(a, 3_MiB);
    const DeviceAddress in_b = this->allocate_in(b, 3_MiB);
    EXPECT_EQ(allocator.locate(in_a + 1)->pool, a);
    std::size_t listed = 0;
    for (const PoolId pool : {PoolId{}, a, b}) {
      for (const SegmentInfo& segment : allocator.segments(pool)) {
        EXPECT_EQ(segment.pool, pool);
        ++listed;
      }
    }
    EXPECT_EQ(listed, allocator.segments().size());
    for (const DeviceAddress block : {in_default, in_a, in_b}) allocator.free(block);
    EXPECT_EQ(allocator.empty_cache(a), 0U) << "it is in use";
    allocator.release_pool(a);
    allocator.release_pool(b);
    const std::uint64_t before = this->reserved();
    const std::uint64_t given = allocator.empty_cache(a);
    EXPECT_GE(given, 3_MiB);
    EXPECT_EQ(this->reserved(), before - given);
    EXPECT_TRUE(allocator.segments(a).empty());
    EXPECT_FALSE(allocator.segments(b).empty());
    EXPECT_FALSE(allocator.segments(PoolId{}).empty());
    EXPECT_EQ(allocator.empty_cache(), before - given);
  }
}

TYPED_TEST(AllocatorInterface, APoolThatNeverSplitsGivesWholeSegments) {
  auto& allocator = this->allocator();
  const PoolId pool = this->retained_pool();
  allocator.set_pool_no_split(pool);
  const DeviceAddress small = this->allocate_in(pool, 1_KiB);
  const DeviceAddress middle = this->allocate_in(pool, 3_MiB);
  const DeviceAddress large = this->allocate_in(pool, 31_MiB);
  EXPECT_EQ(this->size_of(small), 2_MiB);
  EXPECT_EQ(this->size_of(middle), 20_MiB);
  EXPECT_EQ(this->size_of(large), 32_MiB);
  allocator.free(middle);
  EXPECT_EQ(this->allocate_in(pool, 2_MiB), middle);
  EXPECT_EQ(this->size_of(middle), 20_MiB) << "nor when it is cached";
  for (const DeviceAddress block : {small, middle, large}) allocator.free(block);
  allocator.release_pool(pool);
  EXPECT_EQ(allocator.empty_cache(), 54_MiB);
}

TYPED_TEST(AllocatorInterface, APoolMayServeWhatWouldFail) {
  auto& allocator = this->allocator();
  const PoolId pool = this->retained_pool();
  const DeviceAddress own = this->allocate_in(pool, 40_MiB);
  allocator.free(own);
  allocator.set_limit(this->reserved());
  EXPECT_FALSE(allocator.try_allocate(30_MiB).has_value()) << "not unless it is asked to";
  allocator.set_pool_use_on_failure(pool, true);
  EXPECT_FALSE(allocator.try_allocate(50_MiB).has_value()) << "nor what it does not have";
  const auto served = allocator.try_allocate(30_MiB);
  ASSERT_TRUE(served.has_value());
  EXPECT_EQ(allocator.locate(*served)->pool, pool);
  allocator.free(*served);
  allocator.set_pool_use_on_failure(pool, false);
  EXPECT_FALSE(allocator.try_allocate(30_MiB).has_value());
  EXPECT_EQ(this->allocate_in(pool, 40_MiB), own) << "the pool has all of it again";
  allocator.free(own);
  allocator.release_pool(pool);
}

// --- Tags ----------------------------------------------------------------------------------------

// Keeps the numbers in the tags of events.
class TagSink final : public EventSink {
 public:
  void record(const Event& event) noexcept override {
    if (event.tag != nullptr && *event.tag != nullptr) {
      told.emplace_back(event.action, *std::static_pointer_cast<int>(*event.tag));
    }
  }
  [[nodiscard]] std::vector<int> of(Action action) const {
    std::vector<int> out;
    for (const auto& [told_action, number] : told) {
      if (told_action == action) out.push_back(number);
    }
    return out;
  }
  std::vector<std::pair<Action, int>> told;
};

int number_in(const Tag& tag) { return tag ? *std::static_pointer_cast<int>(tag) : 0; }

TYPED_TEST(AllocatorInterface, EveryAllocationHasATag) {
  auto& allocator = this->allocator();
  const DeviceAddress before = allocator.allocate(1_KiB);
  TagSink sink;
  allocator.add_sink(sink);
  int made = 0;
  std::vector<std::weak_ptr<int>> tags;
  allocator.set_tag_maker([&] {
    auto tag = std::make_shared<int>(++made);
    tags.push_back(tag);
    return tag;
  });
  const DeviceAddress small = allocator.allocate(1_KiB);   // 1
  const DeviceAddress large = allocator.allocate(30_MiB);  // 2
  const DeviceAddress again = allocator.allocate(1_KiB);   // 3
  EXPECT_EQ(made, 3);
  EXPECT_EQ(number_in(allocator.find_block(small)->tag), 1);
  EXPECT_EQ(number_in(allocator.locate(large + 5)->block.tag), 2);
  EXPECT_EQ(number_in(allocator.find_block(before)->tag), 0) << "nobody made one then";
  bool is_seen = false;
  for (const SegmentInfo& segment : allocator.segments()) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.address != large) continue;
      is_seen = true;
      EXPECT_EQ(number_in(block.tag), 2);
      EXPECT_EQ(number_in(segment.tag), segment.address == large ? 2 : number_in(segment.tag));
    }
  }
  EXPECT_TRUE(is_seen);
  EXPECT_EQ(sink.of(Action::kAlloc), (std::vector{1, 2, 3}));
  const Action growth = TestFixture::kIsPaged ? Action::kSegmentMap : Action::kSegmentAlloc;
  EXPECT_EQ(std::ranges::count(sink.of(growth), 2), std::ssize(sink.of(growth)));
  EXPECT_FALSE(sink.of(growth).empty());

  allocator.free(small);
  allocator.free(before);
  EXPECT_EQ(sink.of(Action::kFreeRequested), std::vector{1});
  EXPECT_EQ(sink.of(Action::kFreeCompleted), std::vector{1});
  EXPECT_TRUE(tags[0].expired()) << "gone with the block";
  EXPECT_FALSE(tags[2].expired());
  allocator.set_tag_maker({});
  EXPECT_TRUE(tags[2].expired()) << "no more, and those that there are go";
  (void)allocator.allocate(1_KiB);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(number_in(allocator.find_block(again)->tag), 0);
  allocator.remove_sink(sink);
}

TYPED_TEST(AllocatorInterface, AFailureAndACallbackHaveTagsOfTheirOwn) {
  auto& allocator = this->allocator();
  allocator.set_limit(64_MiB);
  const DeviceAddress held = allocator.allocate(50_MiB);
  TagSink sink;
  allocator.add_sink(sink, {Action::kAlloc, Action::kOutOfMemory});
  int made = 0;
  allocator.set_tag_maker([&made] { return std::make_shared<int>(++made); });
  DeviceAddress inner = 0;
  bool was_asked = false;  // the allocation inside asks too
  const auto callback = allocator.add_free_callback([&] {
    if (std::exchange(was_asked, true)) return false;
    inner = allocator.allocate(1_KiB);  // 2, while 1 is under way
    allocator.free(held);
    return true;
  });
  const DeviceAddress outer = allocator.allocate(40_MiB);
  EXPECT_EQ(sink.of(Action::kAlloc), (std::vector{2, 1}));
  EXPECT_EQ(number_in(allocator.find_block(inner)->tag), 2);
  EXPECT_EQ(number_in(allocator.find_block(outer)->tag), 1);
  EXPECT_FALSE(allocator.try_allocate(1_GiB).has_value());
  EXPECT_EQ(sink.of(Action::kOutOfMemory), std::vector{3});
  allocator.set_tag_maker([]() -> Tag { throw 1; });
  const auto untagged = allocator.try_allocate(1_KiB);
  ASSERT_TRUE(untagged.has_value()) << "a maker that throws makes none";
  EXPECT_EQ(allocator.find_block(*untagged)->tag, nullptr);
  allocator.remove_callback(callback);
  allocator.remove_sink(sink);
}

}  // namespace
}  // namespace headroom::memory::testing
