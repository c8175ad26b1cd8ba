// Random programs whose blocks sleep and wake: every address stays its block's, every byte of a
// block that is awake or was kept is its own, and all rules hold after each operation; whichever
// calls of the device fail.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/fault_device.h"
#include "headroom/memory/paged/paged_allocator.h"

#include "tests/support/device_status.h"
#include "tests/support/seed.h"

namespace headroom::memory {
namespace {

using device::CpuDevice;
using device::FaultDevice;
using device::StatusCode;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSleepPrograms = 2;
#else
constexpr int kSleepPrograms = 12;
#endif
constexpr int kSleepSteps = 300;

constexpr PagedOptions kProgramPages{.page_bytes = 256_KiB,
                                     .large_page_bytes = 1_MiB,
                                     .large_from_bytes = 2_MiB,
                                     .cushion_bytes = 512_KiB};
constexpr std::array<std::string_view, 5> kSleepScopes{"", "a", "b", "a/b", "c"};

struct SleepHeld {
  std::uint64_t size = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t number = 0;
  std::string scope{};
  StreamId stream{};
  bool is_asleep = false;
  bool has_pattern = true;
};

class SleepProgram {
 public:
  SleepProgram(unsigned seed, device::Device& device, std::uint64_t limit)
      : random_(seed), device_(device), allocator_(device, kProgramPages) {
    allocator_.set_limit(limit);
    streams_ = {StreamId::kDefault, StreamId::kDefault, StreamId::kDefault};
    for (std::size_t i = 1; i < streams_.size(); ++i) {
      if (const auto stream = device.create_stream()) streams_[i] = *stream;
    }
  }

  // The first broken promise, or nothing.
  std::optional<std::string> run(int steps) {
    for (step_ = 0; step_ < steps && !broken_; ++step_) {
      operate();
      check();
    }
    return broken_;
  }
  // All that was promised holds for every block, whatever happened.
  std::optional<std::string> end() {
    try {
      (void)allocator_.wake("");
    } catch (const std::bad_alloc&) {
      while (held_.size() > 4) free_one();
      (void)allocator_.wake("");
    }
    for (auto& [address, block] : held_) block.is_asleep = false;
    check();
    for (const auto& [address, block] : held_) check_pattern(address, block);
    while (!held_.empty() && !broken_) free_one();
    check();
    (void)allocator_.empty_cache();
    if (allocator_.statistics().reserved_bytes.all.current != 0) fail("memory stays behind");
    return broken_;
  }

 private:
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  void fail(const std::string& what) {
    if (!broken_) broken_ = "step " + std::to_string(step_) + ": " + what;
  }

  void operate() {
    switch (draw(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return allocate();
      case 4:
      case 5:
        return free_one();
      case 6:
      case 7:
        return sleep();
      case 8:
      case 9:
        return wake();
      case 10:
        return clean_up();
      default:
        return look_at_one();
    }
  }

  void allocate() {
    const std::string scope(kSleepScopes[draw(kSleepScopes.size())]);
    const std::uint64_t size = draw(8) == 0   ? 1 + draw(64_KiB)
                               : draw(6) == 0 ? 2_MiB + draw(2_MiB)
                                              : 65_KiB + draw(400_KiB);
    const StreamId stream = streams_[draw(streams_.size())];
    const AnnotationScope names(scope);
    const auto address = allocator_.try_allocate(size, stream);
    if (!address) return;
    if (held_.contains(*address)) return fail("an address was given out twice");
    const auto next = held_.upper_bound(*address);
    if ((next != held_.end() && next->first < *address + size) ||
        (next != held_.begin() &&
         std::prev(next)->first + std::prev(next)->second.size > *address)) {
      return fail("two blocks overlap");
    }
    SleepHeld& block =
        held_[*address] = {.size = size,
                           .block_bytes = allocator_.find_block(*address)->size_bytes,
                           .number = ++numbers_,
                           .scope = scope,
                           .stream = stream};
    write_pattern(*address, block);
    if (draw(size <= 64_KiB ? 40 : 5) == 0)
      (void)allocator_.record_stream(*address, streams_[draw(streams_.size())]);
  }

  void free_one() {
    if (held_.empty()) return;
    auto it = held_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(draw(held_.size())));
    if (!it->second.is_asleep) check_pattern(it->first, it->second);
    if (!allocator_.try_free(it->first)) return fail("a block cannot be freed");
    held_.erase(it);
  }

  [[nodiscard]] static bool is_meant(const SleepHeld& block, std::string_view scope) {
    return scope.empty() || block.scope == scope || (block.scope == "a/b" && scope != "c");
  }

  void sleep() {
    const std::string_view scope = kSleepScopes[draw(kSleepScopes.size())];
    const bool keeps = draw(2) == 0;
    std::uint64_t bytes = 0;
    const std::int64_t reserved = stats().reserved_bytes.all.current;
    try {
      const SleepChange change =
          allocator_.sleep(scope, keeps ? SleepContents::kKeptOnHost : SleepContents::kDiscarded);
      for (auto& [address, block] : held_) {
        if (block.is_asleep || !is_meant(block, scope)) continue;
        // Small ones stay awake where another needs their page.
        if (block.size <= 64_KiB && allocator_.find_block(address)) continue;
        bytes += block.block_bytes;
        block.is_asleep = true;
        block.has_pattern = block.has_pattern && keeps;
      }
      if (bytes != change.block_bytes) fail("other blocks sleep than were meant");
      if (reserved - stats().reserved_bytes.all.current !=
          static_cast<std::int64_t>(change.device_bytes)) {
        fail("what went back is miscounted");
      }
    } catch (const Error&) {  // the device failed: nothing sleeps
      return;
    }
  }

  void wake() {
    const std::string_view scope = kSleepScopes[draw(kSleepScopes.size())];
    const auto woken = allocator_.try_wake(scope);
    if (!woken) return;
    std::size_t count = 0;
    for (auto& [address, block] : held_) {
      if (!block.is_asleep) continue;
      // Small ones wake with whatever is in their page.
      const bool is_awake = allocator_.find_block(address).has_value();
      const bool is_large = block.size > 64_KiB;
      if (is_meant(block, scope) ? !is_awake : is_awake && is_large) {
        return fail("other blocks are awake than were meant");
      }
      if (!is_awake) continue;
      ++count;
      block.is_asleep = false;
      check_pattern(address, block);
      if (!block.has_pattern) write_pattern(address, block);
    }
    if (count != woken->blocks) fail("what is awake is miscounted");
  }

  void clean_up() {
    switch (draw(3)) {
      case 0:
        allocator_.empty_cache();
        return;
      case 1:
        allocator_.trim(draw(8_MiB));
        return;
      default:
        allocator_.mark_step();
    }
  }

  void look_at_one() {
    if (held_.empty()) return;
    auto it = held_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(draw(held_.size())));
    if (!it->second.is_asleep) check_pattern(it->first, it->second);
  }

  // A word that tells whose it is, every 512 bytes.
  static std::uint64_t word(const SleepHeld& block, std::uint64_t at) {
    return block.number * 0x9E3779B97F4A7C15U ^ at;
  }
  // Also where a call is made to fail: host memory that is copied must not go before.
  [[nodiscard]] bool wait(StreamId stream) {
    for (int i = 0; i < 8; ++i) {
      if (device_.synchronize_stream(stream)) return true;
    }
    return false;
  }
  void write_pattern(DeviceAddress address, SleepHeld& block) {
    std::vector<std::uint64_t> words(block.size / 8);
    for (std::uint64_t i = 0; i < words.size(); i += 64) words[i] = word(block, i);
    const auto copied =
        device_.copy_to_device(address, words.data(), 8 * words.size(), block.stream);
    block.has_pattern = copied.has_value() && wait(block.stream);
  }
  void check_pattern(DeviceAddress address, const SleepHeld& block) {
    if (!block.has_pattern) return;
    std::vector<std::uint64_t> words(block.size / 8);
    if (!device_.copy_to_host(words.data(), address, 8 * words.size(), block.stream) ||
        !wait(block.stream)) {
      return;
    }
    for (std::uint64_t i = 0; i < words.size(); i += 64) {
      if (words[i] != word(block, i)) return fail("a block holds another's bytes");
    }
  }

  [[nodiscard]] Statistics stats() const { return allocator_.statistics(); }
  void check() {
    if (auto problem = allocator_.check_invariants()) return fail(*problem);
    std::int64_t asleep = 0;
    for (const auto& [address, block] : held_) {
      asleep += block.is_asleep ? static_cast<std::int64_t>(block.block_bytes) : 0;
      if (allocator_.find_block(address).has_value() == block.is_asleep) {
        return fail("a block is not where it was");
      }
    }
    if (asleep != stats().sleeping_bytes.current) return fail("sleeping bytes are miscounted");
    const Account account = allocator_.account();
    if (account.reserved() != static_cast<std::uint64_t>(stats().reserved_bytes.all.current)) {
      return fail("the account does not add up to what is reserved");
    }
  }

  std::minstd_rand random_;
  device::Device& device_;
  PagedAllocator allocator_;
  std::array<StreamId, 3> streams_{};
  std::map<DeviceAddress, SleepHeld> held_;
  std::uint64_t numbers_ = 0;
  int step_ = 0;
  std::optional<std::string> broken_;
};

std::unique_ptr<CpuDevice> sleep_device() {
  return CpuDevice::create({.capacity_bytes = 48_MiB, .granularity_bytes = 64_KiB});
}

TEST(SleepProperty, RandomProgramsLoseNothing) {
  const unsigned first = headroom::testing::test_seed();
  for (int i = 0; i < kSleepPrograms; ++i) {
    const unsigned seed = first + static_cast<unsigned>(i);
    SCOPED_TRACE(headroom::testing::seed_text(seed));
    const auto device = sleep_device();
    SleepProgram program(seed, *device, i % 2 == 0 ? 40_MiB : 12_MiB);
    ASSERT_EQ(program.run(kSleepSteps).value_or(""), "");
    ASSERT_EQ(program.end().value_or(""), "");
  }
}

// Every call of the device fails in turn, alone and with the calls behind it.
TEST(SleepProperty, WhicheverCallFailsNothingIsLost) {
  constexpr unsigned kSeed = 7;
  constexpr int kFewSteps = 50;
  std::uint64_t calls = 0;
  {
    const auto inner = sleep_device();
    FaultDevice device(*inner);
    SleepProgram program(kSeed, device, 10_MiB);
    device.clear();
    ASSERT_EQ(program.run(kFewSteps).value_or(""), "");
    calls = device.seen();
  }
  const std::uint64_t stride = kSleepPrograms > 2 ? 1 : 7;
  for (std::uint64_t position = 1; position <= calls; position += stride) {
    const auto inner = sleep_device();
    FaultDevice device(*inner);
    SleepProgram program(kSeed, device, 10_MiB);
    device.clear();
    const bool is_short = position % 2 == 0;
    const std::uint64_t times = position % 3 == 0 ? 5 : 1;
    device.fail_at(position, is_short ? StatusCode::kOutOfMemory : StatusCode::kFailed, times);
    SCOPED_TRACE("call " + std::to_string(position) + " of " + std::to_string(calls));
    ASSERT_EQ(program.run(kFewSteps).value_or(""), "");
    device.clear();
    ASSERT_EQ(program.end().value_or(""), "");
  }
}

}  // namespace
}  // namespace headroom::memory
