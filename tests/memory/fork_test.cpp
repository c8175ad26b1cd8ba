// Forks of a program whose threads allocate: a child may always exit, gets no address, and an
// answer from every call. HEADROOM_FORKS says how many (10,000 take some minutes).
#include "headroom/base/fork.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/api.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/memory/peak_scope.h"

#include "tests/support/forked.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::StatusCode;
using headroom::testing::fork_and;
using headroom::testing::has_ended_well;
using headroom::testing::is_true_in_child;

std::unique_ptr<device::CpuDevice> small_device() {
  return device::CpuDevice::create({.index = 7, .capacity_bytes = 512_MiB});
}

int forks_asked_for() {
  const char* const text = std::getenv("HEADROOM_FORKS");
  return text == nullptr ? 300 : std::atoi(text);
}

template <class Function>
bool throws_forked(Function&& function) {
  try {
    function();
  } catch (const Forked&) {
    return true;
  }
  return false;
}

// A sink that wants nothing in particular.
struct Listener final : EventSink {
  void record(const Event&) noexcept override { ++events; }
  std::uint64_t events = 0;
};

bool every_call_refuses(Allocator& allocator, DeviceAddress small, DeviceAddress large) {
  const auto refused = [](const auto& result) {
    return !result && result.error().status == StatusCode::kForked;
  };
  bool ok = allocator.is_forked();
  for (const std::uint64_t bytes : {std::uint64_t{512}, 64_KiB, 1_MiB, 32_MiB}) {
    ok &= refused(allocator.try_allocate(bytes));
    ok &= throws_forked([&] {
      try {
        (void)allocator.allocate(bytes);
      } catch (const Error& error) {
        if (std::string(error.what()).find("fork") != std::string::npos) throw Forked();
      }
    });
  }
  for (const DeviceAddress block : {small, large}) {
    const auto freed = allocator.try_free(block);
    ok &= !freed && freed.error() == StatusCode::kForked;
    allocator.free(block);  // says nothing
    const auto recorded = allocator.record_stream(block, StreamId::kDefault);
    ok &= !recorded && recorded.error() == StatusCode::kForked;
    ok &= !allocator.find_block(block) && !allocator.locate(block);
  }
  ok &= allocator.misuse_count() == 0;
  ok &= refused(allocator.reserve(1_MiB));
  ok &= refused(allocator.try_wake(""));
  ok &= allocator.empty_cache() == 0 && allocator.trim(0) == 0;
  allocator.process_events();
  allocator.mark_step();
  allocator.set_limit(1_MiB);
  ok &= !allocator.limit() && !allocator.is_capturing();
  allocator.reset_peak_statistics();
  allocator.reset_accumulated_statistics();
  Listener listener;
  allocator.remove_sink(listener);
  allocator.remove_callback(1);
  ok &= allocator.new_pool_id() == PoolId{} && allocator.pool_use_count({.user = 1}) == 0;
  const std::vector<std::function<void()>> questions{
      [&] { (void)allocator.statistics(); },
      [&] { (void)allocator.account(); },
      [&] { (void)allocator.segments(); },
      [&] { (void)allocator.sleep(""); },
      [&] { (void)allocator.fingerprint(); },
      [&] { (void)allocator.check_invariants(); },
      [&] { (void)allocator.largest_cached_bytes(); },
      [&] { (void)allocator.settings(); },
      [&] { allocator.configure(std::string_view("")); },
      [&] { allocator.begin_capture(); },
      [&] { allocator.end_capture(); },
      [&] { allocator.set_memory_fraction(0.5); },
      [&] { allocator.begin_allocate_to_pool({.user = 1}, {}); },
      [&] { allocator.end_allocate_to_pool({.user = 1}); },
      [&] { allocator.retain_pool({.user = 1}); },
      [&] { allocator.release_pool({.user = 1}); },
      [&] { allocator.add_sink(listener); },
      [&] { allocator.set_tag_maker([] { return Tag(); }); },
      [&] { (void)allocator.add_free_callback([] { return false; }); },
      [&] { const PeakScope scope(allocator); },
  };
  for (const auto& question : questions) ok &= throws_forked(question);
  return ok;
}

// A new device with an allocator of the child's own serves as ever, on its first thread and others.
bool works_anew() {
  const auto device = small_device();
  PagedAllocator allocator(*device);
  bool ok = true;
  const auto use = [&] {
    for (const std::uint64_t bytes : {std::uint64_t{512}, 64_KiB, 3_MiB}) {
      const auto block = allocator.try_allocate(bytes);
      ok &= block.has_value();
      if (block) allocator.free(*block);
    }
  };
  use();
  std::thread(use).join();
  return ok && allocator.statistics().allocated_bytes.all.current == 0;
}

class ForkTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<device::CpuDevice> device_ = small_device();
  std::unique_ptr<Allocator> allocator_ =
      make_allocator(*device_, parse_choice(GetParam()).value());
};

INSTANTIATE_TEST_SUITE_P(Cores,
                         ForkTest,
                         ::testing::Values("backend:paged", "backend:native"),
                         [](const auto& core) { return std::string(core.param).substr(8); });

TEST_P(ForkTest, EveryCallInTheChildRefuses) {
  const DeviceAddress small = allocator_->allocate(512);
  const DeviceAddress large = allocator_->allocate(32_MiB);
  allocator_->free(allocator_->allocate(512));  // one that the thread keeps
  EXPECT_TRUE(is_true_in_child([&] { return every_call_refuses(*allocator_, small, large); }));
  // And nothing of it reached the parent.
  EXPECT_FALSE(allocator_->limit());
  EXPECT_TRUE(allocator_->try_free(small) && allocator_->try_free(large));
  EXPECT_EQ(allocator_->check_invariants(), std::nullopt);
}

TEST(ForkSleep, WhatSleepsInTheParentWakesThere) {
  const auto device = small_device();
  PagedAllocator allocator(*device);
  const DeviceAddress block = allocator.allocate(32_MiB);
  EXPECT_TRUE(device->fill(block, 7, 32_MiB, StreamId::kDefault));
  EXPECT_EQ(allocator.sleep("", SleepContents::kKeptOnHost).blocks, 1U);
  EXPECT_TRUE(is_true_in_child([&] {
    const auto woken = allocator.try_wake("");
    return !woken && woken.error().status == StatusCode::kForked &&
           throws_forked([&] { (void)allocator.sleep(""); }) && !allocator.try_free(block);
  }));
  EXPECT_EQ(allocator.wake("").blocks, 1U);
  std::vector<std::uint8_t> bytes(32_MiB);
  EXPECT_TRUE(device->copy_to_host(bytes.data(), block, bytes.size(), StreamId::kDefault));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 7), static_cast<std::ptrdiff_t>(bytes.size()));
}

TEST_P(ForkTest, AThreadOfTheChildIsRefusedToo) {
  const DeviceAddress small = allocator_->allocate(512);
  EXPECT_TRUE(is_true_in_child([&] {
    bool ok = false;
    std::thread([&] {
      ok = !allocator_->try_allocate(512) && !allocator_->try_free(small);
    }).join();
    return ok;
  }));
}

TEST_P(ForkTest, TheChildMayMakeItsOwn) {
  allocator_->free(allocator_->allocate(512));
  EXPECT_TRUE(is_true_in_child(works_anew));
}

TEST_P(ForkTest, TheChildMayDestroyIt) {
  (void)allocator_->allocate(512);
  EXPECT_TRUE(is_true_in_child([&] {
    allocator_.reset();
    return true;
  }));
}

TEST_P(ForkTest, ACallbackMayFork) {
  allocator_->set_limit(4_MiB);
  pid_t child = -1;
  (void)allocator_->add_free_callback([&child] {
    child = fork();
    if (child == 0) alarm(headroom::testing::kMostSeconds);
    return false;  // and out of the allocator, in the child too
  });
  const auto refused = allocator_->try_allocate(64_MiB);
  if (child == 0) _exit(!refused && refused.error().status == StatusCode::kForked ? 0 : 1);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().report, nullptr);
  EXPECT_TRUE(has_ended_well(child));
}

// Threads that do all there is to do, while the process forks.
class Churn {
 public:
  Churn(Allocator& allocator, int threads, std::uint64_t seed) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &allocator, seed, i] { run(allocator, seed + i); });
    }
  }
  ~Churn() { is_done_ = true; }

 private:
  void run(Allocator& allocator, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::array<DeviceAddress, 64> blocks{};
    for (std::uint64_t step = 0; !is_done_; ++step) {
      DeviceAddress& block = blocks[random() % blocks.size()];
      allocator.free(std::exchange(block, 0));
      const AnnotationScope scope("step " + std::to_string(random() % 512));
      const std::uint64_t bytes = random() % 4 == 0 ? 64_KiB + random() % 2_MiB : random() % 64_KiB;
      block = allocator.try_allocate(bytes).value_or(0);
      if (step % 64 == 0) (void)allocator.statistics();
      if (step % 512 == 0) (void)allocator.segments();
      if (step % 256 == 0) (void)allocator.empty_cache();
    }
    for (const DeviceAddress block : blocks) allocator.free(block);
  }

  std::atomic<bool> is_done_{false};
  std::vector<std::jthread> threads_;
};

TEST_P(ForkTest, NoChildHangsOrGetsAnAddressWhileThreadsAllocate) {
  const DeviceAddress small = allocator_->allocate(512);
  const DeviceAddress large = allocator_->allocate(8_MiB);
  // What a child does; the last is what most do.
  const std::vector<std::function<bool()>> doings{
      [&] { return every_call_refuses(*allocator_, small, large); },
      [&] {
        const AnnotationScope scope("in the child");
        return !allocator_->try_allocate(512);
      },
      [&] {
        allocator_->free(small);
        allocator_->free(large);
        return true;
      },
      works_anew,
      [&] {
        (void)device_count();
        return throws_forked([&] { (void)allocator_->statistics(); });
      },
      [] { return true; },
  };
  const Churn churn(*allocator_, 8, headroom::testing::test_seed());
  constexpr int kAtOnce = 8;
  std::vector<pid_t> children;
  const auto wait_for_all = [&] {
    for (const pid_t child : children) EXPECT_TRUE(has_ended_well(child));
    children.clear();
  };
  for (int i = 0; i < forks_asked_for() && !HasFailure(); ++i) {
    const auto& doing = doings[static_cast<std::size_t>(i) % doings.size()];
    children.push_back(fork_and([&] { return doing() ? 0 : 1; }));
    if (children.size() == kAtOnce) wait_for_all();
  }
  wait_for_all();
}

// The allocators of the process, which exit() leaves alone.
TEST(ForkOfAProcess, TheNamedFunctionsRefuse) {
  memory::Allocator& mine = allocator("cpu:0");
  const DeviceAddress block = mine.allocate(512);
  EXPECT_TRUE(has_ended_well(fork_and([&] {
    const bool ok = throws_forked([] { (void)memory_allocated("cpu:0"); }) &&
                    !allocator("cpu:0").try_allocate(512);
    mine.free(block);
    empty_cache();
    return ok ? 0 : 1;
  })));
  mine.free(block);
}

}  // namespace
}  // namespace headroom::memory
