// The shell's bookkeeping when a core hands out a block or takes one back. Inline: this is half of
// the work of an allocation, and every core does it under its lock.
#pragma once

#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/core.h"
#include "headroom/memory/internal/tag_scope.h"
#include "headroom/memory/internal/thread_tally.h"

namespace headroom::memory {

inline void AllocatorCore::emit(Action action,
                                const BlockRecord& block,
                                std::uint64_t size_bytes) noexcept {
  ++sequence_;
  if (wanted_.has(action)) [[unlikely]] {
    send_to_sinks(action, block, size_bytes);
  }
}

// The kind of pool is a template parameter so that each quantity is at a known place.
template <bool kSmall>
void AllocatorCore::add_to_statistics_alloc(const BlockRecord& block) noexcept {
  stats_.allocation.increase(kSmall, 1);
  stats_.allocated_bytes.increase(kSmall, block.size_bytes);
  stats_.active.increase(kSmall, 1);
  stats_.active_bytes.increase(kSmall, block.size_bytes);
  stats_.requested_bytes.increase(kSmall, block.requested_bytes);
}

inline void AllocatorCore::record_alloc(const BlockRecord& block) noexcept {
  block.is_small ? add_to_statistics_alloc<true>(block) : add_to_statistics_alloc<false>(block);
  stats_.live_bytes.increase(round_up(block.requested_bytes, kMinBlockBytes));
  stats_.category_bytes[static_cast<std::size_t>(block.context.category)].increase(
      block.size_bytes);
  if (!scopes_.empty()) [[unlikely]] {
    running_.allocated = std::max(running_.allocated, stats_.allocated_bytes.all.current);
    running_.live = std::max(running_.live, stats_.live_bytes.current);
  }
  emit(Action::kAlloc, block, block.requested_bytes);
}

template <bool kSmall>
void AllocatorCore::add_to_statistics_free_requested(const BlockRecord& block) noexcept {
  stats_.allocation.decrease(kSmall, 1);
  stats_.allocated_bytes.decrease(kSmall, block.size_bytes);
}

inline void AllocatorCore::record_free_requested(const BlockRecord& block) noexcept {
  block.is_small ? add_to_statistics_free_requested<true>(block)
                 : add_to_statistics_free_requested<false>(block);
  stats_.category_bytes[static_cast<std::size_t>(block.context.category)].decrease(
      block.size_bytes);
  emit(Action::kFreeRequested, block, block.requested_bytes);
}

template <bool kSmall>
void AllocatorCore::add_to_statistics_free_completed(const BlockRecord& block) noexcept {
  stats_.active.decrease(kSmall, 1);
  stats_.active_bytes.decrease(kSmall, block.size_bytes);
  stats_.requested_bytes.decrease(kSmall, block.requested_bytes);
}

inline void AllocatorCore::record_free_completed(const BlockRecord& block) noexcept {
  block.is_small ? add_to_statistics_free_completed<true>(block)
                 : add_to_statistics_free_completed<false>(block);
  stats_.live_bytes.decrease(round_up(block.requested_bytes, kMinBlockBytes));
  emit(Action::kFreeCompleted, block, block.requested_bytes);
}

// --- What threads did without the lock -----------------------------------------------------------

namespace internal {

// A peak, had the movement started from where the quantity stands.
inline void fold_peak(Stat& stat, const Movement& movement) noexcept {
  stat.peak = std::max(stat.peak, stat.current + movement.most);
}

inline void fold_movement(Stat& stat, const Movement& movement) noexcept {
  fold_peak(stat, movement);
  stat.current += movement.now();
  stat.allocated += movement.came;
  stat.freed += movement.went;
}

inline void fold_movement(StatArray& array, const Movement& movement) noexcept {
  fold_peak(array.all, movement);
  array.all.current += movement.now();
  fold_movement(array.small_pool, movement);
}

}  // namespace internal

inline void AllocatorCore::record_threads(const internal::ThreadTally& tally) const noexcept {
  if (!tally.is_alone) stats_.peak_is_exact = false;
  if (tally.is_empty()) return;
  if (!scopes_.empty()) {
    running_.allocated =
        std::max(running_.allocated, stats_.allocated_bytes.all.current + tally.allocated.most);
    running_.live = std::max(running_.live, stats_.live_bytes.current + tally.live.most);
  }
  internal::fold_movement(stats_.allocation, tally.blocks);
  internal::fold_movement(stats_.active, tally.blocks);
  internal::fold_movement(stats_.allocated_bytes, tally.allocated);
  internal::fold_movement(stats_.active_bytes, tally.allocated);
  internal::fold_movement(stats_.requested_bytes, tally.requested);
  internal::fold_movement(stats_.live_bytes, tally.live);
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    if (tally.categories[i].is_none()) continue;
    internal::fold_movement(stats_.category_bytes[i], tally.categories[i]);
  }
}

}  // namespace headroom::memory
