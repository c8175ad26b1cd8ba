// Each device call of a long scenario is made to fail in turn, under every setting: the allocator
// stays whole, loses nothing, and the next allocation works.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/fault_device.h"

#include "tests/memory/allocator_backends.h"
#include "tests/support/device_status.h"

namespace headroom::memory::testing {
namespace {

using device::Call;
using device::FaultDevice;
using device::StatusCode;
using headroom::testing::worked;

constexpr std::uint64_t kCapacity = 128_MiB;

// A program that goes on whatever fails: some hundred operations of every kind.
class Scenario {
 public:
  Scenario(CachingAllocator& allocator, StreamId side, PoolId pool)
      : allocator_(allocator), side_(side), pool_(pool) {}

  // The first broken invariant, or nothing.
  std::optional<std::string> run() {
    for (const char* settings : {"",
                                 "max_split_size_mb:20,garbage_collection_threshold:0.3",
                                 "expandable_segments:True",
                                 "expandable_segments:True,roundup_power2_divisions:4",
                                 "expandable_segments:False"}) {
      allocator_.configure(settings);
      churn(StreamId::kDefault);
      churn(side_);
      shortage();
      in_a_pool();
      if (round_ % 2 == 0) {
        allocator_.trim(8_MiB);
      } else {
        allocator_.empty_cache();
      }
      check();
      ++round_;
    }
    free_all();
    return broken_;
  }

 private:
  void check() {
    if (!broken_) broken_ = allocator_.check_invariants();
  }

  void allocate(std::uint64_t size, StreamId stream) {
    if (const auto block = allocator_.try_allocate(size, stream)) held_.push_back(*block);
    check();
  }

  void free(std::size_t index, bool is_used_elsewhere) {
    if (held_.empty()) return;
    const auto block = held_.begin() + static_cast<std::ptrdiff_t>(index % held_.size());
    if (is_used_elsewhere) {
      (void)allocator_.record_stream(*block, side_);
      (void)allocator_.record_stream(*block, StreamId::kDefault);
    }
    // Whatever the device says, a block that is held can be freed.
    const auto freed = allocator_.try_free(*block);
    if (!freed && !broken_) broken_ = "a free failed: " + to_string(freed.error());
    held_.erase(block);
    check();
  }

  void free_all() {
    while (!held_.empty()) free(held_.size() / 2, held_.size() % 3 == 0);
  }

  void churn(StreamId stream) {
    constexpr std::array<std::uint64_t, 7> kSizes{
        512, 700_KiB, 3_MiB, 24_MiB, 1_MiB, 11_MiB, 1_MiB + 1};
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      allocate(kSizes[(i + round_) % kSizes.size()], stream);
      if (i % 3 == 2) free(i, i % 2 == 0);
    }
    allocator_.process_events();
    for (std::size_t i = 0; i < 5; ++i) free(3 * i, i % 2 == 1);
  }

  // More than the limit, or the device, has.
  void shortage() {
    allocator_.set_limit(100_MiB);
    allocate(60_MiB, StreamId::kDefault);
    allocate(60_MiB, side_);
    allocator_.set_limit(std::nullopt);
    allocate(90_MiB, StreamId::kDefault);
    for (std::size_t i = 0; i < 3; ++i) free(held_.size() - 1, i == 0);
    if (const auto reserved = allocator_.reserve(40_MiB, side_); !reserved) check();
    check();
  }

  void in_a_pool() {
    allocator_.begin_allocate_to_pool(pool_, nullptr);
    allocate(2_MiB, StreamId::kDefault);
    allocate(512, side_);
    allocate(30_MiB, side_);
    allocator_.end_allocate_to_pool(pool_);
    free(held_.size() - 1, true);
  }

  CachingAllocator& allocator_;
  StreamId side_;
  PoolId pool_;
  std::size_t round_ = 0;
  std::vector<DeviceAddress> held_;
  std::optional<std::string> broken_;
};

// A device inside a FaultDevice, and an allocator over both.
template <class Backend>
class FaultyWorld {
 public:
  FaultyWorld()
      : inner_(Backend::make({.capacity_bytes = kCapacity, .granularity_bytes = 2_MiB})),
        faulty_(*inner_),
        side_(faulty_.create_stream().value()) {
    renew();
  }

  // A new allocator; nothing is planned to fail.
  void renew() {
    faulty_.clear();
    allocator_ = std::make_unique<CachingAllocator>(faulty_);
    pool_ = allocator_->new_pool_id();
  }
  [[nodiscard]] FaultDevice& faulty() { return faulty_; }
  [[nodiscard]] StreamId side() const { return side_; }
  [[nodiscard]] CachingAllocator& allocator() { return *allocator_; }
  [[nodiscard]] std::optional<std::string> run() {
    return Scenario(*allocator_, side_, pool_).run();
  }

  // What is wrong when nothing is held any more and the cache has been emptied; or nothing.
  [[nodiscard]] std::string leftovers() {
    release_pool();
    allocator_->empty_cache();
    std::string found;
    const Statistics stats = allocator_->statistics();
    if (stats.reserved_bytes.all.current != 0) found += "bytes are reserved; ";
    if (stats.active.all.current != 0) found += "blocks are active; ";
    if (auto broken = allocator_->check_invariants()) found += *broken + "; ";
    if (free_bytes() != kCapacity) found += "the device lacks memory; ";
    // What the inner device saw, it did.
    if (inner_->calls(Call::kReserveAddresses) != inner_->calls(Call::kReleaseAddresses)) {
      found += "addresses are reserved; ";
    }
    return found;
  }
  // As often as it was opened.
  void release_pool() {
    for (bool has_users = true; has_users;) {
      try {
        allocator_->release_pool(pool_);
      } catch (const InvalidArgument&) {
        has_users = false;
      }
    }
  }
  void drop_allocator() { allocator_.reset(); }
  [[nodiscard]] std::uint64_t free_bytes() { return inner_->memory_info().value().free_bytes; }

 private:
  TestDevice inner_;
  FaultDevice faulty_;
  StreamId side_;
  std::unique_ptr<CachingAllocator> allocator_;
  PoolId pool_{};
};

template <class Backend>
class AllocatorFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = Backend::why_none()) GTEST_SKIP() << *why;
  }
};
TYPED_TEST_SUITE(AllocatorFaults, AllocatorBackends, BackendNames);

TYPED_TEST(AllocatorFaults, EachCallAtEachPositionLosesNothing) {
  FaultyWorld<TypeParam> world;
  ASSERT_EQ(world.run(), std::nullopt);
  ASSERT_EQ(world.leftovers(), "");
  const std::uint64_t clean_calls = world.faulty().seen();
  ASSERT_GE(clean_calls, 200U) << "some hundred calls";
  for (const Call call : {Call::kAllocateSegment,
                          Call::kFreeSegment,
                          Call::kReserveAddresses,
                          Call::kReleaseAddresses,
                          Call::kCreatePages,
                          Call::kReleasePages,
                          Call::kMapPages,
                          Call::kUnmapPages,
                          Call::kRecordEvent,
                          Call::kQueryEvent,
                          Call::kSynchronizeEvent,
                          Call::kReleaseEvent}) {
    EXPECT_GE(world.faulty().seen(call), 5U) << to_string(call) << " is part of the scenario";
  }

  std::uint64_t hits = 0;
  for (const StatusCode code : {StatusCode::kOutOfMemory, StatusCode::kFailed}) {
    for (std::uint64_t position = 1; position <= clean_calls; ++position) {
      SCOPED_TRACE("call " + std::to_string(position) + ": " + std::string(to_string(code)));
      world.renew();
      world.faulty().fail_at(position, code);
      ASSERT_EQ(world.run(), std::nullopt);
      (void)world.leftovers();  // the last calls are those of the clean-up
      hits += world.faulty().failed();
      world.faulty().clear();
      const auto next = world.allocator().try_allocate(3_MiB);
      ASSERT_TRUE(next.has_value()) << "the next allocation";
      ASSERT_TRUE(worked(world.allocator().try_free(*next)));
      ASSERT_EQ(world.leftovers(), "");
    }
  }
  // Where streams have threads of their own, how often events are asked for is a matter of luck.
  EXPECT_GE(hits, 2 * clean_calls * 9 / 10);
}

// A kind of call that fails for good from some position on, then comes back.
TYPED_TEST(AllocatorFaults, ACallThatFailsForLongIsMadeUpForLater) {
  FaultyWorld<TypeParam> world;
  for (const Call call : {Call::kAllocateSegment,
                          Call::kFreeSegment,
                          Call::kReserveAddresses,
                          Call::kReleaseAddresses,
                          Call::kCreatePages,
                          Call::kReleasePages,
                          Call::kMapPages,
                          Call::kUnmapPages,
                          Call::kIsCapturing,
                          Call::kRecordEvent,
                          Call::kQueryEvent,
                          Call::kSynchronizeEvent,
                          Call::kMemoryInfo}) {
    for (const StatusCode code : {StatusCode::kOutOfMemory, StatusCode::kFailed}) {
      for (const std::uint64_t position : {1U, 2U, 3U, 5U, 8U}) {
        SCOPED_TRACE(std::string(to_string(call)) + " from " + std::to_string(position) +
                     " on: " + std::string(to_string(code)));
        world.renew();
        world.faulty().fail_at(call, position, code, UINT64_MAX);
        ASSERT_EQ(world.run(), std::nullopt);
        world.faulty().clear();
        ASSERT_EQ(world.leftovers(), "");
        ASSERT_TRUE(world.allocator().try_allocate(3_MiB).has_value());
      }
    }
  }
}

// A driver that goes away takes everything with it: freeing and giving back count as done.
TYPED_TEST(AllocatorFaults, ADriverThatShutsDownIsNoError) {
  std::uint64_t clean_calls = 0;
  {
    FaultyWorld<TypeParam> world;
    ASSERT_EQ(world.run(), std::nullopt);
    clean_calls = world.faulty().seen();
  }
  for (std::uint64_t position = 1; position <= clean_calls; position += 11) {
    SCOPED_TRACE("from call " + std::to_string(position) + " on");
    FaultyWorld<TypeParam> world;
    world.faulty().fail_at(position, StatusCode::kShutDown, UINT64_MAX);
    ASSERT_EQ(world.run(), std::nullopt);
    EXPECT_EQ(world.allocator().misuse_count(), 0U);
    // Where streams have threads, a run may ask for fewer events and end before its turn comes.
    if (world.faulty().failed() == 0) {
      world.faulty().fail_at(1, StatusCode::kShutDown, UINT64_MAX);
    }
    const auto next = world.allocator().try_allocate(100_MiB);
    ASSERT_FALSE(next.has_value());
    EXPECT_EQ(next.error().reason, FailureReason::kDevice);
    EXPECT_EQ(next.error().status, StatusCode::kShutDown);
    world.release_pool();
    world.allocator().empty_cache();
    ASSERT_EQ(world.allocator().statistics().reserved_bytes.all.current, 0);
    ASSERT_EQ(world.allocator().check_invariants(), std::nullopt);
  }
}

// Whoever may still use the pages: what could not be waited for is not unmapped.
TYPED_TEST(AllocatorFaults, NothingIsUnmappedThatCouldNotBeWaitedFor) {
  FaultyWorld<TypeParam> world;
  CachingAllocator& allocator = world.allocator();
  allocator.configure("expandable_segments:True");
  allocator.free(allocator.allocate(30_MiB));
  for (const Call call : {Call::kRecordEvent, Call::kSynchronizeEvent}) {
    world.faulty().fail_at(call, 1, StatusCode::kFailed);
    EXPECT_EQ(allocator.empty_cache(), 0U) << to_string(call);
    EXPECT_EQ(world.free_bytes(), kCapacity - 40_MiB) << to_string(call);
  }
  EXPECT_EQ(allocator.empty_cache(), 40_MiB);
}

TYPED_TEST(AllocatorFaults, TheEndOfAnAllocatorGivesEverythingBack) {
  for (const char* settings : {"", "expandable_segments:True"}) {
    FaultyWorld<TypeParam> world;
    CachingAllocator& allocator = world.allocator();
    allocator.configure(settings);
    const DeviceAddress pending = allocator.allocate(3_MiB);
    (void)allocator.record_stream(pending, world.side());
    allocator.free(pending);
    (void)allocator.allocate(512);
    allocator.begin_allocate_to_pool(allocator.new_pool_id(), nullptr);
    const DeviceAddress held = allocator.allocate(30_MiB, world.side());
    (void)allocator.record_stream(held, StreamId::kDefault);
    EXPECT_FALSE(allocator.try_allocate(2 * kCapacity).has_value());
    allocator.begin_capture();
    allocator.free(allocator.allocate(1_MiB));
    world.drop_allocator();
    EXPECT_EQ(world.free_bytes(), kCapacity) << settings;
    EXPECT_EQ(world.faulty().seen(Call::kReserveAddresses),
              world.faulty().seen(Call::kReleaseAddresses))
        << settings;
  }
}

}  // namespace
}  // namespace headroom::memory::testing
