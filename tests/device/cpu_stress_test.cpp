// Sixteen threads on one device and its eight streams, everything at once, data checked.
//
// Two seconds unless HEADROOM_STRESS_SECONDS says otherwise. Memory stays within 128 MiB, because
// ThreadSanitizer keeps a multiple of it.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/env.h"
#include "headroom/device/cpu/cpu_device.h"

#include "tests/device/small_device.h"
#include "tests/support/seed.h"

namespace headroom::device {
namespace {

constexpr int kThreads = 16;
constexpr int kStreams = 8;
constexpr std::uint64_t kBytes = 16_KiB;

struct Shared {
  std::unique_ptr<CpuDevice> device =
      CpuDevice::create({.capacity_bytes = 128_MiB, .granularity_bytes = kPage});
  std::array<StreamId, kStreams> streams{};
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<std::uint64_t> refused{0};  // out of memory: an answer, not an error
  std::atomic<std::uint64_t> wrong{0};    // bytes
  std::atomic<std::uint64_t> host_tasks{0};
};

class Worker {
 public:
  Worker(Shared& shared, std::uint64_t seed)
      : shared_(shared), device_(*shared.device), random_(seed) {}

  void run_until(std::chrono::steady_clock::time_point end) {
    while (std::chrono::steady_clock::now() < end && !::testing::Test::HasFailure()) {
      switch (random_() % 6) {
        case 0:
          one_stream();
          break;
        case 1:
          two_streams();
          break;
        case 2:
          aliases();
          break;
        case 3:
          free_without_waiting();
          break;
        case 4:
          short_lived_stream();
          break;
        default:
          questions();
          break;
      }
      shared_.rounds.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  StreamId any_stream() { return shared_.streams[random_() % kStreams]; }
  std::uint8_t any_value() { return static_cast<std::uint8_t>(random_()); }

  void expect_all(const std::vector<std::uint8_t>& bytes, std::uint8_t value) {
    for (const std::uint8_t byte : bytes) {
      if (byte != value) shared_.wrong.fetch_add(1, std::memory_order_relaxed);
    }
  }

  void order(StreamId before, StreamId after) {
    const auto event = device_.record_event(before);
    ASSERT_TRUE(event);
    ASSERT_TRUE(device_.wait_event(after, *event));
    ASSERT_TRUE(device_.release_event(*event));
  }

  void finish(StreamId stream) {
    const auto event = device_.record_event(stream);
    ASSERT_TRUE(event);
    while (random_() % 4 != 0) ASSERT_TRUE(device_.query_event(*event));
    ASSERT_TRUE(device_.synchronize_event(*event));
    ASSERT_TRUE(device_.release_event(*event));
  }

  void one_stream() {
    const auto memory = device_.allocate_segment(kBytes);
    if (!memory) return refused(memory.error());
    const StreamId stream = any_stream();
    const std::uint8_t value = any_value();
    std::vector<std::uint8_t> out(kBytes);
    ASSERT_TRUE(device_.fill(*memory, value, kBytes, stream));
    ASSERT_TRUE(device_.copy_to_host(out.data(), *memory, kBytes, stream));
    finish(stream);
    expect_all(out, value);
    ASSERT_TRUE(device_.free_segment(*memory));
  }

  void two_streams() {
    const auto from = device_.allocate_segment(kBytes);
    if (!from) return refused(from.error());
    const auto to = device_.allocate_segment(kBytes);
    if (to) {
      const StreamId one = any_stream();
      const StreamId two = any_stream();
      const std::vector<std::uint8_t> in(kBytes, any_value());
      std::vector<std::uint8_t> out(kBytes);
      ASSERT_TRUE(device_.copy_to_device(*from, in.data(), kBytes, one));
      order(one, two);
      ASSERT_TRUE(device_.copy_within(*to, *from, kBytes, two));
      order(two, one);
      ASSERT_TRUE(device_.fill(*from, 0, kBytes, one));
      order(one, StreamId::kDefault);
      ASSERT_TRUE(device_.copy_to_host(out.data(), *to, kBytes, StreamId::kDefault));
      expect_all(out, in.front());
      ASSERT_TRUE(device_.free_segment(*to));
    } else {
      refused(to.error());
    }
    ASSERT_TRUE(device_.free_segment(*from));
  }

  void aliases() {
    const auto base = device_.reserve_addresses(4 * kPage);
    ASSERT_TRUE(base);
    const auto handle = device_.create_pages(kPage);
    if (handle) {
      ASSERT_TRUE(device_.map_pages(*base, std::array{*handle, *handle}));
      ASSERT_TRUE(device_.map_pages(*base + 3 * kPage, std::array{*handle}));
      const StreamId stream = any_stream();
      const std::uint8_t value = any_value();
      std::vector<std::uint8_t> out(kBytes);
      ASSERT_TRUE(device_.fill(*base, value, kPage, stream));
      ASSERT_TRUE(device_.copy_to_host(out.data(), *base + 3 * kPage + kPage / 2, kBytes, stream));
      finish(stream);
      expect_all(out, value);
      if (random_() % 2 == 0) {
        ASSERT_TRUE(device_.release_pages(*handle));
        ASSERT_TRUE(device_.unmap_pages(*base, 4 * kPage));
      } else {
        ASSERT_TRUE(device_.unmap_pages(*base, 2 * kPage));
        ASSERT_TRUE(device_.unmap_pages(*base + 3 * kPage, kPage));
        ASSERT_TRUE(device_.release_pages(*handle));
      }
    } else {
      refused(handle.error());
    }
    ASSERT_TRUE(device_.release_addresses(*base));
  }

  void free_without_waiting() {
    const auto memory = device_.allocate_segment(kBytes);
    if (!memory) return refused(memory.error());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(device_.fill(*memory, any_value(), kBytes, any_stream()));
    }
    ASSERT_TRUE(device_.free_segment(*memory));
  }

  void short_lived_stream() {
    const auto stream = device_.create_stream();
    ASSERT_TRUE(stream);
    order(any_stream(), *stream);
    ASSERT_TRUE(device_.enqueue_host(
        *stream,
        {.run = [](void* n) noexcept { static_cast<std::atomic<std::uint64_t>*>(n)->fetch_add(1); },
         .data = &shared_.host_tasks}));
    ASSERT_TRUE(device_.release_stream(*stream));
    if (random_() % 2 == 0) finish(*stream);
  }

  void questions() {
    const auto info = device_.memory_info();
    ASSERT_TRUE(info);
    ASSERT_LE(info->free_bytes, info->total_bytes);
    ASSERT_TRUE(device_.is_capturing(any_stream()));
    const auto pinned = device_.allocate_pinned(4096);
    ASSERT_TRUE(pinned);
    ASSERT_TRUE(device_.free_pinned(*pinned));
  }

  void refused(const DeviceStatus& status) {
    ASSERT_EQ(status, StatusCode::kOutOfMemory) << to_string(status);
    shared_.refused.fetch_add(1, std::memory_order_relaxed);
  }

  Shared& shared_;
  CpuDevice& device_;
  std::mt19937_64 random_;
};

TEST(CpuStress, SixteenThreadsAndEightStreams) {
  const auto seconds = env_int("HEADROOM_STRESS_SECONDS", 1, 3600).value().value_or(2);
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(testing::seed_text(seed));
  Shared shared;
  for (StreamId& stream : shared.streams) stream = shared.device->create_stream().value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { Worker(shared, seed + i).run_until(end); });
    }
  }
  for (const StreamId stream : shared.streams) {
    EXPECT_TRUE(shared.device->synchronize_stream(stream));
  }
  EXPECT_EQ(shared.wrong.load(), 0U);
  EXPECT_EQ(shared.device->memory_info().value().free_bytes, 128_MiB);
  EXPECT_GT(shared.rounds.load(), 0U);
  RecordProperty("rounds", std::to_string(shared.rounds.load()));
  RecordProperty("refused", std::to_string(shared.refused.load()));
}

}  // namespace
}  // namespace headroom::device
