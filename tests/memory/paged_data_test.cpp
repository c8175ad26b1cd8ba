// PagedAllocator moves pages under blocks that come and go, and no block ever holds a word that is
// not its own.
//
// Threads take, fill, check, hand over and free blocks on the cpu device, whose streams have
// threads of their own. Pages are as small as the device allows and the limit is tight, so that
// nearly every growth is a remap. Blocks are filled and checked in stream order, and freed while
// the check is still queued.
//
// HEADROOM_PAGED_OPS says how many operations; HEADROOM_TEST_SEED repeats a sequence.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
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
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::Call;
using device::CpuDevice;
using headroom::testing::worked;

// What sanitizers make of the full number takes minutes; it is run by hand.
constexpr std::int64_t kPagedOps = headroom::testing::kHasThreadSanitizer    ? 6'000
                                   : headroom::testing::kHasAddressSanitizer ? 10'000
                                                                             : 40'000;

constexpr std::size_t kPagedThreads = 4;
constexpr std::size_t kPagedStreams = 5;  // the default stream, which runs inline, among them
constexpr std::uint64_t kPagedGranularity = 64_KiB;
constexpr std::uint64_t kPagedCapacity = 64_MiB;

struct PagedBlock {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  std::uint64_t id = 0;
  std::uint64_t step = 0;
  StreamId stream{};
};

// The offsets that are written: every 512 bytes near both ends, and every 4 KiB of the address
// space between, so that blocks which share a page meet in it.
template <class Function>
void for_each_probe(const PagedBlock& block, Function&& function) {
  constexpr std::uint64_t kEnd = 4_KiB;
  constexpr std::uint64_t kFine = 512;
  const std::uint64_t front = std::min(block.size, kEnd);
  for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= front; at += kFine) function(at);
  const std::uint64_t coarse = kEnd - block.address % kEnd;
  for (std::uint64_t at = coarse; at + sizeof(std::uint64_t) <= block.size; at += kEnd) {
    function(at);
  }
  if (block.size > 2 * kEnd) {
    for (std::uint64_t at = (block.size - kEnd) / kFine * kFine;
         at + sizeof(std::uint64_t) <= block.size;
         at += kFine) {
      function(at);
    }
  }
  if (block.size >= sizeof(std::uint64_t)) function(block.size - sizeof(std::uint64_t));
}

// Of the probe's block and of nobody else. Sizes are multiples of a word, so that probes which meet
// are the same.
std::uint64_t word_of(const PagedBlock& block, std::uint64_t offset) {
  return (block.id * 0x9E3779B97F4A7C15U) ^ (offset / 512);
}

struct PagedRun {
  PagedRun(PagedOptions options, std::uint64_t limit)
      : device(CpuDevice::create(
            {.capacity_bytes = kPagedCapacity, .granularity_bytes = kPagedGranularity})),
        allocator(*device, options) {
    allocator.set_limit(limit);
    streams[0] = StreamId::kDefault;
    for (std::size_t i = 1; i < kPagedStreams; ++i) streams[i] = device->create_stream().value();
  }

  void put(const PagedBlock& block) {
    const std::lock_guard lock(mutex);
    mailbox.push_back(block);
  }
  std::optional<PagedBlock> take() {
    const std::lock_guard lock(mutex);
    if (mailbox.empty()) return std::nullopt;
    const PagedBlock block = mailbox.back();
    mailbox.pop_back();
    return block;
  }
  // Of the first wrong word; the rest follows from it.
  void report(const PagedBlock& block, std::uint64_t offset, std::uint64_t found) {
    const std::lock_guard lock(mutex);
    if (is_wrong.exchange(true)) return;
    std::array<char, 256> text{};
    std::snprintf(text.data(),
                  text.size(),
                  "block at 0x%llx, %llu bytes, stream %llu, step %llu, id %llu: the word at "
                  "%llu is 0x%llx, not 0x%llx",
                  static_cast<unsigned long long>(block.address),
                  static_cast<unsigned long long>(block.size),
                  static_cast<unsigned long long>(block.stream),
                  static_cast<unsigned long long>(block.step),
                  static_cast<unsigned long long>(block.id),
                  static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(found),
                  static_cast<unsigned long long>(word_of(block, offset)));
    wrong = text.data();
  }

  std::unique_ptr<CpuDevice> device;
  PagedAllocator allocator;
  std::array<StreamId, kPagedStreams> streams{};
  std::atomic<std::int64_t> ops_left{0};
  std::atomic<std::uint64_t> next_id{1};
  std::atomic<std::uint64_t> checked{0};
  std::atomic<std::uint64_t> handed_over{0};
  std::atomic<std::uint64_t> on_two_streams{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<bool> is_wrong{false};
  std::mutex mutex;
  std::vector<PagedBlock> mailbox;  // requires mutex
  std::string wrong;                // requires mutex
};

// A task of a stream: writes a block's words, or looks at them.
struct PagedTask {
  PagedRun* run;
  PagedBlock block;

  static void fill(void* data) noexcept {
    const std::unique_ptr<PagedTask> task(static_cast<PagedTask*>(data));
    for_each_probe(task->block, [&](std::uint64_t at) {
      const std::uint64_t word = word_of(task->block, at);
      std::memcpy(reinterpret_cast<char*>(task->block.address + at), &word, sizeof word);
    });
  }
  static void check(void* data) noexcept {
    const std::unique_ptr<PagedTask> task(static_cast<PagedTask*>(data));
    for_each_probe(task->block, [&](std::uint64_t at) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const char*>(task->block.address + at), sizeof word);
      if (word != word_of(task->block, at)) task->run->report(task->block, at, word);
    });
    task->run->checked.fetch_add(1, std::memory_order_relaxed);
  }
};

class PagedWorker {
 public:
  PagedWorker(PagedRun& run, std::uint64_t seed)
      : run_(run), device_(*run.device), allocator_(run.allocator), random_(seed) {}

  void work() {
    while (run_.ops_left.fetch_sub(2, std::memory_order_relaxed) > 0 && !run_.is_wrong &&
           !::testing::Test::HasFailure()) {
      ++step_;
      one_step();
      // So that the queues stay short.
      if (random_() % 8 == 0) {
        ASSERT_TRUE(worked(device_.synchronize_stream(any_stream())));
      }
      if (step_ % 4096 == 0) look();
    }
    while (!kept_.empty()) drop(kept_.size() - 1);
  }

 private:
  StreamId any_stream() { return run_.streams[random_() % kPagedStreams]; }

  // Most blocks are small, most bytes are in large ones.
  std::uint64_t any_size() {
    switch (random_() % 16) {
      case 0:
        return 1_MiB + random_() % 3_MiB;
      case 1:
      case 2:
        return 64_KiB + random_() % 1_MiB;
      case 3:
      case 4:
      case 5:
      case 6:
        return 16_KiB + random_() % 192_KiB;
      default:
        return 512 + random_() % 40_KiB;
    }
  }

  void one_step() {
    const std::uint64_t dice = random_() % 32;
    if (dice == 0) {
      if (const auto block = make()) run_.put(*block);
    } else if (dice == 1) {
      if (const auto block = run_.take()) {
        run_.handed_over.fetch_add(1, std::memory_order_relaxed);
        let_go(*block, any_stream());
      }
    } else if (dice < 4) {
      if (const auto block = make()) let_go(*block, any_stream());
    } else {
      if (kept_.size() > most_kept_) drop(random_() % kept_.size());
      if (const auto block = make()) kept_.push_back(*block);
    }
    // Phases of few and of many blocks.
    if (step_ % 512 == 0) most_kept_ = 4 + random_() % 40;
    if (random_() % 4096 == 0) allocator_.trim(random_() % 8_MiB);
  }

  std::optional<PagedBlock> make() {
    const StreamId stream = any_stream();
    const std::uint64_t size = any_size() / 8 * 8;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto address = allocator_.try_allocate(size, stream);
      if (address) {
        const PagedBlock block{*address, size, run_.next_id.fetch_add(1), step_, stream};
        queue(stream, block, &PagedTask::fill);
        return block;
      }
      EXPECT_EQ(address.error().reason, FailureReason::kOutOfMemory)
          << to_string(address.error().status);
      run_.refused.fetch_add(1, std::memory_order_relaxed);
      for (int i = 0; i < 4 && !kept_.empty(); ++i) drop(random_() % kept_.size());
    }
    return std::nullopt;
  }

  void queue(StreamId stream, const PagedBlock& block, void (*function)(void*) noexcept) {
    auto task = std::make_unique<PagedTask>(PagedTask{&run_, block});
    ASSERT_TRUE(worked(device_.enqueue_host(stream, {.run = function, .data = task.get()})));
    (void)task.release();
  }

  // Checked on a stream, and freed while the check may still be queued.
  void let_go(const PagedBlock& block, StreamId stream) {
    if (stream != block.stream) {
      const auto event = device_.record_event(block.stream);
      ASSERT_TRUE(worked(event));
      ASSERT_TRUE(worked(device_.wait_event(stream, *event)));
      ASSERT_TRUE(worked(device_.release_event(*event)));
      ASSERT_TRUE(worked(allocator_.record_stream(block.address, stream)));
      run_.on_two_streams.fetch_add(1, std::memory_order_relaxed);
    }
    queue(stream, block, &PagedTask::check);
    ASSERT_TRUE(worked(allocator_.try_free(block.address)));
  }

  void drop(std::size_t index) {
    const PagedBlock block = kept_[index];
    kept_[index] = kept_.back();
    kept_.pop_back();
    let_go(block, random_() % 8 == 0 ? any_stream() : block.stream);
  }

  void look() {
    ASSERT_EQ(allocator_.check_invariants(), std::nullopt);
    const PagedBound bound = allocator_.bound();
    ASSERT_TRUE(bound.is_kept()) << bound.reserved_bytes;
    const Account account = allocator_.account();
    ASSERT_EQ(account.sum(), account.total_bytes);
  }

  PagedRun& run_;
  CpuDevice& device_;
  PagedAllocator& allocator_;
  std::mt19937_64 random_;
  std::vector<PagedBlock> kept_{};
  std::size_t most_kept_ = 24;
  std::uint64_t step_ = 0;
};

struct PagedSetting {
  const char* name;
  PagedOptions options;
  std::uint64_t limit;
};

class PagedData : public ::testing::TestWithParam<PagedSetting> {};

TEST_P(PagedData, NoBlockHasAWordThatIsNotItsOwn) {
  const std::int64_t ops =
      env_int("HEADROOM_PAGED_OPS", 1, 1'000'000'000'000).value().value_or(kPagedOps);
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  // Ahead, should it crash.
  std::printf("%s\n", headroom::testing::seed_text(seed).c_str());
  std::fflush(stdout);
  PagedRun run(GetParam().options, GetParam().limit);
  run.ops_left = ops;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kPagedThreads; ++i) {
      threads.emplace_back([&run, seed, i] { PagedWorker(run, seed + 1000 * i).work(); });
    }
  }
  while (const auto block = run.take()) run.allocator.free(block->address);
  for (const StreamId stream : run.streams) {
    EXPECT_TRUE(worked(run.device->synchronize_stream(stream)));
  }
  EXPECT_EQ(run.wrong, "");
  EXPECT_GT(run.on_two_streams.load(), 0U);
  EXPECT_EQ(run.allocator.misuse_count(), 0U);
  EXPECT_EQ(run.allocator.check_invariants(), std::nullopt);
  const std::uint64_t created = run.device->calls(Call::kCreatePages);
  const std::uint64_t mapped = run.device->calls(Call::kMapPages);
  EXPECT_GT(mapped, 2 * created) << "pages were moved";
  run.allocator.empty_cache();
  EXPECT_EQ(run.allocator.statistics().allocation.all.current, 0);
  EXPECT_EQ(run.allocator.statistics().reserved_bytes.all.current, 0);
  EXPECT_EQ(run.device->memory_info().value().free_bytes, kPagedCapacity);
  std::printf(
      "%s: %llu checked, %llu on two streams, %llu handed over, %llu refused; %llu pages "
      "created, %llu mapped\n",
      GetParam().name,
      static_cast<unsigned long long>(run.checked.load()),
      static_cast<unsigned long long>(run.on_two_streams.load()),
      static_cast<unsigned long long>(run.handed_over.load()),
      static_cast<unsigned long long>(run.refused.load()),
      static_cast<unsigned long long>(created),
      static_cast<unsigned long long>(mapped));
}

constexpr PagedOptions kTinyPages{.page_bytes = kPagedGranularity,
                                  .large_page_bytes = 4 * kPagedGranularity,
                                  .large_from_bytes = 1_MiB,
                                  .cushion_fraction = 0,
                                  .cushion_bytes = 0};

INSTANTIATE_TEST_SUITE_P(Settings,
                         PagedData,
                         ::testing::Values(PagedSetting{"Tight", kTinyPages, 40_MiB},
                                           PagedSetting{"Cushion",
                                                        {.page_bytes = 2 * kPagedGranularity,
                                                         .large_page_bytes = 4 * kPagedGranularity,
                                                         .large_from_bytes = 512_KiB,
                                                         .uses_magazines = false},
                                                        kPagedCapacity}),
                         [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace headroom::memory
