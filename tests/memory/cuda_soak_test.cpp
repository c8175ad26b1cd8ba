// Several threads and streams take, fill, check, hand over and free blocks on a GPU: each block is
// filled with its own pattern by a kernel, and kernels count the words that are not its own.
//
// Five seconds for each setting unless HEADROOM_SOAK_SECONDS says otherwise.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
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
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/block_kernels.h"
#include "tests/support/device_status.h"
#include "tests/support/native_cuda.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::CudaDevice;
using headroom::testing::BlockKernels;
using headroom::testing::NativeContext;
using headroom::testing::NativeCuda;
using headroom::testing::NativeTestStream;
using headroom::testing::worked;
using Clock = std::chrono::steady_clock;

constexpr int kThreads = 8;
constexpr std::size_t kStreams = 6;
constexpr std::size_t kMostKept = 12;  // by each thread
// Little enough for the cache to be flushed and requests to fail now and then.
constexpr std::uint64_t kCapacity = 1_GiB;
// Pages so small that there are halves, whole and large ones, and no cushion: nearly every growth
// moves some.
constexpr PagedOptions kSoakPages{.page_bytes = 4_MiB,
                                  .large_page_bytes = 8_MiB,
                                  .large_from_bytes = 16_MiB,
                                  .cushion_fraction = 0,
                                  .cushion_bytes = 0};
constexpr std::uint64_t kPagedLimit = 700_MiB;

struct Held {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t seed = 0;
  const NativeTestStream* stream = nullptr;
};

struct Soak {
  Soak(const NativeCuda& the_cuda, bool is_paged) : cuda(the_cuda) {
    if (is_paged) {
      core = std::make_unique<PagedAllocator>(*device, kSoakPages);
      core->set_limit(kPagedLimit);
    } else {
      auto made = std::make_unique<CachingAllocator>(*device);
      caching = made.get();
      core = std::move(made);
    }
    for (auto& stream : streams) stream = std::make_unique<NativeTestStream>(cuda, *device);
    wrong = device->allocate_segment(512).value();
    EXPECT_TRUE(worked(device->fill(wrong, 0, 512, StreamId::kDefault)));
    EXPECT_TRUE(worked(device->synchronize_stream(StreamId::kDefault)));
  }

  void put(const Held& held) {
    const std::scoped_lock lock(mutex);
    mailbox.push_back(held);
  }
  std::optional<Held> take() {
    const std::scoped_lock lock(mutex);
    if (mailbox.empty()) return std::nullopt;
    const Held held = mailbox.back();
    mailbox.pop_back();
    return held;
  }
  std::uint64_t wrong_words() {
    std::uint64_t found = 0;
    EXPECT_TRUE(worked(device->copy_to_host(&found, wrong, sizeof found, StreamId::kDefault)));
    EXPECT_TRUE(worked(device->synchronize_stream(StreamId::kDefault)));
    return found;
  }

  const NativeCuda& cuda;
  BlockKernels kernels{cuda};
  std::unique_ptr<CudaDevice> device = CudaDevice::create({.capacity_bytes = kCapacity}).value();
  std::array<std::unique_ptr<NativeTestStream>, kStreams> streams{};
  std::unique_ptr<Allocator> core;
  CachingAllocator* caching = nullptr;  // the same, where it has settings
  DeviceAddress wrong = 0;              // the count of wrong words, on the card
  std::atomic<std::uint32_t> next_seed{1};
  std::atomic<std::uint64_t> blocks{0};
  std::atomic<std::uint64_t> checked_bytes{0};
  std::atomic<std::uint64_t> on_two_streams{0};
  std::atomic<std::uint64_t> refused{0};  // out of memory: an answer, not an error
  std::mutex mutex;
  std::vector<Held> mailbox;  // requires mutex
};

class Worker {
 public:
  Worker(Soak& soak, std::uint64_t seed, bool changes_settings)
      : soak_(soak), random_(seed), changes_settings_(changes_settings) {}

  void run_until(Clock::time_point end) {
    const NativeContext context(soak_.cuda);
    while (Clock::now() < end && !::testing::Test::HasFailure()) {
      step();
      // So that the queues stay short.
      if (random_() % 8 == 0) {
        ASSERT_TRUE(worked(soak_.device->synchronize_stream(any_stream().id())));
      }
    }
    for (const Held& held : kept_) check_and_free(held, *held.stream);
  }

 private:
  void step() {
    switch (random_() % 16) {
      case 0:
        tidy_up();
        break;
      case 1:
      case 2:
        if (const auto held = make()) soak_.put(*held);
        break;
      case 3:
      case 4:
        if (const auto held = soak_.take()) check_and_free(*held, any_stream());
        break;
      case 5:
      case 6:
      case 7:
        keep_one_more();
        break;
      case 8:
      case 9:
        if (const auto held = make()) check_and_free(*held, any_stream());
        break;
      default:
        if (const auto held = make()) check_and_free(*held, *held->stream);
        break;
    }
  }

  const NativeTestStream& any_stream() { return *soak_.streams[random_() % kStreams]; }

  // Every order of magnitude alike, from one word to 64 MiB.
  std::uint64_t any_size() {
    const std::uint64_t most = BlockKernels::kWordBytes << (random_() % 25);
    return BlockKernels::kWordBytes + random_() % most;
  }

  // A block that a kernel fills, unless there is no room.
  std::optional<Held> make() {
    const NativeTestStream& stream = any_stream();
    const std::uint64_t size = any_size();
    const auto block = soak_.core->try_allocate(size, stream.id());
    if (!block) {
      EXPECT_EQ(block.error().reason, FailureReason::kOutOfMemory)
          << to_string(block.error().status);
      soak_.refused.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    }
    const Held held{*block, size, soak_.next_seed.fetch_add(0x9E3779B1U), &stream};
    soak_.kernels.fill({held.address, held.size_bytes}, held.seed, stream.native());
    soak_.blocks.fetch_add(1, std::memory_order_relaxed);
    return held;
  }

  void check(const Held& held, const NativeTestStream& stream) {
    soak_.kernels.check({held.address, held.size_bytes}, held.seed, soak_.wrong, stream.native());
    soak_.checked_bytes.fetch_add(held.size_bytes, std::memory_order_relaxed);
  }

  // The check is queued behind the fill, and the free comes while it may still be queued.
  void check_and_free(const Held& held, const NativeTestStream& stream) {
    if (&stream != held.stream) {
      const auto filled = soak_.device->record_event(held.stream->id());
      ASSERT_TRUE(worked(filled));
      ASSERT_TRUE(worked(soak_.device->wait_event(stream.id(), *filled)));
      ASSERT_TRUE(worked(soak_.device->release_event(*filled)));
      soak_.on_two_streams.fetch_add(1, std::memory_order_relaxed);
    }
    check(held, stream);
    ASSERT_TRUE(worked(soak_.core->record_stream(held.address, stream.id())));
    ASSERT_TRUE(worked(soak_.core->try_free(held.address)));
  }

  // Blocks that live for long have neighbours that come and go.
  void keep_one_more() {
    if (kept_.size() >= kMostKept) {
      const std::size_t oldest = random_() % kept_.size();
      check_and_free(kept_[oldest], random_() % 2 == 0 ? *kept_[oldest].stream : any_stream());
      kept_[oldest] = kept_.back();
      kept_.pop_back();
    }
    if (const auto held = make()) kept_.push_back(*held);
  }

  void tidy_up() {
    switch (random_() % 8) {
      case 0:
        soak_.core->empty_cache();
        break;
      case 1:
      case 2:
        soak_.core->trim(random_() % kCapacity);
        break;
      case 3:
        if (changes_settings_) {
          soak_.caching->configure(random_() % 2 == 0 ? "expandable_segments:True"
                                                      : "expandable_segments:False");
        }
        break;
      default:
        soak_.core->process_events();
        break;
    }
  }

  Soak& soak_;
  std::mt19937_64 random_;
  bool changes_settings_;
  std::vector<Held> kept_{};
};

struct Setting {
  const char* name;
  const char* settings;
  bool changes = false;
  bool is_paged = false;
};

class CudaSoak : public ::testing::TestWithParam<Setting> {};

TEST_P(CudaSoak, NoBlockHasAWordThatIsNotItsOwn) {
  if (CudaDevice::count() == 0) GTEST_SKIP() << CudaDevice::why_none();
  const auto seconds = env_int("HEADROOM_SOAK_SECONDS", 1, 3600).value().value_or(5);
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  const NativeCuda cuda;
  const NativeContext context(cuda);
  Soak soak(cuda, GetParam().is_paged);
  if (soak.caching != nullptr) soak.caching->configure(GetParam().settings);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back(
          [&soak, seed, end, i] { Worker(soak, seed + i, GetParam().changes).run_until(end); });
    }
  }
  while (const auto held = soak.take()) soak.core->free(held->address);
  for (const auto& stream : soak.streams) {
    EXPECT_TRUE(worked(soak.device->synchronize_stream(stream->id())));
  }
  std::printf("%s: %llu blocks, %s checked, %llu on two streams, %llu refused, %llu wrong words\n",
              GetParam().name,
              static_cast<unsigned long long>(soak.blocks.load()),
              format_bytes(soak.checked_bytes.load()).c_str(),
              static_cast<unsigned long long>(soak.on_two_streams.load()),
              static_cast<unsigned long long>(soak.refused.load()),
              static_cast<unsigned long long>(soak.wrong_words()));
  EXPECT_EQ(soak.wrong_words(), 0U);
  EXPECT_GT(soak.blocks.load(), 100U);
  EXPECT_GT(soak.on_two_streams.load(), 10U);
  if (GetParam().is_paged) {
    const std::uint64_t created = soak.device->calls(device::Call::kCreatePages);
    const std::uint64_t mapped = soak.device->calls(device::Call::kMapPages);
    std::printf("%llu pages created, %llu mapped\n",
                static_cast<unsigned long long>(created),
                static_cast<unsigned long long>(mapped));
    EXPECT_GT(mapped, created) << "pages were moved";
  }
  EXPECT_EQ(soak.core->misuse_count(), 0U);
  EXPECT_EQ(soak.core->check_invariants(), std::nullopt);
  soak.core->empty_cache();
  EXPECT_EQ(soak.core->statistics().allocation.all.current, 0);
  EXPECT_EQ(soak.core->statistics().reserved_bytes.all.current, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings,
    CudaSoak,
    ::testing::Values(Setting{"Segments", ""},
                      Setting{"Expandable", "expandable_segments:True"},
                      Setting{"Changing", "garbage_collection_threshold:0.6", true},
                      Setting{"Paged", "", false, true}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace headroom::memory
