// Freeing and giving back, in CachingAllocator.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "headroom/base/check.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"
#include "headroom/memory/internal/block_info.h"

namespace headroom::memory {

using device::DeviceResult;
using device::StatusCode;
using internal::BlockPool;

DeviceResult<void> CachingAllocator::do_free(DeviceAddress address) {
  const std::lock_guard lock(mutex_);
  internal::CachingState& s = *state_;
  Block* const found = s.active.find(address);
  if (found == nullptr || !found->is_allocated) return internal::not_held(device_, address);
  Block& block = *found;
  block.index->prepare(1);
  if (acts_as_capturing()) s.pending.prepare();
  block.is_allocated = false;
  record_free_requested(record_of(block));
  if (block.size >= s.config.max_split_bytes) stats_.oversize_allocations.decrease(1);
  if (block.stream_uses.empty()) {
    complete_free(block);
  } else if (acts_as_capturing()) {
    s.pending.defer(block);
  } else {
    s.pending.add(block, [this](Block& done) { complete_free(done); });
  }
  return {};
}

DeviceResult<void> CachingAllocator::do_record_stream(DeviceAddress address, StreamId stream) {
  const std::lock_guard lock(mutex_);
  Block* const found = state_->active.find(address);
  if (found == nullptr || !found->is_allocated) return internal::not_recordable(address);
  if (auto known = check_stream(stream); !known) return known;
  add_use(*found, stream);
  return {};
}

void CachingAllocator::do_process_events() {
  const std::lock_guard lock(mutex_);
  if (!acts_as_capturing()) process_pending();
}

void CachingAllocator::insert_free(Block& block) {
  block.gc_base = block.pool->searches;
  block.index->insert(block);
}

inline bool CachingAllocator::can_merge(const Block& block, const Block* neighbour) noexcept {
  return neighbour != nullptr && neighbour->is_free() && neighbour->is_mapped == block.is_mapped;
}

// Makes a neighbour, which is in no set any more, part of the block. Returns its bytes.
inline std::uint64_t CachingAllocator::absorb(Block& block, Block& neighbour) {
  if (block.prev == &neighbour) {
    block.address = neighbour.address;
    block.prev = neighbour.prev;
    if (block.prev != nullptr) block.prev->next = &block;
  } else {
    block.next = neighbour.next;
    if (block.next != nullptr) block.next->prev = &block;
  }
  const std::uint64_t absorbed = neighbour.size;
  block.size += absorbed;
  state_->blocks.give_back(neighbour);
  return absorbed;
}

// Absorbs the neighbours that are in the same state; for blocks whose memory has come or gone.
void CachingAllocator::merge_neighbours(Block& block) {
  for (Block* neighbour : {block.prev, block.next}) {
    if (!can_merge(block, neighbour)) continue;
    if (neighbour->is_mapped) {
      neighbour->index->erase(*neighbour);
    } else {
      block.pool->unmapped.erase({.stream = neighbour->stream, .address = neighbour->address});
    }
    absorb(block, *neighbour);
  }
}

void CachingAllocator::complete_free(Block& block) {
  BlockPool& pool = *block.pool;
  internal::FreeIndex& index = *block.index;
  index.prepare(1);
  const BlockRecord record = record_of(block);
  if (device_.tracks_blocks()) device_.block_freed(block.address, block.size, block.stream);
  state_->active.erase(block.address);

  // PyTorch books the change of inactive splits as one movement: the net of what merging took away
  // and what the result adds.
  std::int64_t splits = 0;
  std::int64_t split_bytes = 0;
  internal::FreePosition place = index.end();  // a neighbour's, for the result to take
  for (Block* neighbour : {block.prev, block.next}) {
    if (!can_merge(block, neighbour)) continue;
    if (place != index.end()) index.erase(place);
    place = index.find(*neighbour);
    --splits;
    split_bytes -= static_cast<std::int64_t>(absorb(block, *neighbour));
  }
  if (block.is_split()) {
    ++splits;
    split_bytes += static_cast<std::int64_t>(block.size);
  }
  if (block.expandable == nullptr) {
    stats_.inactive_split.change(pool.is_small, splits);
    stats_.inactive_split_bytes.change(pool.is_small, split_bytes);
  }
  block.requested = 0;
  block.context = {};
  block.gc_base = pool.searches;
  if (place != index.end()) {
    index.replace(place, block);
  } else {
    index.insert(block);
  }
  record_free_completed(record);
}

// --- Blocks that other streams use ---------------------------------------------------------------

void CachingAllocator::process_pending() {
  state_->pending.process([this](Block& block) { complete_free(block); });
}

// Completes every pending free, waiting as long as it takes. What the device fails to wait for
// stays pending.
void CachingAllocator::wait_for_pending() {
  state_->pending.wait([this](Block& block) { complete_free(block); });
}

// Whether all that was queued on the stream has run. Also works for a stream that has been
// released: events may still be recorded on it.
bool CachingAllocator::wait_for_stream(StreamId stream) noexcept {
  const auto event = device_.record_event(stream);
  if (!event) return is_gone(event.error()) || event.error() == StatusCode::kUnknownHandle;
  const auto waited = device_.synchronize_event(*event);
  (void)device_.release_event(*event);
  return waited || is_gone(waited.error());
}

// --- Giving back ---------------------------------------------------------------------------------

// Gives a whole segment back. When the device refuses, the block stays cached.
bool CachingAllocator::release_segment(Block& block) {
  const auto freed = device_.free_segment(block.address);
  if (!freed && !is_gone(freed.error())) return false;
  BlockPool& pool = *block.pool;
  record_segment(Action::kSegmentFree,
                 {.address = block.address,
                  .size_bytes = block.size,
                  .stream = block.stream,
                  .pool = pool.id(),
                  .is_small = pool.is_small});
  if (block.size >= state_->config.max_split_bytes) stats_.oversize_segments.decrease(1);
  block.index->erase(block);
  state_->blocks.give_back(block);
  return true;
}

void CachingAllocator::release_pool_blocks(BlockPool& pool) {
  std::vector<Block*> to_unmap;
  for (Block* block : pool.free_blocks()) {
    if (block->expandable != nullptr) {
      to_unmap.push_back(block);
    } else if (!block->is_split()) {
      release_segment(*block);
    }
  }
  for (Block* block : to_unmap) {
    unmap_block(*block);
    if (!block->is_mapped && !block->is_split()) release_expandable(*block);
  }
}

// All cached memory of the default pools and of the private pools nobody needs.
void CachingAllocator::release_cached() {
  internal::CachingState& s = *state_;
  if (!acts_as_capturing()) {
    ++stats_.num_sync_all_streams;
    wait_for_pending();
    release_pool_blocks(s.large);
    release_pool_blocks(s.small);
  }
  release_private_pools();
  retry_strays();
}

// Those that nobody needs, or of these only one.
void CachingAllocator::release_private_pools(std::optional<PoolId> only) {
  internal::CachingState& s = *state_;
  for (auto it = s.private_pools.begin(); it != s.private_pools.end();) {
    internal::PrivatePool& pool = *it->second;
    if (pool.use_count > 0 || (only && pool.id != *only)) {
      ++it;
      continue;
    }
    release_pool_blocks(pool.small);
    release_pool_blocks(pool.large);
    const bool is_empty = !pool.small.has_free() && !pool.large.has_free() &&
                          pool.small.unmapped.empty() && pool.large.unmapped.empty() &&
                          !is_pool_in_use(pool);
    it = is_empty ? s.private_pools.erase(it) : std::next(it);
  }
}

// The flush that a program asks for, as opposed to that of a request. Returns the bytes.
std::uint64_t CachingAllocator::release_everything() {
  const std::uint64_t before = reserved_bytes();
  release_empty_segments();
  release_cached();
  return before - reserved_bytes();
}

std::uint64_t CachingAllocator::do_empty_cache(PoolId pool) {
  const std::lock_guard lock(mutex_);
  if (pool.is_default()) return release_everything();
  const std::uint64_t before = reserved_bytes();
  if (!acts_as_capturing()) wait_for_pending();
  release_private_pools(pool);
  retry_strays();
  return before - reserved_bytes();
}

std::uint64_t CachingAllocator::do_trim(std::uint64_t keep_bytes) {
  const std::lock_guard lock(mutex_);
  if (keep_bytes == 0) return release_everything();
  if (acts_as_capturing()) return 0;
  const std::uint64_t before = reserved_bytes();
  const auto cached = [this] {
    return reserved_bytes() - static_cast<std::uint64_t>(stats_.active_bytes.all.current);
  };
  wait_for_pending();
  std::vector<Block*> candidates;
  const auto collect = [&](const BlockPool& pool) {
    pool.for_each_free([&](Block& block) {
      if (block.expandable != nullptr || !block.is_split()) candidates.push_back(&block);
    });
  };
  collect(state_->large);
  collect(state_->small);
  for (const auto& [id, pool] : state_->private_pools) {
    if (pool->use_count > 0) continue;
    collect(pool->small);
    collect(pool->large);
  }
  // The largest first: the fewest calls of the device for the bytes.
  std::ranges::stable_sort(
      candidates, std::ranges::greater{}, [](const Block* b) { return b->size; });
  for (Block* block : candidates) {
    if (cached() <= keep_bytes) break;
    if (block->expandable == nullptr) {
      release_segment(*block);
      continue;
    }
    unmap_block(*block);
    if (!block->is_mapped && !block->is_split()) release_expandable(*block);
  }
  return before - reserved_bytes();
}

// Releases just enough oversize blocks for the request, the largest first. Only with a
// max_split_size.
bool CachingAllocator::release_available(const Request& request) {
  const std::uint64_t threshold = state_->config.max_split_bytes;
  if (threshold == AllocatorConfig::kUnlimited) return false;
  const std::uint64_t wanted = std::max(request.rounded, threshold);
  internal::FreeIndex& free = *request.index;
  auto at = free.lower_bound(wanted);
  if (at != free.end() && free.at(at).expandable == nullptr) {
    Block& block = free.at(at);
    return !block.is_split() && release_segment(block);
  }
  std::uint64_t released = 0;
  while (released < wanted && at != free.begin()) {
    at = free.previous(at);
    Block& block = free.at(at);
    const std::uint64_t size = block.size;
    if (size < threshold) break;
    if (block.expandable == nullptr && !block.is_split() && release_segment(block)) {
      released += size;
      at = free.find(block);  // what came behind it
    }
  }
  return released >= wanted;
}

// Gives back the large segments that have been cached longest, until the reserved bytes are under
// the threshold. A pass releases everything at least as old as the average, even past the target.
void CachingAllocator::collect_garbage() {
  internal::CachingState& s = *state_;
  const auto allowed = static_cast<std::uint64_t>(s.config.garbage_collection_threshold *
                                                  static_cast<double>(limit_value()));
  if (reserved_bytes() <= allowed) return;
  const std::uint64_t target = reserved_bytes() - allowed;

  const auto age = [&](const Block& block) {
    return static_cast<double>(s.large.searches - block.gc_base);
  };
  double total_age = 0;
  std::uint64_t candidates = 0;
  s.large.for_each_free([&](const Block& block) {
    if (block.is_split()) return;
    total_age += age(block);
    ++candidates;
  });
  std::uint64_t reclaimed = 0;
  bool has_freed = true;
  while (reclaimed < target && has_freed && candidates > 0) {
    has_freed = false;
    const double threshold = total_age / static_cast<double>(candidates);
    for (Block* block : s.large.free_blocks()) {
      const double block_age = age(*block);
      const std::uint64_t size = block->size;
      if (block->is_split() || block->expandable != nullptr || block_age < threshold) continue;
      if (!release_segment(*block)) continue;
      has_freed = true;
      reclaimed += size;
      total_age -= block_age;
      --candidates;
    }
  }
}

// Tries again to give back the pages that the device refused earlier.
void CachingAllocator::retry_strays() {
  const auto is_settled = [](const DeviceResult<void>& result) {
    return result || is_gone(result.error());
  };
  std::erase_if(state_->stray_pages,
                [&](device::PageHandle page) { return is_settled(device_.release_pages(page)); });
  std::erase_if(state_->stray_reservations, [&](DeviceAddress address) {
    return is_settled(device_.release_addresses(address));
  });
}

}  // namespace headroom::memory
