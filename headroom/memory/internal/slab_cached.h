// The part of SlabHeap that takes no lock: what every allocation and free tries first. Inline, and
// without calls on the usual path: each would cost it registers.
#pragma once

#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {

[[gnu::always_inline]] inline bool SlabHeap::tally_alloc(Mode mode,
                                                         ThreadTally& tally,
                                                         const TallyBlock& block) noexcept {
  if ((mode & (kOff | kLocked)) != 0) [[unlikely]] {
    return false;
  }
  if ((mode & kShared) != 0) return tally.try_add(block);
  tally.add(block);
  return true;
}

[[gnu::always_inline]] inline bool SlabHeap::tally_free(Mode mode,
                                                        ThreadTally& tally,
                                                        const TallyBlock& block) noexcept {
  if ((mode & (kOff | kLocked)) != 0) [[unlikely]] {
    return false;
  }
  if ((mode & kShared) != 0) return tally.try_remove(block);
  tally.remove(block);
  return true;
}

[[gnu::always_inline]] inline DeviceAddress SlabHeap::allocate_cached(
    std::uint64_t size_bytes, StreamId stream, AllocationContext context) noexcept {
  const LastUsed* const used = use_magazines(id_, stream);
  if (used == nullptr) [[unlikely]] {
    return 0;
  }
  ThreadCache& cache = *used->cache;
  Magazines& magazines = *used->magazines;
  const std::size_t size_class = size_class_of(size_bytes);
  Shelf& shelf = magazines.shelf(size_class);
  const TallyBlock counted{.size = shelf.block_bytes,
                           .requested = static_cast<std::int64_t>(size_bytes),
                           .category = context.category};
  if (!cache.enter()) [[unlikely]] {
    return 0;
  }
  DeviceAddress address = 0;
  // Whether magazines are on is asked inside: whoever switches them off holds every cache after
  // that, so nothing happens without the lock once enable_magazines has returned.
  const Mode mode = mode_.load(std::memory_order_relaxed);
  if (!shelf.is_empty() && tally_alloc(mode, cache.tally, counted)) [[likely]] {
    const SlabSlot slot = magazines.pop(shelf);
    slot.word->store(SlotWord::held(size_class, size_bytes, context).bits(),
                     std::memory_order_relaxed);
    address = slot.address;
    if ((mode & kTracked) != 0) [[unlikely]] {
      notify_allocated(address, shelf.block_bytes, stream);
    }
  }
  cache.leave();
  return address;
}

[[gnu::always_inline]] inline SlabHeap::Freed SlabHeap::free_cached(
    DeviceAddress address) noexcept {
  if (!owns(address)) return Freed::kElsewhere;
  const Place place = place_at(offset_of(address));
  if (place.word == nullptr) [[unlikely]] {
    return Freed::kUnknown;
  }
  const SlotWord word(place.word->load(std::memory_order_relaxed));
  if (!word.is_held()) [[unlikely]] {
    return Freed::kUnknown;
  }
  const StreamId stream = place.page->stream.load(std::memory_order_relaxed);
  const LastUsed* const used = word.is_used_elsewhere() ? nullptr : use_magazines(id_, stream);
  if (used == nullptr) [[unlikely]] {
    return Freed::kNeedsLock;
  }

  ThreadCache& cache = *used->cache;
  Magazines& magazines = *used->magazines;
  Shelf& shelf = magazines.shelf(word.size_class());
  const TallyBlock counted{.size = shelf.block_bytes,
                           .requested = static_cast<std::int64_t>(word.requested_bytes()),
                           .category = word.context().category};
  // The swap frees the block: of two threads that free it at once, one does. It also is what makes
  // being inside known before it is asked whether that is allowed; so it comes first, and when the
  // lock is needed after all, the free has begun.
  cache.say_inside();
  std::uint64_t expected = word.bits();
  if (!place.word->compare_exchange_strong(expected, word.being_freed().bits())) [[unlikely]] {
    cache.leave();
    return Freed::kNeedsLock;
  }
  if (!cache.may_stay()) [[unlikely]] {
    return Freed::kBegun;
  }
  const Mode mode = mode_.load(std::memory_order_relaxed);
  const bool is_done = magazines.has_room(shelf) && tally_free(mode, cache.tally, counted);
  if (is_done) [[likely]] {
    place.word->store(SlotWord::cached().bits(), std::memory_order_relaxed);
    if ((mode & kTracked) != 0) [[unlikely]] {
      notify_freed(address, shelf.block_bytes, stream);
    }
    magazines.push(shelf, {.address = address, .word = place.word});
  }
  cache.leave();
  return is_done ? Freed::kDone : Freed::kBegun;
}

}  // namespace headroom::memory::internal
