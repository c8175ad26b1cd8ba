// Each device call of a long scenario is made to fail, alone and among others: the allocator stays
// whole, keeps its limit, loses nothing, and the next allocation works.
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
#include "tests/support/sanitized.h"

namespace headroom::memory::testing {
namespace {

using device::Call;
using device::FaultDevice;
using device::StatusCode;
using headroom::testing::worked;

// Sanitizers make each run some ten times slower.
constexpr bool kIsThorough = !headroom::testing::kIsSanitized;

// A program that goes on whatever fails: operations of every kind. Its sizes are those of a Plan,
// one for each allocator.
template <class Plan>
class Scenario {
 public:
  using Core = typename Plan::Core;

  Scenario(Core& allocator, FaultDevice& faulty, StreamId side, PoolId pool)
      : allocator_(allocator), faulty_(faulty), side_(side), pool_(pool) {}

  // The first broken promise, or nothing.
  std::optional<std::string> run() {
    for (; round_ < Plan::kRounds; ++round_) {
      Plan::begin_round(allocator_, round_);
      churn(StreamId::kDefault);
      churn(side_);
      Plan::between(allocator_);
      Plan::shortage(*this);
      in_a_pool();
      if (round_ % 2 == 0) {
        allocator_.trim(Plan::kTrimBytes);
      } else {
        allocator_.empty_cache();
      }
      check();
    }
    while (!held_.empty()) free(held_.size() / 2, held_.size() % 3 == 0);
    check();
    return broken_;
  }

  void set_limit(std::optional<std::uint64_t> limit) {
    const std::uint64_t reserved = reserved_bytes();
    allocator_.set_limit(limit);
    limit_ = limit ? std::optional(std::max(*limit, reserved)) : limit;
  }
  void allocate(std::uint64_t size, bool on_side = false) {
    const StreamId stream = on_side ? side_ : StreamId::kDefault;
    if (const auto block = allocator_.try_allocate(size, stream)) held_.push_back(*block);
    check_if_due();
  }
  void reserve_on_side(std::uint64_t size) {
    (void)allocator_.reserve(size, side_);
    check_if_due();
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
    check_if_due();
  }
  void free_last(bool is_used_elsewhere) { free(held_.size() - 1, is_used_elsewhere); }

 private:
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
  }
  void check() {
    if (!broken_) broken_ = allocator_.check_invariants();
    // Segments that cannot be given back stay, whatever the limit.
    if (!broken_ && Plan::kKeepsAddresses && limit_ && reserved_bytes() > *limit_) {
      broken_ = "more is reserved than the limit";
    }
  }
  void check_if_due() {
    const bool has_failed = faulty_.failed() != failed_;
    failed_ = faulty_.failed();
    if (has_failed || Plan::kChecksEachOperation) check();
  }

  void churn(StreamId stream) {
    const auto& sizes = Plan::kSizes;
    for (std::size_t i = 0; i < Plan::kSweeps * sizes.size(); ++i) {
      allocate(sizes[(i + round_) % sizes.size()], stream == side_);
      if (i % 3 == 2) free(i, i % 2 == 0);
    }
    allocator_.process_events();
    for (std::size_t i = 0; i < 6; ++i) free(3 * i, i % 2 == 1);
  }

  void in_a_pool() {
    allocator_.begin_allocate_to_pool(pool_, nullptr);
    allocate(512, true);
    allocate(Plan::kPoolBytes);
    allocate(Plan::kPoolBytes / 4, true);
    allocator_.end_allocate_to_pool(pool_);
    free_last(true);
  }

  Core& allocator_;
  FaultDevice& faulty_;
  StreamId side_;
  PoolId pool_;
  std::size_t round_ = 0;
  std::vector<DeviceAddress> held_;
  std::optional<std::string> broken_;
  std::optional<std::uint64_t> limit_;
  std::uint64_t failed_ = 0;
};

struct CachingPlan {
  using Core = CachingAllocator;
  static constexpr std::uint64_t kCapacity = 128_MiB;
  static constexpr std::uint64_t kGranularity = 2_MiB;
  static constexpr std::uint64_t kTrimBytes = 8_MiB;
  static constexpr std::uint64_t kPoolBytes = 30_MiB;
  static constexpr std::size_t kSweeps = 1;
  static constexpr std::array<std::uint64_t, 7> kSizes{
      512, 700_KiB, 3_MiB, 24_MiB, 1_MiB, 11_MiB, 1_MiB + 1};
  static constexpr bool kChecksEachOperation = true;
  static constexpr bool kKeepsAddresses = false;  // with nothing held, it has none reserved
  static constexpr int kCodesPerPosition = 2;
  static constexpr std::array kSettings{"",
                                        "max_split_size_mb:20,garbage_collection_threshold:0.3",
                                        "expandable_segments:True",
                                        "expandable_segments:True,roundup_power2_divisions:4",
                                        "expandable_segments:False"};
  static constexpr std::size_t kRounds = kSettings.size();
  static constexpr std::array kCalls{Call::kAllocateSegment,
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
                                     Call::kReleaseEvent};
  static constexpr std::uint64_t kLeastOfACall = 5;
  static constexpr std::array kOutages{1U, 2U, 3U, 5U, 8U};  // where a long failure begins
  // Some positions where every one would take too long.
  static constexpr std::uint64_t stride(bool /*is_meta*/) { return 1; }
  static constexpr std::uint64_t kNeverServed = 100_MiB;

  static std::unique_ptr<Core> make(FaultDevice& device) { return std::make_unique<Core>(device); }
  static void begin_round(Core& allocator, std::size_t round) {
    allocator.configure(kSettings[round]);
  }
  static void between(Core& /*allocator*/) {}

  // More than the limit, or the device, has.
  static void shortage(Scenario<CachingPlan>& run) {
    run.set_limit(100_MiB);
    run.allocate(60_MiB);
    run.allocate(60_MiB, true);
    run.set_limit(std::nullopt);
    run.allocate(90_MiB);
    for (std::size_t i = 0; i < 3; ++i) run.free_last(i == 0);
    run.reserve_on_side(40_MiB);
  }
};

struct PagedPlan {
  using Core = PagedAllocator;
  static constexpr std::uint64_t kCapacity = 24_MiB;
  static constexpr std::uint64_t kGranularity = 32_KiB;
  static constexpr std::uint64_t kTrimBytes = 1_MiB;
  static constexpr std::uint64_t kPoolBytes = 11_MiB;
  static constexpr std::size_t kSweeps = 2;
  static constexpr std::array<std::uint64_t, 8> kSizes{
      512, 300_KiB, 100_KiB, 1_MiB, 40_KiB, 700_KiB, 64_KiB + 1, 190_KiB};
  static constexpr bool kChecksEachOperation = false;  // a check takes longer than the operation
  static constexpr bool kKeepsAddresses = true;
  static constexpr int kCodesPerPosition = 1;
  static constexpr std::size_t kRounds = 2;
  // Its worlds are not there in the tests for GPUs.
  [[maybe_unused]] static constexpr std::array kCalls{Call::kReserveAddresses,
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
  static constexpr std::uint64_t kLeastOfACall = 1;
  [[maybe_unused]] static constexpr std::array kOutages{1U, 3U, 20U};
  static constexpr std::uint64_t stride(bool is_meta) { return kIsThorough && is_meta ? 1 : 23; }
  static constexpr std::uint64_t kNeverServed = 20_MiB;

  // Pages so small that there are halves, whole and large ones among so few bytes.
  static std::unique_ptr<Core> make(FaultDevice& device) {
    return std::make_unique<Core>(device,
                                  PagedOptions{.page_bytes = 64_KiB,
                                               .large_page_bytes = 128_KiB,
                                               .large_from_bytes = 512_KiB,
                                               .cushion_bytes = 0});
  }
  static void begin_round(Core& /*allocator*/, std::size_t /*round*/) {}
  static void between(Core& allocator) { allocator.mark_step(); }

  // More than the limit has; then what pages of both kinds must be moved for.
  static void shortage(Scenario<PagedPlan>& run) {
    run.set_limit(14_MiB);
    run.allocate(5_MiB);
    run.allocate(5_MiB, true);
    for (std::size_t i = 0; i < 6; ++i) run.allocate(500_KiB, i % 2 == 0);
    for (std::size_t i = 0; i < 6; ++i) run.free(2 * i, i == 0);
    run.allocate(3_MiB);
    run.allocate(12_MiB, true);
    for (std::size_t i = 0; i < 4; ++i) run.free_last(i == 0);
    run.allocate(2_MiB, true);
    run.set_limit(std::nullopt);
    run.reserve_on_side(1_MiB);
  }
};

// A device inside a FaultDevice, and an allocator over both.
template <class Backend>
class FaultyWorld {
 public:
  using Core = typename Backend::Core;
  using Plan = std::conditional_t<std::is_same_v<Core, PagedAllocator>, PagedPlan, CachingPlan>;

  FaultyWorld()
      : inner_(Backend::make(
            {.capacity_bytes = Plan::kCapacity, .granularity_bytes = Plan::kGranularity})),
        faulty_(*inner_),
        side_(faulty_.create_stream().value()) {
    renew();
  }

  // A new allocator; nothing is planned to fail.
  void renew() {
    faulty_.clear();
    allocator_.reset();
    allocator_ = Plan::make(faulty_);
    pool_ = allocator_->new_pool_id();
    faulty_.clear();
  }
  [[nodiscard]] FaultDevice& faulty() { return faulty_; }
  [[nodiscard]] StreamId side() const { return side_; }
  [[nodiscard]] Core& allocator() { return *allocator_; }
  [[nodiscard]] std::optional<std::string> run() {
    return Scenario<Plan>(*allocator_, faulty_, side_, pool_).run();
  }

  // What is wrong when nothing is held any more and the cache has been emptied; or nothing.
  [[nodiscard]] std::string leftovers() {
    release_pool();
    allocator_->empty_cache();
    std::string found;
    const Statistics stats = allocator_->statistics();
    if (stats.reserved_bytes.all.current != 0) found += "bytes are reserved; ";
    if (stats.segment.all.current != 0) found += "segments are counted; ";
    if (stats.active.all.current != 0) found += "blocks are active; ";
    if (auto broken = allocator_->check_invariants()) found += *broken + "; ";
    return found + leftovers_of_device(!Plan::kKeepsAddresses);
  }
  // The same when the allocator is gone.
  [[nodiscard]] std::string leftovers_of_none() {
    allocator_.reset();
    return leftovers_of_device(true);
  }
  [[nodiscard]] bool has_events() {
    return inner_->calls(Call::kRecordEvent) != inner_->calls(Call::kReleaseEvent);
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
  [[nodiscard]] std::string leftovers_of_device(bool has_no_addresses) {
    std::string found;
    if (free_bytes() != Plan::kCapacity) found += "the device lacks memory; ";
    // What the inner device saw, it did.
    if (has_no_addresses &&
        inner_->calls(Call::kReserveAddresses) != inner_->calls(Call::kReleaseAddresses)) {
      found += "addresses are reserved; ";
    }
    return found;
  }

  TestDevice inner_;
  FaultDevice faulty_;
  StreamId side_;
  std::unique_ptr<Core> allocator_;
  PoolId pool_{};
};

template <class Backend>
class AllocatorFaults : public ::testing::Test {
 protected:
  using World = FaultyWorld<Backend>;
  static constexpr bool kIsMeta = std::is_base_of_v<MetaMemory, Backend>;

  void SetUp() override {
    if (const auto why = Backend::why_none()) GTEST_SKIP() << *why;
  }
  // After a run with faults, everything is as it should be.
  static void expect_whole(World& world) {
    world.faulty().clear();
    ASSERT_EQ(world.leftovers(), "");
    const auto next = world.allocator().try_allocate(3_MiB);
    ASSERT_TRUE(next.has_value()) << "the next allocation: " << to_string(next.error().status)
                                  << (next.error().report ? next.error().report->text : "");
    ASSERT_TRUE(worked(world.allocator().try_free(*next)));
    ASSERT_EQ(world.leftovers(), "");
  }
};

#if defined(HEADROOM_TEST_CUDA)
using FaultWorlds = ::testing::Types<CudaMemory>;  // whose pages are larger than PagedPlan's
#else
using FaultWorlds = AllocatorWorlds;
#endif
TYPED_TEST_SUITE(AllocatorFaults, FaultWorlds, BackendNames);

TYPED_TEST(AllocatorFaults, EachCallAtEachPositionLosesNothing) {
  using Plan = typename TestFixture::World::Plan;
  typename TestFixture::World world;
  ASSERT_EQ(world.run(), std::nullopt);
  ASSERT_EQ(world.leftovers(), "");
  const std::uint64_t clean_calls = world.faulty().seen();
  for (const Call call : Plan::kCalls) {
    EXPECT_GE(world.faulty().seen(call), Plan::kLeastOfACall)
        << to_string(call) << " is part of the scenario";
  }
  this->RecordProperty("calls", std::to_string(clean_calls));

  std::uint64_t runs = 0;
  std::uint64_t hits = 0;
  for (std::uint64_t position = 1; position <= clean_calls;
       position += Plan::stride(TestFixture::kIsMeta)) {
    for (int i = 0; i < Plan::kCodesPerPosition; ++i) {
      const StatusCode code = runs++ % 2 == 0 ? StatusCode::kOutOfMemory : StatusCode::kFailed;
      SCOPED_TRACE("call " + std::to_string(position) + ": " + std::string(to_string(code)));
      world.renew();
      world.faulty().fail_at(position, code);
      ASSERT_EQ(world.run(), std::nullopt);
      (void)world.leftovers();  // the last calls are those of the clean-up
      hits += world.faulty().failed();
      ASSERT_NO_FATAL_FAILURE(this->expect_whole(world));
    }
  }
  ASSERT_EQ(world.leftovers_of_none(), "");
  // Where streams have threads of their own, how often events are asked for is a matter of luck.
  EXPECT_GE(hits, runs * 8 / 10);
}

TYPED_TEST(AllocatorFaults, ManyCallsThatFailAtRandomLoseNothing) {
  typename TestFixture::World world;
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
TYPED_TEST(AllocatorFaults, ACallThatFailsForLongIsMadeUpForLater) {
  using Plan = typename TestFixture::World::Plan;
  typename TestFixture::World world;
  std::vector<Call> calls(Plan::kCalls.begin(), Plan::kCalls.end());
  calls.insert(calls.end(), {Call::kIsCapturing, Call::kMemoryInfo});
  std::erase(calls, Call::kReleaseEvent);  // an event that is not released is lost
  for (const Call call : calls) {
    for (const StatusCode code : {StatusCode::kOutOfMemory, StatusCode::kFailed}) {
      for (const std::uint64_t position : Plan::kOutages) {
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
TYPED_TEST(AllocatorFaults, ADriverThatShutsDownIsNoError) {
  using Plan = typename TestFixture::World::Plan;
  std::uint64_t clean_calls = 0;
  {
    typename TestFixture::World world;
    ASSERT_EQ(world.run(), std::nullopt);
    clean_calls = world.faulty().seen();
  }
  for (std::uint64_t position = 1; position <= clean_calls; position += 11) {
    SCOPED_TRACE("from call " + std::to_string(position) + " on");
    typename TestFixture::World world;
    world.faulty().fail_at(position, StatusCode::kShutDown, UINT64_MAX);
    ASSERT_EQ(world.run(), std::nullopt);
    EXPECT_EQ(world.allocator().misuse_count(), 0U);
    // Where streams have threads, a run may ask for fewer events and end before its turn comes.
    if (world.faulty().failed() == 0) {
      world.faulty().fail_at(1, StatusCode::kShutDown, UINT64_MAX);
    }
    const auto next = world.allocator().try_allocate(Plan::kNeverServed);
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
  using Plan = typename TestFixture::World::Plan;
  typename TestFixture::World world;
  auto& allocator = world.allocator();
  if constexpr (!Plan::kKeepsAddresses) {
    allocator.configure("expandable_segments:True");
  }
  allocator.free(allocator.allocate(4_MiB));
  const std::uint64_t reserved = Plan::kCapacity - world.free_bytes();
  ASSERT_GE(reserved, 4_MiB);
  for (const Call call : {Call::kRecordEvent, Call::kSynchronizeEvent}) {
    // The paged allocator waits for no event that it could record itself.
    if (call == Call::kSynchronizeEvent && Plan::kKeepsAddresses) continue;
    world.faulty().fail_at(call, 1, StatusCode::kFailed, UINT64_MAX);
    EXPECT_EQ(allocator.empty_cache(), 0U) << to_string(call);
    EXPECT_EQ(world.free_bytes(), Plan::kCapacity - reserved) << to_string(call);
    world.faulty().clear();
  }
  EXPECT_EQ(allocator.empty_cache(), reserved);
}

TYPED_TEST(AllocatorFaults, TheEndOfAnAllocatorGivesEverythingBack) {
  using Plan = typename TestFixture::World::Plan;
  for (const char* settings : {"", "expandable_segments:True"}) {
    typename TestFixture::World world;
    auto& allocator = world.allocator();
    if constexpr (std::is_same_v<Plan, CachingPlan>) allocator.configure(settings);
    const DeviceAddress pending = allocator.allocate(3_MiB);
    (void)allocator.record_stream(pending, world.side());
    allocator.free(pending);
    (void)allocator.allocate(512);
    allocator.begin_allocate_to_pool(allocator.new_pool_id(), nullptr);
    const DeviceAddress held = allocator.allocate(10_MiB, world.side());
    (void)allocator.record_stream(held, StreamId::kDefault);
    EXPECT_FALSE(allocator.try_allocate(2 * Plan::kCapacity).has_value());
    allocator.begin_capture();
    allocator.free(allocator.allocate(1_MiB));
    EXPECT_EQ(world.leftovers_of_none(), "") << settings;
  }
}

}  // namespace
}  // namespace headroom::memory::testing
