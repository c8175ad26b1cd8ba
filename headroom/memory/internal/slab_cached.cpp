// The part of SlabHeap that takes no lock: what every allocation and free tries first.
#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {
namespace {

// This is what frees a block: of two threads that free it at once, one does. Alone, with a claim,
// no other thread can.
inline bool take_held(Slot& word, std::uint64_t bits, bool is_alone) noexcept {
  constexpr std::uint64_t kCached = SlotWord::cached().bits();
  if (!is_alone) return word.compare_exchange_strong(bits, kCached, std::memory_order_relaxed);
  word.store(kCached, std::memory_order_relaxed);
  return true;
}

}  // namespace

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
  if (!cache.try_claim()) return 0;
  DeviceAddress address = 0;
  // Whether magazines are on is asked with the claim: whoever switches them off claims every cache
  // after that, so nothing happens without the lock once enable_magazines has returned.
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
  cache.let_go();
  return address;
}

SlabHeap::Freed SlabHeap::free_cached(DeviceAddress address) noexcept {
  const Place place = place_of(address);
  if (place.word == nullptr) return Freed::kUnknown;
  const std::uint64_t bits = place.word->load(std::memory_order_relaxed);
  const SlotWord word(bits);
  if (word.state() != SlotState::kHeld) return Freed::kUnknown;
  const StreamId stream = place.page->stream.load(std::memory_order_relaxed);
  if (word.is_used_elsewhere() || !use_magazines(id_, stream)) return Freed::kNeedsLock;

  ThreadCache& cache = *t_last_used.cache;
  Magazines& magazines = *t_last_used.magazines;
  const std::size_t size_class = word.size_class();
  const std::uint64_t size_bytes = kClasses[size_class].block_bytes;
  const TallyBlock counted{.size = static_cast<std::int64_t>(size_bytes),
                           .requested = static_cast<std::int64_t>(word.requested_bytes()),
                           .category = word.context().category};
  if (!cache.try_claim()) return Freed::kNeedsLock;
  const bool is_alone = is_alone_.load(std::memory_order_relaxed);
  const bool is_done =
      magazines.has_room(size_class) && is_enabled_.load(std::memory_order_relaxed) &&
      (is_alone || cache.tally.may_remove(counted)) && take_held(*place.word, bits, is_alone);
  if (is_done) [[likely]] {
    if (tracks_blocks_) device_.block_freed(address, size_bytes, stream);
    magazines.push(size_class, {.address = address, .word = place.word});
    cache.tally.remove(counted);
  }
  cache.let_go();
  return is_done ? Freed::kDone : Freed::kNeedsLock;
}

}  // namespace headroom::memory::internal
