// Each device call of a scenario with a PagedAllocator is made to fail, alone and among others: the
// allocator stays whole, keeps its limit, loses nothing, and the next allocation works.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
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

constexpr std::uint64_t kFaultCapacity = 24_MiB;
// Pages so small that there are halves, whole and large ones among so few bytes.
constexpr PagedOptions kFaultOptions{.page_bytes = 64_KiB,
                                     .large_page_bytes = 128_KiB,
                                     .large_from_bytes = 512_KiB,
                                     .cushion_bytes = 0};

// Sanitizers make each run some ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsThorough = false;
#else
constexpr bool kIsThorough = true;
#endif

// A program that goes on whatever fails: operations of every kind.
class PagedScenario {
 public:
  PagedScenario(PagedAllocator& allocator, FaultDevice& faulty, StreamId side, PoolId pool)
      : allocator_(allocator), faulty_(faulty), side_(side), pool_(pool) {}

  // The first broken promise, or nothing.
  std::optional<std::string> run() {
    for (; round_ < 2; ++round_) {
      churn(StreamId::kDefault);
      churn(side_);
      allocator_.mark_step();
      shortage();
      in_a_pool();
      if (round_ == 0) {
        allocator_.trim(1_MiB);
      } else {
        allocator_.empty_cache();
      }
      check();
    }
    while (!held_.empty()) free(held_.size() / 2, held_.size() % 3 == 0);
    check();
    return broken_;
  }

 private:
  void check() {
    if (!broken_) broken_ = allocator_.check_invariants();
    const auto reserved =
        static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
    if (!broken_ && limit_ && reserved > *limit_) broken_ = "more is reserved than the limit";
  }
  // Looking at everything takes longer than the operation.
  void check_if_failed() {
    if (faulty_.failed() == failed_) return;
    failed_ = faulty_.failed();
    check();
  }
  void set_limit(std::optional<std::uint64_t> limit) {
    const auto reserved =
        static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
    allocator_.set_limit(limit);
    limit_ = limit ? std::optional(std::max(*limit, reserved)) : limit;
  }

  void allocate(std::uint64_t size, StreamId stream) {
    if (const auto block = allocator_.try_allocate(size, stream)) held_.push_back(*block);
    check_if_failed();
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
    check_if_failed();
  }

  void churn(StreamId stream) {
    constexpr std::array<std::uint64_t, 8> kSizes{
        512, 300_KiB, 100_KiB, 1_MiB, 40_KiB, 700_KiB, 64_KiB + 1, 190_KiB};
    for (std::size_t i = 0; i < 2 * kSizes.size(); ++i) {
      allocate(kSizes[(i + round_) % kSizes.size()], stream);
      if (i % 3 == 2) free(i, i % 2 == 0);
    }
    allocator_.process_events();
    for (std::size_t i = 0; i < 6; ++i) free(3 * i, i % 2 == 1);
  }

  // More than the limit has; then what pages of both kinds must be moved for.
  void shortage() {
    set_limit(14_MiB);
    allocate(5_MiB, StreamId::kDefault);
    allocate(5_MiB, side_);
    for (std::size_t i = 0; i < 6; ++i) allocate(500_KiB, i % 2 == 0 ? side_ : StreamId::kDefault);
    for (std::size_t i = 0; i < 6; ++i) free(2 * i, i == 0);
    allocate(3_MiB, StreamId::kDefault);
    allocate(12_MiB, side_);
    for (std::size_t i = 0; i < 4; ++i) free(held_.size() - 1, i == 0);
    allocate(2_MiB, side_);
    set_limit(std::nullopt);
    (void)allocator_.reserve(1_MiB, side_);
    check_if_failed();
  }

  void in_a_pool() {
    allocator_.begin_allocate_to_pool(pool_, nullptr);
    allocate(512, side_);
    allocate(11_MiB, StreamId::kDefault);
    allocator_.end_allocate_to_pool(pool_);
    free(held_.size() - 1, true);
  }

  PagedAllocator& allocator_;
  FaultDevice& faulty_;
  StreamId side_;
  PoolId pool_;
  std::size_t round_ = 0;
  std::vector<DeviceAddress> held_;
  std::optional<std::string> broken_;
  std::optional<std::uint64_t> limit_;
  std::uint64_t failed_ = 0;
};

// A device inside a FaultDevice, and an allocator over both.
template <class Backend>
class PagedFaultyWorld {
 public:
  PagedFaultyWorld()
      : inner_(Backend::make({.capacity_bytes = kFaultCapacity, .granularity_bytes = 32_KiB})),
        faulty_(*inner_),
        side_(faulty_.create_stream().value()) {
    renew();
  }

  // A new allocator; nothing is planned to fail.
  void renew() {
    faulty_.clear();
    allocator_.reset();
    allocator_ = std::make_unique<PagedAllocator>(faulty_, kFaultOptions);
    pool_ = allocator_->new_pool_id();
    faulty_.clear();
  }
  [[nodiscard]] FaultDevice& faulty() { return faulty_; }
  [[nodiscard]] StreamId side() const { return side_; }
  [[nodiscard]] PagedAllocator& allocator() { return *allocator_; }
  [[nodiscard]] std::optional<std::string> run() {
    return PagedScenario(*allocator_, faulty_, side_, pool_).run();
  }

  // What is wrong when nothing is held any more and the cache has been emptied; or nothing.
  [[nodiscard]] std::string leftovers() {
    release_pool();
    allocator_->empty_cache();
    std::string found;
    const Statistics stats = allocator_->statistics();
    if (stats.reserved_bytes.all.current != 0) found += "bytes are reserved; ";
    if (stats.segment.all.current != 0) found += "handles are counted; ";
    if (stats.active.all.current != 0) found += "blocks are active; ";
    if (auto broken = allocator_->check_invariants()) found += *broken + "; ";
    if (free_bytes() != kFaultCapacity) found += "the device lacks memory; ";
    return found;
  }
  [[nodiscard]] bool has_events() {
    return inner_->calls(Call::kRecordEvent) != inner_->calls(Call::kReleaseEvent);
  }
  // The same when the allocator is gone.
  [[nodiscard]] std::string leftovers_of_none() {
    allocator_.reset();
    std::string found;
    if (free_bytes() != kFaultCapacity) found += "the device lacks memory; ";
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
  [[nodiscard]] std::uint64_t free_bytes() { return inner_->memory_info().value().free_bytes; }

 private:
  TestDevice inner_;
  FaultDevice faulty_;
  StreamId side_;
  std::unique_ptr<PagedAllocator> allocator_;
  PoolId pool_{};
};

template <class Backend>
class PagedFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = Backend::why_none()) GTEST_SKIP() << *why;
  }
  // After a run with faults, everything is as it should be.
  static void expect_whole(PagedFaultyWorld<Backend>& world) {
    world.faulty().clear();
    const auto next = world.allocator().try_allocate(3_MiB);
    ASSERT_TRUE(next.has_value()) << "the next allocation";
    ASSERT_TRUE(worked(world.allocator().try_free(*next)));
    ASSERT_EQ(world.leftovers(), "");
  }
};
using FaultBackends = ::testing::Types<CpuMemory, MetaMemory>;
TYPED_TEST_SUITE(PagedFaults, FaultBackends, BackendNames);

constexpr std::array kPagedCalls{Call::kReserveAddresses,
                                 Call::kReleaseAddresses,
                                 Call::kCreatePages,
                                 Call::kReleasePages,
                                 Call::kMapPages,
                                 Call::kUnmapPages,
                                 Call::kRecordEvent,
                                 Call::kQueryEvent,
                                 Call::kWaitEvent,
                                 Call::kSynchronizeEvent,
                                 Call::kReleaseEvent};

TYPED_TEST(PagedFaults, EachCallAtEachPositionLosesNothing) {
  PagedFaultyWorld<TypeParam> world;
  ASSERT_EQ(world.run(), std::nullopt);
  ASSERT_EQ(world.leftovers(), "");
  const std::uint64_t clean_calls = world.faulty().seen();
  for (const Call call : kPagedCalls) {
    EXPECT_GE(world.faulty().seen(call), 1U) << to_string(call) << " is part of the scenario";
  }
  this->RecordProperty("calls", std::to_string(clean_calls));
  // Every call on one backend; on the other, which takes longer, some of them.
  const std::uint64_t stride = kIsThorough && std::is_same_v<TypeParam, MetaMemory> ? 1 : 23;
  std::uint64_t runs = 0;
  std::uint64_t hits = 0;
  for (std::uint64_t position = 1; position <= clean_calls; position += stride, ++runs) {
    const StatusCode code = runs % 2 == 0 ? StatusCode::kOutOfMemory : StatusCode::kFailed;
    SCOPED_TRACE("call " + std::to_string(position) + ": " + std::string(to_string(code)));
    world.renew();
    world.faulty().fail_at(position, code);
    ASSERT_EQ(world.run(), std::nullopt);
    (void)world.leftovers();  // the last calls are those of the clean-up
    hits += world.faulty().failed();
    ASSERT_NO_FATAL_FAILURE(this->expect_whole(world));
  }
  ASSERT_EQ(world.leftovers_of_none(), "");
  // Where streams have threads of their own, how often events are asked for is a matter of luck.
  EXPECT_GE(hits, runs * 8 / 10);
}

TYPED_TEST(PagedFaults, ManyCallsThatFailAtRandomLoseNothing) {
  PagedFaultyWorld<TypeParam> world;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::uint64_t one_in = std::array{3U, 10U, 40U}[seed % 3];
    world.renew();
    for (std::uint64_t position = 1; position < 1500; ++position) {
      if (random() % one_in != 0) continue;
      world.faulty().fail_at(position,
                             random() % 2 == 0 ? StatusCode::kOutOfMemory : StatusCode::kFailed);
    }
    ASSERT_EQ(world.run(), std::nullopt);
    ASSERT_NO_FATAL_FAILURE(this->expect_whole(world));
  }
  ASSERT_EQ(world.leftovers_of_none(), "");
}

// A kind of call that fails for good from some position on, then comes back.
TYPED_TEST(PagedFaults, ACallThatFailsForLongIsMadeUpForLater) {
  PagedFaultyWorld<TypeParam> world;
  for (const Call call : kPagedCalls) {
    if (call == Call::kReleaseEvent) continue;  // an event that is not released is lost
    for (const StatusCode code : {StatusCode::kOutOfMemory, StatusCode::kFailed}) {
      for (const std::uint64_t position : {1U, 3U, 20U}) {
        SCOPED_TRACE(std::string(to_string(call)) + " from " + std::to_string(position) +
                     " on: " + std::string(to_string(code)));
        world.renew();
        world.faulty().fail_at(call, position, code, UINT64_MAX);
        ASSERT_EQ(world.run(), std::nullopt);
        ASSERT_NO_FATAL_FAILURE(this->expect_whole(world));
      }
    }
  }
  ASSERT_EQ(world.leftovers_of_none(), "");
  EXPECT_FALSE(world.has_events()) << "each was released";
}

// A driver that goes away takes everything with it: freeing and giving back count as done.
TYPED_TEST(PagedFaults, ADriverThatShutsDownIsNoError) {
  std::uint64_t clean_calls = 0;
  {
    PagedFaultyWorld<TypeParam> world;
    ASSERT_EQ(world.run(), std::nullopt);
    clean_calls = world.faulty().seen();
  }
  for (std::uint64_t position = 1; position <= clean_calls; position += 17) {
    SCOPED_TRACE("from call " + std::to_string(position) + " on");
    PagedFaultyWorld<TypeParam> world;
    world.faulty().fail_at(position, StatusCode::kShutDown, UINT64_MAX);
    ASSERT_EQ(world.run(), std::nullopt);
    EXPECT_EQ(world.allocator().misuse_count(), 0U);
    // Where streams have threads, a run may ask for fewer events and end before its turn comes.
    if (world.faulty().failed() == 0) {
      world.faulty().fail_at(1, StatusCode::kShutDown, UINT64_MAX);
    }
    const auto next = world.allocator().try_allocate(20_MiB);
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
TYPED_TEST(PagedFaults, NothingIsUnmappedThatCouldNotBeWaitedFor) {
  PagedFaultyWorld<TypeParam> world;
  PagedAllocator& allocator = world.allocator();
  allocator.free(allocator.allocate(4_MiB));
  world.faulty().fail_at(Call::kRecordEvent, 1, StatusCode::kFailed, UINT64_MAX);
  EXPECT_EQ(allocator.empty_cache(), 0U);
  EXPECT_EQ(world.free_bytes(), kFaultCapacity - 4_MiB);
  world.faulty().clear();
  EXPECT_EQ(allocator.empty_cache(), 4_MiB);
}

TYPED_TEST(PagedFaults, TheEndOfAnAllocatorGivesEverythingBack) {
  PagedFaultyWorld<TypeParam> world;
  PagedAllocator& allocator = world.allocator();
  const DeviceAddress pending = allocator.allocate(3_MiB);
  (void)allocator.record_stream(pending, world.side());
  allocator.free(pending);
  (void)allocator.allocate(512);
  allocator.begin_allocate_to_pool(allocator.new_pool_id(), nullptr);
  const DeviceAddress held = allocator.allocate(10_MiB, world.side());
  (void)allocator.record_stream(held, StreamId::kDefault);
  EXPECT_FALSE(allocator.try_allocate(2 * kFaultCapacity).has_value());
  allocator.begin_capture();
  allocator.free(allocator.allocate(1_MiB));
  EXPECT_EQ(world.leftovers_of_none(), "");
}

}  // namespace
}  // namespace headroom::memory::testing
