// Steps that repeat themselves: after a few of them nothing changes any more, no call of the device
// is made, and no block ever holds a word that is not its own.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/fault_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::Call;
using headroom::testing::seed_text;
using headroom::testing::test_seed;

// One step: blocks come and go in an order of their own, and all are gone at its end.
struct StepProgram {
  struct Turn {
    std::uint64_t size_bytes = 0;  // 0 frees
    std::size_t which = 0;
  };
  std::vector<Turn> turns{};
};

StepProgram random_step(std::mt19937& random, std::uint64_t most_bytes) {
  StepProgram out;
  std::vector<std::size_t> held;
  std::size_t count = 0;
  const std::size_t turns = 40 + random() % 160;
  while (out.turns.size() < turns || !held.empty()) {
    const bool may_grow = out.turns.size() < turns;
    if (may_grow && (held.empty() || random() % 5 < 3)) {
      // Sizes of all orders, ragged.
      const std::uint64_t size = (most_bytes >> (random() % 12U)) + random() % 100'000;
      out.turns.push_back({.size_bytes = size, .which = count});
      held.push_back(count++);
    } else {
      const std::size_t at = random() % held.size();
      out.turns.push_back({.which = held[at]});
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return out;
}

// The addresses that the step was given; a request that was refused has 0.
std::vector<DeviceAddress> run_step(Allocator& allocator, const StepProgram& program) {
  std::vector<DeviceAddress> given;
  for (const StepProgram::Turn& turn : program.turns) {
    if (turn.size_bytes > 0) {
      const auto block = allocator.try_allocate(turn.size_bytes);
      given.push_back(block ? *block : 0);
    } else if (given[turn.which] != 0) {
      allocator.free(given[turn.which]);
    }
  }
  allocator.mark_step();
  return given;
}

struct DeviceCalls {
  std::uint64_t created = 0;
  std::uint64_t moved = 0;

  friend bool operator==(const DeviceCalls&, const DeviceCalls&) = default;
};

DeviceCalls calls_of(const device::Device& device) {
  return {.created = device.calls(Call::kCreatePages) + device.calls(Call::kReleasePages),
          .moved = device.calls(Call::kMapPages) + device.calls(Call::kUnmapPages)};
}

TEST(PagedRest, StepsThatRepeatThemselvesComeToRest) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  int quiet = 0;
  constexpr int kPrograms = 40;
  for (int program = 0; program < kPrograms; ++program) {
    SCOPED_TRACE(program);
    const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
    PagedAllocator allocator(*device);
    // What stays lies between what comes and goes.
    std::vector<DeviceAddress> kept;
    for (int i = 0; i < 20; ++i) kept.push_back(allocator.allocate((random() % 64 + 1) * 512_KiB));
    const StepProgram step = random_step(random, 200_MiB);
    std::vector<DeviceAddress> before = run_step(allocator, step);
    for (int i = 0; i < 12; ++i) before = run_step(allocator, step);
    const DeviceCalls calls = calls_of(*device);
    const std::uint64_t print = allocator.fingerprint();
    bool is_the_same = true;
    for (int i = 0; i < 20; ++i) {
      is_the_same = is_the_same && run_step(allocator, step) == before;
      is_the_same = is_the_same && allocator.fingerprint() == print;
    }
    EXPECT_EQ(calls_of(*device).created, calls.created);
    EXPECT_TRUE(is_the_same);
    quiet += calls_of(*device) == calls ? 1 : 0;
    ASSERT_EQ(allocator.check_invariants(), std::nullopt);
    for (const DeviceAddress block : kept) allocator.free(block);
  }
  EXPECT_GE(quiet, kPrograms * 3 / 4) << "most steps move no page in the end";
}

// Two kinds of step in turn, as where a batch is loaded ahead: each finds its own.
TEST(PagedRest, StepsOfTwoKindsInTurnComeToRestToo) {
  std::mt19937 random(7);
  const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
  PagedAllocator allocator(*device);
  const StepProgram step = random_step(random, 100_MiB);
  std::vector<DeviceAddress> ahead{allocator.allocate(30_MiB), 0};
  std::vector<std::vector<DeviceAddress>> seen;
  for (int i = 0; i < 24; ++i) {
    ahead[1] = allocator.allocate(30_MiB);  // the next, while this one is in use
    std::vector<DeviceAddress> given = run_step(allocator, step);
    given.push_back(ahead[1]);
    seen.push_back(std::move(given));
    allocator.free(std::exchange(ahead[0], ahead[1]));
    allocator.mark_step();
  }
  EXPECT_EQ(seen[23], seen[21]);
  EXPECT_EQ(seen[22], seen[20]);
  EXPECT_EQ(allocator.check_invariants(), std::nullopt);
}

TEST(PagedRest, UnderATightLimitNothingIsRefusedLaterThatWasServedBefore) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  for (int program = 0; program < 20; ++program) {
    SCOPED_TRACE(program);
    const StepProgram step = random_step(random, 40_MiB);
    const auto peak = [&] {
      const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
      PagedAllocator allocator(*device);
      for (int i = 0; i < 12; ++i) (void)run_step(allocator, step);
      return static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.peak);
    }();
    const auto device = device::MetaDevice::create({.capacity_bytes = 64_GiB});
    PagedAllocator allocator(*device);
    allocator.set_limit(peak);
    for (int i = 0; i < 100; ++i) {
      const std::vector<DeviceAddress> given = run_step(allocator, step);
      ASSERT_EQ(std::ranges::count(given, DeviceAddress{0}), 0) << "step " << i;
    }
    EXPECT_EQ(allocator.statistics().reserved_bytes.all.peak, static_cast<std::int64_t>(peak));
  }
}

// --- With data -----------------------------------------------------------------------------------

constexpr PagedOptions kSmallPages{.page_bytes = 128_KiB,
                                   .large_page_bytes = 512_KiB,
                                   .large_from_bytes = 1_MiB,
                                   .cushion_bytes = 0};

void fill(DeviceAddress block, std::uint64_t size, std::uint64_t word) {
  for (std::uint64_t at = 0; at + 8 <= size; at += 512) {
    std::memcpy(reinterpret_cast<void*>(block + at), &word, 8);
  }
}

bool holds(DeviceAddress block, std::uint64_t size, std::uint64_t word) {
  std::uint64_t found = 0;
  for (std::uint64_t at = 0; at + 8 <= size; at += 512) {
    std::memcpy(&found, reinterpret_cast<const void*>(block + at), 8);
    if (found != word) return false;
  }
  return true;
}

TEST(PagedRest, BlocksKeepTheirWordsOverRests) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed_text(seed));
  std::mt19937 random(seed);
  const auto device =
      device::CpuDevice::create({.capacity_bytes = 48_MiB, .granularity_bytes = 64_KiB});
  PagedAllocator allocator(*device, kSmallPages);
  struct Held {
    DeviceAddress address = 0;
    std::uint64_t size = 0;
    std::uint64_t word = 0;
  };
  std::vector<Held> kept;
  std::uint64_t next = 1;
  const StepProgram step = random_step(random, 3_MiB);
  for (int round = 0; round < 60; ++round) {
    std::vector<Held> held(step.turns.size());
    for (const StepProgram::Turn& turn : step.turns) {
      if (turn.size_bytes > 0) {
        const std::uint64_t size = round_up(turn.size_bytes, std::uint64_t{512});
        const auto block = allocator.try_allocate(size);
        if (!block) continue;
        held[turn.which] = {*block, size, next++};
        fill(*block, size, held[turn.which].word);
      } else if (const Held one = held[turn.which]; one.address != 0) {
        ASSERT_TRUE(holds(one.address, one.size, one.word)) << "round " << round;
        allocator.free(one.address);
      }
    }
    // Now and then something stays, or what stayed goes: then there is no earlier rest to go to.
    if (round % 7 == 3) {
      if (const auto block = allocator.try_allocate(700'416)) {
        kept.push_back({*block, 700'416, next++});
        fill(*block, 700'416, kept.back().word);
      }
    } else if (round % 11 == 5 && !kept.empty()) {
      allocator.free(kept.front().address);
      kept.erase(kept.begin());
    }
    allocator.mark_step();
    ASSERT_EQ(allocator.check_invariants(), std::nullopt) << "round " << round;
    for (const Held& one : kept) {
      ASSERT_TRUE(holds(one.address, one.size, one.word)) << "round " << round;
    }
  }
  EXPECT_GT(device->calls(Call::kMapPages), 0U);
  for (const Held& one : kept) allocator.free(one.address);
}

// Whatever the device refuses, pages are lost neither to the program nor to the device.
TEST(PagedRest, SurvivesADeviceThatRefuses) {
  std::mt19937 random(11);
  const auto inner = device::MetaDevice::create({.capacity_bytes = 2_GiB});
  device::FaultDevice faulty(*inner);
  {
    PagedAllocator allocator(faulty);
    const StepProgram step = random_step(random, 100_MiB);
    for (int i = 0; i < 40; ++i) {
      faulty.clear();
      const Call call = i % 2 == 0 ? Call::kMapPages : Call::kUnmapPages;
      if (i % 4 > 1) faulty.fail_at(call, 1 + random() % 30, device::StatusCode::kFailed, 5);
      (void)run_step(allocator, step);
      ASSERT_EQ(allocator.check_invariants(), std::nullopt) << "step " << i;
    }
    faulty.clear();
    allocator.empty_cache();
    EXPECT_EQ(allocator.statistics().allocated_bytes.all.current, 0);
  }
  EXPECT_EQ(inner->memory_info()->free_bytes, 2_GiB);
}

}  // namespace
}  // namespace headroom::memory
