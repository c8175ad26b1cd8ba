// Statistics with PyTorch's keys and movements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "headroom/memory/types.h"

namespace headroom::memory {

// One quantity: where it stands, where it stood at most, and how much came and went in all.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void increase(std::uint64_t amount) noexcept {
    const auto by = static_cast<std::int64_t>(amount);
    allocated += by;
    move(by);
  }
  void decrease(std::uint64_t amount) noexcept {
    const auto by = static_cast<std::int64_t>(amount);
    current -= by;
    freed += by;
  }
  // One movement, up or down, as PyTorch applies net changes.
  void change(std::int64_t amount) noexcept {
    if (amount > 0) increase(static_cast<std::uint64_t>(amount));
    if (amount < 0) decrease(static_cast<std::uint64_t>(-amount));
  }
  void move(std::int64_t by) noexcept {
    current += by;
    // A branch, not a maximum: peaks are rare, and a store is not free.
    if (current > peak) [[unlikely]] {
      peak = current;
    }
  }
  void reset_peak() noexcept { peak = current; }
  void reset_accumulated() noexcept { allocated = freed = 0; }
};

// The quantity for all blocks and for each kind of pool. What came and went of `all` is the sum of
// the pools': it is not counted twice, but filled in when somebody asks (sum_up).
struct StatArray {
  Stat all;
  Stat small_pool;
  Stat large_pool;

  [[nodiscard]] Stat& pool(bool is_small) noexcept { return is_small ? small_pool : large_pool; }

  void increase(bool is_small, std::uint64_t amount) noexcept {
    all.move(static_cast<std::int64_t>(amount));
    pool(is_small).increase(amount);
  }
  void decrease(bool is_small, std::uint64_t amount) noexcept {
    all.current -= static_cast<std::int64_t>(amount);
    pool(is_small).decrease(amount);
  }
  void change(bool is_small, std::int64_t amount) noexcept {
    all.move(amount);
    pool(is_small).change(amount);
  }
  void sum_up() noexcept {
    all.allocated = small_pool.allocated + large_pool.allocated;
    all.freed = small_pool.freed + large_pool.freed;
  }
};

struct Statistics {
  StatArray allocation;
  StatArray segment;
  StatArray active;
  StatArray inactive_split;
  StatArray allocated_bytes;
  StatArray reserved_bytes;
  StatArray active_bytes;
  StatArray inactive_split_bytes;
  StatArray requested_bytes;
  Stat oversize_allocations;
  Stat oversize_segments;
  // Ours: the sum of the sizes asked for, each rounded up to 512, whatever the policy.
  Stat live_bytes;
  // Ours: bytes of the blocks that sleep, which no other quantity counts.
  Stat sleeping_bytes;
  // Ours: bytes of the blocks somebody holds, by what they are for.
  std::array<Stat, kCategoryCount> category_bytes;

  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_oom_rejections = 0;
  // As PyTorch reports it: the value at construction, -1 when unlimited.
  std::int64_t max_split_size = -1;
  // False when several threads allocated, some without a lock, since peaks were last reset: then a
  // peak is only near, by 64 KiB a thread.
  bool peak_is_exact = true;

  void sum_up() noexcept;
  void reset_peak() noexcept;
  void reset_accumulated() noexcept;
};

// PyTorch's memory_stats(): `allocated_bytes.all.current` and so on, sorted.
[[nodiscard]] std::map<std::string, std::int64_t> flatten(const Statistics& stats);

// PyTorch's memory_summary(), character for character.
[[nodiscard]] std::string memory_summary(const Statistics& stats,
                                         int device_index,
                                         bool abbreviated = false);

}  // namespace headroom::memory
