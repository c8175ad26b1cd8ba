// A fork: the child has none of the parent's memory, gets an answer from every call, and may make
// devices of its own.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/registry.h"

#include "tests/device/small_device.h"
#include "tests/support/sanitized.h"

namespace headroom::device {
namespace {

// Runs `body` in a child; true when it returned true there. A child that hangs is ended.
bool is_true_in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Parent {
  std::unique_ptr<CpuDevice> device =
      CpuDevice::create({.capacity_bytes = 16_MiB, .granularity_bytes = kPage});
  DeviceAddress segment = device->allocate_segment(kPage).value();
  DeviceAddress base = device->reserve_addresses(4 * kPage).value();
  PageHandle pages = device->create_pages(kPage).value();
  StreamId stream = device->create_stream().value();
  EventId event = device->record_event(stream).value();
  void* pinned = device->allocate_pinned(4096).value();

  Parent() {
    device->map_pages(base, std::array{pages}).value();
    // The stream's thread has started by then: a child that is forked while it starts inherits
    // whatever lock a sanitizer held for it.
    device->synchronize_stream(stream).value();
  }
};

template <class Answer>
bool is_forked(const Answer& answer) {
  const bool yes = !answer && answer.error() == StatusCode::kForked;
  if (!yes) std::fprintf(stderr, "%s\n", answer ? "done" : to_string(answer.error()).c_str());
  return yes;
}

TEST(CpuFork, EveryCallInTheChildAnswersForked) {
  Parent parent;
  EXPECT_TRUE(is_true_in_child([&] {
    CpuDevice& device = *parent.device;
    std::array<char, 8> host{};
    const HostTask task{.run = [](void*) noexcept {}};
    bool ok = true;
    ok &= is_forked(device.allocate_segment(4096));
    ok &= is_forked(device.free_segment(parent.segment));
    ok &= is_forked(device.reserve_addresses(kPage));
    ok &= is_forked(device.release_addresses(parent.base));
    ok &= is_forked(device.create_pages(kPage));
    ok &= is_forked(device.release_pages(parent.pages));
    ok &= is_forked(device.map_pages(parent.base + kPage, std::array{parent.pages}));
    ok &= is_forked(device.unmap_pages(parent.base, kPage));
    ok &= is_forked(device.create_stream());
    ok &= is_forked(device.adopt_stream(1));
    ok &= is_forked(device.release_stream(parent.stream));
    ok &= is_forked(device.synchronize_stream(parent.stream));
    ok &= is_forked(device.is_capturing(parent.stream));
    ok &= is_forked(device.record_event(parent.stream));
    ok &= is_forked(device.query_event(parent.event));
    ok &= is_forked(device.wait_event(kDefault, parent.event));
    ok &= is_forked(device.synchronize_event(parent.event));
    ok &= is_forked(device.release_event(parent.event));
    ok &= is_forked(device.copy_to_device(parent.segment, host.data(), host.size(), kDefault));
    ok &= is_forked(device.copy_to_host(host.data(), parent.segment, host.size(), kDefault));
    ok &= is_forked(device.copy_within(parent.segment, parent.base, 8, kDefault));
    ok &= is_forked(device.copy_peer(parent.segment, device, parent.base, 8, kDefault));
    ok &= is_forked(device.fill(parent.segment, 0, 8, kDefault));
    ok &= is_forked(device.enqueue_host(kDefault, task));
    ok &= is_forked(device.allocate_pinned(8));
    ok &= is_forked(device.free_pinned(parent.pinned));
    ok &= is_forked(device.memory_info());
    ok &= is_forked(device.processes());
    ok &= is_forked(device.measure());
    ok &= !device.owns_range(parent.segment, 1);
    ok &= CpuDevice::live_mappings() == 0;
    return ok;
  }));
  // And nothing of it reached the parent.
  EXPECT_TRUE(parent.device->owns_range(parent.segment, kPage));
  EXPECT_TRUE(parent.device->query_event(parent.event));
}

TEST(CpuFork, TheChildHoldsNoneOfTheMemory) {
  Parent parent;
  EXPECT_TRUE(is_true_in_child([] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.find("headroom-cpu") != std::string::npos) return false;
    }
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    std::array<char, 512> line{};
    bool is_clean = true;
    while (std::fgets(line.data(), line.size(), maps) != nullptr) {
      is_clean &= std::string(line.data()).find("headroom-cpu") == std::string::npos;
    }
    std::fclose(maps);
    return is_clean;
  }));
}

TEST(CpuFork, TheChildMayDestroyTheDeviceAndMakeItsOwn) {
  if (headroom::testing::kIsSanitized) {
    GTEST_SKIP() << "the sanitizers' own locks do not survive a fork: a child cannot start threads";
  }
  Parent parent;
  EXPECT_TRUE(is_true_in_child([&] {
    parent.device.reset();
    const auto device = CpuDevice::create({.capacity_bytes = 16_MiB, .granularity_bytes = kPage});
    const auto segment = device->allocate_segment(kPage).value();
    const auto base = device->reserve_addresses(kPage).value();
    device->map_pages(base, std::array{device->create_pages(kPage).value()}).value();
    const auto stream = device->create_stream().value();
    device->fill(base, 3, kPage, stream).value();
    device->copy_within(segment, base, kPage, stream).value();
    device->synchronize_stream(stream).value();
    return static_cast<const unsigned char*>(internal::to_pointer(segment))[kPage - 1] == 3;
  }));
  EXPECT_TRUE(parent.device->free_segment(parent.segment));
}

TEST(CpuFork, TheRegistryOfTheChildKnowsOnlyForkedDevices) {
  Device* device = registry().find("cpu:0").value();
  ASSERT_TRUE(device->memory_info());
  EXPECT_TRUE(is_true_in_child([&] {
    return registry().find("cpu:0").value() == device && is_forked(device->memory_info());
  }));
}

// The parent's threads hold locks at the moment of the fork, sooner or later.
TEST(CpuFork, DoesNotHangWhateverOtherThreadsDo) {
  if (headroom::testing::kIsSanitized) {
    GTEST_SKIP() << "the sanitizer's own allocator does not survive a fork in a busy process";
  }
  Parent parent;
  std::atomic<bool> is_over{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!is_over) {
          const auto base = parent.device->reserve_addresses(kPage).value();
          parent.device->map_pages(base, std::array{parent.pages}).value();
          parent.device->fill(base, 1, kPage, parent.stream).value();
          parent.device->synchronize_stream(parent.stream).value();
          (void)parent.device->unmap_pages(base, kPage).value();
          parent.device->release_addresses(base).value();
          const auto stream = parent.device->create_stream().value();
          parent.device->release_stream(stream).value();
        }
      });
    }
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(is_true_in_child([&] {
        const bool answered = is_forked(parent.device->allocate_segment(4096));
        parent.device.reset();
        const auto own = CpuDevice::create({.capacity_bytes = 1_MiB});
        return answered && own->allocate_segment(4096).has_value();
      }));
    }
    is_over = true;
  }
}

}  // namespace
}  // namespace headroom::device
