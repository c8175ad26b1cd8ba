// Any thread may call an allocator: sixteen do everything at once on the cpu device, whose streams
// have threads of their own, and the data is checked in stream order. And what record_stream is
// for.
//
// Two seconds unless HEADROOM_STRESS_SECONDS says otherwise.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/env.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/memory/peak_scope.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"
#include "tests/support/stream_gate.h"

namespace headroom::memory {
namespace {

using device::CpuDevice;
using headroom::testing::StreamGate;
using headroom::testing::worked;

// --- What record_stream is for -------------------------------------------------------------------

// A copy on another stream is queued while the block is freed and its memory is asked for again.
// The gate holds that stream, so that the order is the same every time.
template <class Core>
class RecordStream : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 64_KiB;

  // What the other stream reads of a block filled with 0x11, when the block's memory may have been
  // filled with 0x22 by its next owner.
  std::uint8_t read_by_another_stream(bool is_recorded) {
    const DeviceAddress block = allocator_.allocate(kBytes);
    EXPECT_TRUE(worked(device_->fill(block, 0x11, kBytes, StreamId::kDefault)));
    std::vector<std::uint8_t> read(kBytes);
    StreamGate gate(*device_, side_);
    EXPECT_TRUE(worked(device_->copy_to_host(read.data(), block, kBytes, side_)));
    if (is_recorded) {
      EXPECT_TRUE(worked(allocator_.record_stream(block, side_)));
    }
    allocator_.free(block);

    next_ = allocator_.allocate(kBytes);
    has_reused_ = next_ == block;
    EXPECT_TRUE(worked(device_->fill(next_, 0x22, kBytes, StreamId::kDefault)));
    gate.open();
    EXPECT_TRUE(worked(device_->synchronize_stream(side_)));
    EXPECT_EQ(std::ranges::count(read, read.front()), static_cast<std::ptrdiff_t>(kBytes));
    return read.front();
  }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.capacity_bytes = 16_MiB});
  StreamId side_ = device_->create_stream().value();
  Core allocator_{*device_};
  DeviceAddress next_ = 0;
  bool has_reused_ = false;
};
using BothAllocators = ::testing::Types<CachingAllocator, PagedAllocator>;
TYPED_TEST_SUITE(RecordStream, BothAllocators);

TYPED_TEST(RecordStream, WithoutItTheOtherStreamReadsTheNextOwnersData) {
  EXPECT_EQ(this->read_by_another_stream(false), 0x22) << "this is the corruption";
  EXPECT_TRUE(this->has_reused_);
}

TYPED_TEST(RecordStream, WithItTheBlockWaitsForTheOtherStream) {
  EXPECT_EQ(this->read_by_another_stream(true), 0x11);
  EXPECT_FALSE(this->has_reused_);
  this->allocator_.process_events();
  EXPECT_NE(this->allocator_.allocate(this->kBytes), 0U);
  EXPECT_EQ(this->allocator_.statistics().active.all.current, 2) << "the free is complete now";
}

// --- Sixteen threads -----------------------------------------------------------------------------

constexpr int kThreads = 16;
constexpr std::size_t kStreams = 6;
constexpr std::uint64_t kCapacity = 64_MiB;

struct Held {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  std::uint8_t value = 0;
  StreamId stream{};
};

struct Shared {
  explicit Shared(bool is_paged) : core(make(*device, is_paged)) {}
  static std::unique_ptr<Allocator> make(CpuDevice& device, bool is_paged) {
    if (is_paged) return std::make_unique<PagedAllocator>(device);
    return std::make_unique<CachingAllocator>(device);
  }

  std::unique_ptr<CpuDevice> device = CpuDevice::create({.capacity_bytes = kCapacity});
  std::unique_ptr<Allocator> core;
  Allocator& allocator{*core};
  const bool may_be_set{!core->settings().paged};  // a paged one keeps its settings
  std::array<StreamId, kStreams> streams{};
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<std::uint64_t> handed_over{0};
  std::atomic<std::uint64_t> refused{0};  // out of memory: an answer, not an error
  std::atomic<std::uint64_t> checked{0};
  std::atomic<std::uint64_t> wrong{0};  // blocks with a byte that is not theirs

  std::optional<Held> take() {
    const std::lock_guard lock(mutex);
    if (mailbox.empty()) return std::nullopt;
    const Held held = mailbox.back();
    mailbox.pop_back();
    return held;
  }
  void put(const Held& held) {
    const std::lock_guard lock(mutex);
    mailbox.push_back(held);
  }

  std::mutex mutex;
  std::vector<Held> mailbox;
};

// A stream task that looks at every byte of a block, or at many of them where it is large.
struct Check {
  Shared* shared;
  Held held;

  static void run(void* data) noexcept {
    const std::unique_ptr<Check> check(static_cast<Check*>(data));
    const Held& held = check->held;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(held.address);
    const std::uint64_t step = held.size > 64_KiB ? 61 : 1;
    bool is_whole = bytes[held.size - 1] == held.value;
    for (std::uint64_t i = 0; i < held.size; i += step) is_whole &= bytes[i] == held.value;
    if (!is_whole) check->shared->wrong.fetch_add(1, std::memory_order_relaxed);
    check->shared->checked.fetch_add(1, std::memory_order_relaxed);
  }
};

class Worker {
 public:
  Worker(Shared& shared, std::uint64_t seed)
      : shared_(shared), device_(*shared.device), allocator_(shared.allocator), random_(seed) {}

  void run_until(std::chrono::steady_clock::time_point end) {
    while (std::chrono::steady_clock::now() < end && !::testing::Test::HasFailure()) {
      switch (random_() % 10) {
        case 0:
        case 1:
        case 2:
          use_on_one_stream();
          break;
        case 3:
        case 4:
          use_on_two_streams();
          break;
        case 5:
          hand_over();
          break;
        case 6:
        case 7:
          take_over();
          break;
        case 8:
          use_a_pool();
          break;
        default:
          look_or_change();
          break;
      }
      shared_.rounds.fetch_add(1, std::memory_order_relaxed);
      // So that the queues stay short.
      if (random_() % 4 == 0) {
        ASSERT_TRUE(worked(device_.synchronize_stream(any_stream())));
      }
    }
  }

 private:
  StreamId any_stream() { return shared_.streams[random_() % kStreams]; }

  // A filled block, unless there is no room.
  std::optional<Held> make(StreamId stream) {
    const std::uint64_t most = random_() % 16 == 0 ? 3_MiB : 32_KiB;
    const std::uint64_t size = 1 + random_() % most;
    const auto block = allocator_.try_allocate(size, stream);
    if (!block) {
      EXPECT_EQ(block.error().reason, FailureReason::kOutOfMemory);
      shared_.refused.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    }
    const Held held{*block, size, static_cast<std::uint8_t>(random_()), stream};
    EXPECT_TRUE(worked(device_.fill(held.address, held.value, size, stream)));
    return held;
  }

  void check_on(StreamId stream, const Held& held) {
    auto* check = new Check{&shared_, held};
    const auto queued = device_.enqueue_host(stream, {.run = &Check::run, .data = check});
    ASSERT_TRUE(worked(queued));
  }

  void order(StreamId before, StreamId after) {
    const auto event = device_.record_event(before);
    ASSERT_TRUE(worked(event));
    ASSERT_TRUE(worked(device_.wait_event(after, *event)));
    ASSERT_TRUE(worked(device_.release_event(*event)));
  }

  // Freed while the check is still queued: the next owner's work comes behind it.
  void use_on_one_stream() {
    const auto held = make(any_stream());
    if (!held) return;
    check_on(held->stream, *held);
    ASSERT_TRUE(worked(allocator_.try_free(held->address)));
  }

  void use_on_two_streams() {
    const auto held = make(any_stream());
    if (!held) return;
    const StreamId other = any_stream();
    order(held->stream, other);
    check_on(other, *held);
    ASSERT_TRUE(worked(allocator_.record_stream(held->address, other)));
    ASSERT_TRUE(worked(allocator_.try_free(held->address)));
  }

  void hand_over() {
    if (const auto held = make(any_stream())) shared_.put(*held);
  }

  void take_over() {
    const auto held = shared_.take();
    if (!held) return;
    shared_.handed_over.fetch_add(1, std::memory_order_relaxed);
    const StreamId other = random_() % 2 == 0 ? held->stream : any_stream();
    if (other != held->stream) order(held->stream, other);
    check_on(other, *held);
    ASSERT_TRUE(worked(allocator_.record_stream(held->address, other)));
    ASSERT_TRUE(worked(allocator_.try_free(held->address)));
  }

  // The scope catches what other threads ask for on the stream too.
  void use_a_pool() {
    const PoolId pool = allocator_.new_pool_id();
    const StreamId mine = any_stream();
    allocator_.begin_allocate_to_pool(pool, [mine](StreamId stream) { return stream == mine; });
    const auto held = make(mine);
    allocator_.end_allocate_to_pool(pool);
    allocator_.release_pool(pool);
    if (!held) return;
    check_on(mine, *held);
    ASSERT_TRUE(worked(allocator_.try_free(held->address)));
  }

  void look_or_change() {
    constexpr std::array kSettings{"",
                                   "expandable_segments:True",
                                   "expandable_segments:False,max_split_size_mb:20",
                                   "release_lock_on_cudamalloc:True",
                                   "garbage_collection_threshold:0.2"};
    switch (random_() % 8) {
      case 0:
        allocator_.empty_cache();
        break;
      case 1:
        allocator_.trim(random_() % kCapacity);
        break;
      case 2:
        if (shared_.may_be_set) allocator_.configure(kSettings[random_() % kSettings.size()]);
        break;
      case 3:
        allocator_.set_limit(random_() % 2 == 0 ? std::nullopt : std::optional(kCapacity / 2));
        break;
      case 4:
        (void)allocator_.reserve(8_MiB, any_stream());
        break;
      case 5: {
        const Account account = allocator_.account();
        ASSERT_EQ(account.sum(), account.total_bytes);
        break;
      }
      case 6:
        ASSERT_EQ(allocator_.check_invariants(), std::nullopt);
        break;
      default: {
        const PeakScope scope(allocator_);
        use_on_one_stream();
        ASSERT_LE(scope.peak_allocated(), scope.peak_reserved());
        break;
      }
    }
  }

  Shared& shared_;
  CpuDevice& device_;
  Allocator& allocator_;
  std::mt19937_64 random_;
};

class AllocatorStress : public ::testing::TestWithParam<bool> {};

TEST_P(AllocatorStress, SixteenThreadsAndSixStreams) {
  const auto seconds = env_int("HEADROOM_STRESS_SECONDS", 1, 3600).value().value_or(2);
  const std::uint64_t seed = headroom::testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Shared shared(GetParam());
  for (StreamId& stream : shared.streams) stream = shared.device->create_stream().value();
  // When memory is short, somebody else's block goes.
  shared.allocator.add_free_callback([&shared] {
    const auto held = shared.take();
    if (!held) return false;
    shared.allocator.free(held->address);
    return true;
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&shared, seed, end, i] { Worker(shared, seed + i).run_until(end); });
    }
  }
  while (const auto held = shared.take()) shared.allocator.free(held->address);
  for (const StreamId stream : shared.streams) {
    EXPECT_TRUE(worked(shared.device->synchronize_stream(stream)));
  }
  EXPECT_EQ(shared.wrong.load(), 0U);
  EXPECT_GT(shared.checked.load(), 0U);
  EXPECT_GT(shared.handed_over.load(), 0U);
  EXPECT_EQ(shared.allocator.misuse_count(), 0U);
  EXPECT_EQ(shared.allocator.check_invariants(), std::nullopt);
  EXPECT_EQ(shared.allocator.statistics().allocation.all.current, 0);
  shared.allocator.empty_cache();
  EXPECT_EQ(shared.allocator.statistics().reserved_bytes.all.current, 0);
  EXPECT_EQ(shared.device->memory_info().value().free_bytes, kCapacity);
  RecordProperty("rounds", std::to_string(shared.rounds.load()));
  RecordProperty("checked", std::to_string(shared.checked.load()));
  RecordProperty("refused", std::to_string(shared.refused.load()));
}

INSTANTIATE_TEST_SUITE_P(Policies, AllocatorStress, ::testing::Bool(), [](const auto& is_paged) {
  return std::string(is_paged.param ? "Paged" : "Caching");
});

}  // namespace
}  // namespace headroom::memory
