// The part of SlabHeap that takes no lock: what every allocation and free tries first.
#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {

DeviceAddress SlabHeap::allocate_cached(std::uint64_t size_bytes,
                                        StreamId stream,
                                        AllocationContext context) noexcept {
  if (!use_magazines(id_, stream)) return 0;
  ThreadCache& cache = *t_last_used.cache;
  Magazines& magazines = *t_last_used.magazines;
  const std::size_t size_class = size_class_of(size_bytes);
  const TallyBlock counted{.size = kClasses[size_class].block_bytes,
                           .requested = static_cast<std::int64_t>(size_bytes),
                           .category = context.category};
  if (!cache.enter()) return 0;
  DeviceAddress address = 0;
  // Whether magazines are on is asked inside: whoever switches them off holds every cache after
  // that, so nothing happens without the lock once enable_magazines has returned.
  if (magazines.count(size_class) != 0 && is_enabled_.load(std::memory_order_relaxed) &&
      (is_alone_.load(std::memory_order_relaxed) || cache.tally.may_add(counted))) [[likely]] {
    const SlabSlot slot = magazines.top(size_class);
    magazines.pop(size_class);
    slot.word->store(SlotWord::held(size_class, size_bytes, context).bits(),
                     std::memory_order_relaxed);
    cache.tally.add(counted);
    address = slot.address;
    if (tracks_blocks_) {
      device_.block_allocated(address, kClasses[size_class].block_bytes, stream);
    }
  }
  cache.leave();
  return address;
}

SlabHeap::Freed SlabHeap::free_cached(DeviceAddress address) noexcept {
  const Place place = place_of(address);
  if (place.word == nullptr) return Freed::kUnknown;
  const SlotWord word(place.word->load(std::memory_order_relaxed));
  if (!word.is_held()) return Freed::kUnknown;
  const StreamId stream = place.page->stream.load(std::memory_order_relaxed);
  if (word.is_used_elsewhere() || !use_magazines(id_, stream)) return Freed::kNeedsLock;

  ThreadCache& cache = *t_last_used.cache;
  Magazines& magazines = *t_last_used.magazines;
  const std::size_t size_class = word.size_class();
  const std::uint64_t size_bytes = kClasses[size_class].block_bytes;
  const TallyBlock counted{.size = static_cast<std::int64_t>(size_bytes),
                           .requested = static_cast<std::int64_t>(word.requested_bytes()),
                           .category = word.context().category};
  // The swap frees the block: of two threads that free it at once, one does. It also is what makes
  // being inside known before it is asked whether that is allowed; so it comes first, and when the
  // lock is needed after all, the free has begun.
  cache.say_inside();
  std::uint64_t expected = word.bits();
  if (!place.word->compare_exchange_strong(expected, word.being_freed().bits())) {
    cache.leave();
    return Freed::kNeedsLock;
  }
  if (!cache.may_stay()) return Freed::kBegun;
  const bool is_done =
      magazines.has_room(size_class) && is_enabled_.load(std::memory_order_relaxed) &&
      (is_alone_.load(std::memory_order_relaxed) || cache.tally.may_remove(counted));
  if (is_done) [[likely]] {
    place.word->store(SlotWord::cached().bits(), std::memory_order_relaxed);
    if (tracks_blocks_) device_.block_freed(address, size_bytes, stream);
    magazines.push(size_class, {.address = address, .word = place.word});
    cache.tally.remove(counted);
  }
  cache.leave();
  return is_done ? Freed::kDone : Freed::kBegun;
}

}  // namespace headroom::memory::internal
