// The malloc path of CachingAllocator: round, search, grow, split, hand out. Numbers in comments
// are the steps of PyTorch's malloc.
#include <iterator>

#include "headroom/base/check.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"
#include "headroom/memory/internal/rounding.h"
#include "headroom/memory/internal/shortage.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::StatusCode;
using internal::BlockPool;

namespace {

// A free block of an expandable segment can grow into the unmapped space behind it.
std::uint64_t size_with_growth(const internal::Block& block) noexcept {
  const internal::Block* next = block.next;
  return block.size + (next != nullptr && !next->is_mapped ? next->size : 0);
}

// The tail that can still grow looks huge, so that holes are preferred to it. The walk ends at the
// first block that is no improvement.
internal::FreePosition prefer_holes(const internal::FreeIndex& free,
                                    internal::FreePosition at) noexcept {
  for (auto next = free.next(at); free.at(at).expandable != nullptr && next != free.end() &&
                                  size_with_growth(free.at(next)) < size_with_growth(free.at(at));
       next = free.next(next)) {
    at = next;
  }
  return at;
}

}  // namespace

DeviceAddress CachingAllocator::do_allocate(std::uint64_t size_bytes,
                                            StreamId stream,
                                            std::optional<AllocationFailure>& failure) {
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  internal::PrivatePool* const pool = private_pool_for(stream, lock);
  if (stream != StreamId::kDefault) {
    if (auto known = check_stream(stream); !known) {
      failure = fail(lock, {.reason = FailureReason::kDevice, .status = known.error()});
      return 0;
    }
  }
  prepare();
  if (!state_->pending.empty() && !acts_as_capturing()) process_pending();
  Request request = make_request(size_bytes, stream, pool);
  if (const auto at = find_free_block(request); at != request.index->end()) [[likely]] {
    return hand_out_cached(request, at).address;
  }
  request.segment = internal::segment_size(request.rounded, state_->config);
  const Grown grown = allocate_slowly(lock, request);
  if (grown.outcome == Growth::kDone) return hand_out_grown(request, *grown.block).address;
  const FailureReason reason = grown.outcome == Growth::kRejected ? FailureReason::kRejected
                               : grown.outcome == Growth::kDeviceFailed
                                   ? FailureReason::kDevice
                                   : FailureReason::kOutOfMemory;
  failure = fail(lock,
                 {.reason = reason,
                  .status = grown.status,
                  .asked_bytes = size_bytes,
                  .rounded_bytes = request.rounded,
                  .segment_bytes = request.segment,
                  .stream = stream});
  return 0;
}

// May open the lock: the first thing that a request does.
inline internal::PrivatePool* CachingAllocator::private_pool_for(
    StreamId stream, std::unique_lock<Mutex>& lock) const {
  if (state_->scopes.empty()) [[likely]] {
    return nullptr;
  }
  return state_->private_pool_for(stream, lock);
}

inline CachingAllocator::Request CachingAllocator::make_request(
    std::uint64_t size_bytes, StreamId stream, internal::PrivatePool* private_pool) {
  const std::uint64_t rounded = internal::round_size(size_bytes, state_->config);
  BlockPool& pool = route(rounded, private_pool);
  return {.asked = size_bytes,
          .rounded = rounded,
          .stream = stream,
          .pool = &pool,
          .index = &pool.index_of(stream)};
}

inline BlockPool& CachingAllocator::route(std::uint64_t rounded,
                                          internal::PrivatePool* pool) const {
  const bool is_small = rounded <= kSmallBytes;
  if (pool != nullptr) [[unlikely]] {
    return is_small ? pool->small : pool->large;
  }
  return is_small ? state_->small : state_->large;
}

// Step 3, without taking: PyTorch looks at one candidate only.
inline internal::FreePosition CachingAllocator::search(const Request& request,
                                                       bool is_expandable) const {
  const internal::FreeIndex& free = *request.index;
  auto at = free.lower_bound(request.rounded);
  if (at == free.end()) return at;

  if (free.at(at).expandable != nullptr) {
    if (is_expandable) {
      at = prefer_holes(free, at);
    } else {
      while (at != free.end() && free.at(at).expandable != nullptr) at = free.next(at);
      if (at == free.end()) return at;
    }
  }

  const AllocatorConfig& config = state_->config;
  const std::uint64_t size = free.at(at).size;
  const bool is_oversize = request.rounded >= config.max_split_bytes;
  if (!is_oversize && size >= config.max_split_bytes) return free.end();
  if (is_oversize && size >= request.rounded + config.max_non_split_rounding()) return free.end();
  return at;
}

inline internal::FreePosition CachingAllocator::find_free_block(const Request& request) {
  if (limit_is_set() && state_->config.garbage_collection_threshold > 0) ++request.pool->searches;
  return search(request, uses_expandable(*request.pool));
}

bool CachingAllocator::can_serve_from_cache(std::uint64_t size_bytes, StreamId stream) const {
  std::unique_lock lock(mutex_);
  internal::PrivatePool* const private_pool = private_pool_for(stream, lock);
  const std::uint64_t rounded = internal::round_size(size_bytes, state_->config);
  BlockPool& pool = route(rounded, private_pool);
  const auto index = pool.free.find(stream);
  if (index == pool.free.end()) return false;
  const Request request{
      .rounded = rounded, .stream = stream, .pool = &pool, .index = &index->second};
  return search(request, uses_expandable(pool)) != index->second.end();
}

namespace {

// Keeps the pool of a request alive while the lock is open: meanwhile a callback, or another
// thread, may release it and empty the cache.
class PoolInUse {
 public:
  explicit PoolInUse(const BlockPool& pool) noexcept : owner_(pool.owner) {
    if (owner_ != nullptr) ++owner_->requests;
  }
  ~PoolInUse() {
    if (owner_ != nullptr) --owner_->requests;
  }
  PoolInUse(const PoolInUse&) = delete;
  PoolInUse& operator=(const PoolInUse&) = delete;

 private:
  internal::PrivatePool* owner_;
};

}  // namespace

// A free block of a pool that serves the default pool's failures; null when there is none.
CachingAllocator::Block* CachingAllocator::take_from_failure_pools(const Request& request) {
  if (request.pool->owner != nullptr) return nullptr;
  for (const auto& [id, private_pool] : state_->private_pools) {
    if (!private_pool->serves_failures) continue;
    BlockPool& pool = route(request.rounded, private_pool.get());
    const auto index = pool.free.find(request.stream);
    if (index == pool.free.end()) continue;
    Request there = request;
    there.pool = &pool;
    there.index = &index->second;
    const auto at = search(there, /*is_expandable=*/false);
    if (at == there.index->end()) continue;
    Block& block = there.index->at(at);
    there.index->erase(at);
    return &block;
  }
  return nullptr;
}

// Steps 4 and 5: callbacks, garbage collection, grow, free a little, free everything. The pool is
// not searched again after a flush, although the flush may have completed a fitting free: neither
// does PyTorch.
CachingAllocator::Grown CachingAllocator::allocate_slowly(std::unique_lock<Mutex>& lock,
                                                          const Request& request) {
  const PoolInUse in_use(*request.pool);
  if (run_free_callbacks(lock)) {
    prepare();
    if (const auto at = find_free_block(request); at != request.index->end()) {
      Block* block = &request.index->at(at);
      request.index->erase(at);
      return {.outcome = Growth::kDone, .block = block};
    }
  }
  if (limit_is_set() && state_->config.garbage_collection_threshold > 0) collect_garbage();

  Grown grown = grow(lock, request, /*is_retry=*/false);
  const auto ask_failure_pools = [&] {
    if (grown.outcome != Growth::kNoRoom) return;
    if (Block* const block = take_from_failure_pools(request)) {
      grown = {.outcome = Growth::kDone, .block = block};
    }
  };
  // 2.9 and 2.10 asked them last.
  if (state_->version >= kPyTorch211) ask_failure_pools();
  if (grown.outcome == Growth::kNoRoom && release_available(request)) {
    grown = grow(lock, request, /*is_retry=*/false);
  }
  if (grown.outcome == Growth::kNoRoom && !acts_as_capturing()) {
    release_cached();
    grown = grow(lock, request, /*is_retry=*/true);
  }
  if (state_->version < kPyTorch211) ask_failure_pools();
  return grown;
}

CachingAllocator::Grown CachingAllocator::grow(std::unique_lock<Mutex>& lock,
                                               const Request& request,
                                               bool is_retry) {
  if (is_retry) ++stats_.num_alloc_retries;
  if (!limit_allows(request.segment)) return {};
  if (state_->config.throw_on_device_out_of_memory) {
    const auto share = static_cast<std::uint64_t>(
        state_->config.memory_fraction * static_cast<double>(device_.properties().total_bytes));
    if (reserved_bytes() + request.segment > share) {
      ++stats_.num_oom_rejections;
      return {.outcome = Growth::kRejected};
    }
  }
  Grown grown = uses_expandable(*request.pool)
                    ? grow_expandable(request)
                    : take_segment(lock, request.segment, request.stream, *request.pool);
  // PyTorch goes on to free something.
  if (grown.outcome == Growth::kDeviceFailed && internal::is_shortage(grown.status)) {
    grown.outcome = Growth::kNoRoom;
  }
  return grown;
}

CachingAllocator::Grown CachingAllocator::take_segment(std::unique_lock<Mutex>& lock,
                                                       std::uint64_t size_bytes,
                                                       StreamId stream,
                                                       BlockPool& pool) {
  const bool unlocks = state_->config.release_lock_on_device_alloc;
  if (unlocks) lock.unlock();
  const auto segment = device_.allocate_segment(size_bytes);
  if (unlocks) lock.lock();
  if (!segment) return {.outcome = Growth::kDeviceFailed, .status = segment.error()};
  // Another thread may have used up the spares while the lock was open.
  internal::FreeIndex* index = nullptr;
  try {
    prepare();
    index = &pool.index_of(stream);
    index->prepare(1);  // for what a split leaves
  } catch (...) {
    (void)device_.free_segment(*segment);
    throw;
  }
  Block& block = state_->blocks.take();
  block.address = *segment;
  block.size = size_bytes;
  block.stream = stream;
  block.pool = &pool;
  block.index = index;
  block.tie = state_->next_tie();
  record_segment(Action::kSegmentAlloc,
                 {.address = block.address,
                  .size_bytes = size_bytes,
                  .stream = stream,
                  .pool = pool.id(),
                  .is_small = pool.is_small});
  if (size_bytes >= state_->config.max_split_bytes) stats_.oversize_segments.increase(1);
  return {.outcome = Growth::kDone, .block = &block};
}

inline bool CachingAllocator::should_split(const Block& block, std::uint64_t rounded) const {
  const std::uint64_t rest = block.size - rounded;
  const internal::PrivatePool* const owner = block.pool->owner;
  if (owner != nullptr && owner->never_splits) [[unlikely]] {
    return false;
  }
  if (block.pool->is_small || uses_expandable(*block.pool)) return rest >= kMinBlockBytes;
  return rounded < state_->config.max_split_bytes && rest > kSmallBytes;
}

// The front becomes a block of its own; `block` stays as the rest, to be filed as free by the
// caller.
inline CachingAllocator::Block& CachingAllocator::split(Block& block, std::uint64_t rounded) {
  const bool was_split = block.is_split();
  Block& front = internal::take_beside(state_->blocks, block, block.address, rounded);
  front.prev = block.prev;
  if (front.prev != nullptr) front.prev->next = &front;
  front.next = &block;
  block.prev = &front;
  block.address += rounded;
  block.size -= rounded;
  block.gc_base = block.pool->searches;

  if (front.expandable == nullptr) {
    const bool small = block.pool->is_small;
    if (was_split) {
      stats_.inactive_split_bytes.decrease(small, rounded);
    } else {
      stats_.inactive_split_bytes.increase(small, block.size);
      stats_.inactive_split.increase(small, 1);
    }
  }
  return front;
}

inline CachingAllocator::Block& CachingAllocator::hand_out_cached(const Request& request,
                                                                  internal::FreePosition at) {
  Block& found = request.index->at(at);
  if (should_split(found, request.rounded)) {
    request.index->prepare(1);
    Block& front = split(found, request.rounded);
    request.index->replace(at, found);
    return hand_out(request, front);
  }
  if (found.is_split() && found.expandable == nullptr) {
    stats_.inactive_split_bytes.decrease(found.pool->is_small, found.size);
    stats_.inactive_split.decrease(found.pool->is_small, 1);
  }
  request.index->erase(at);
  return hand_out(request, found);
}

CachingAllocator::Block& CachingAllocator::hand_out_grown(const Request& request, Block& block) {
  if (!should_split(block, request.rounded)) {
    if (block.is_split() && block.expandable == nullptr) {
      stats_.inactive_split_bytes.decrease(block.pool->is_small, block.size);
      stats_.inactive_split.decrease(block.pool->is_small, 1);
    }
    return hand_out(request, block);
  }
  block.index->prepare(1);
  Block& front = split(block, request.rounded);
  insert_free(block);
  return hand_out(request, front);
}

inline CachingAllocator::Block& CachingAllocator::hand_out(const Request& request, Block& block) {
  block.is_allocated = true;
  block.requested = request.asked;
  block.context = current_context();
  state_->active.insert(block.address, &block);
  record_alloc(record_of(block));
  if (block.size >= state_->config.max_split_bytes) stats_.oversize_allocations.increase(1);
  if (device_.tracks_blocks()) device_.block_allocated(block.address, block.size, block.stream);
  return block;
}

}  // namespace headroom::memory
