// Freeing and giving back, in PagedAllocator.
#include <algorithm>
#include <iterator>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/block_info.h"
#include "headroom/memory/internal/slab_cached.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
using internal::not_held;
using internal::PagedState;

DeviceResult<void> PagedAllocator::do_free(DeviceAddress address) {
  using Freed = internal::SlabHeap::Freed;
  const Freed freed = state_->slabs.free_cached(address);
  if (freed == Freed::kDone) [[likely]] {
    return {};
  }
  if (freed == Freed::kElsewhere) return free_locked(address);
  return free_small_locked(address, freed == Freed::kBegun);
}

inline void PagedAllocator::give_back(Block& block) {
  PagedState& s = *state_;
  record_free_completed(record_of(block));
  if (s.tracks_blocks) device_.block_freed(block.address, block.size, block.stream);
  s.active.erase(block.address);
  block.requested = 0;
  block.context = {};
  block.freed_at = s.clocks.tick(*block.arena->clock);
  const bool is_of_large = block.arena->kind == internal::ArenaKind::kLarge;
  if (block.has_loans) [[unlikely]] {
    block.has_loans = false;
    PageArena& arena = *block.arena;
    const DeviceAddress begin = block.address;
    const DeviceAddress end = begin + block.size;
    s.table.file_free(block);
    s.table.take_back_at(arena, begin, end);
  } else {
    s.table.file_free(block);
  }
  // Its pages may soon be wanted in other sizes, and then it should be known who still uses them.
  if (is_of_large) [[unlikely]] {
    s.clocks.mark_moments();
  }
}

DeviceResult<void> PagedAllocator::free_locked(DeviceAddress address) {
  PagedState& s = *state_;
  const std::lock_guard lock(mutex_);
  s.slabs.fold_own();
  Block* const found = s.active.find(address);
  if (found == nullptr || !found->is_allocated) return free_sleeper(address);
  Block& block = *found;
  if (has_capture()) s.pending.prepare();
  block.is_allocated = false;
  record_free_requested(record_of(block));
  if (block.stream_uses.empty()) {
    give_back(block);
  } else if (has_capture()) {
    s.pending.defer(block);
  } else {
    s.pending.add(block, [this](Block& done) { complete_free(done); });
  }
  return {};
}

DeviceResult<void> PagedAllocator::free_small_locked(DeviceAddress address, bool has_begun) {
  PagedState& s = *state_;
  const std::lock_guard lock(mutex_);
  s.slabs.fold_own();
  Block* const uses = has_begun ? nullptr : s.slab_uses.find(address);
  if (uses == nullptr) {
    const auto block = has_begun ? s.slabs.finish_free(address) : s.slabs.free(address);
    if (!block) return free_sleeper(address);
    record_free_requested(record_of(*block));
    record_free_completed(record_of(*block));
    return {};
  }
  if (has_capture()) s.pending.prepare();
  const auto block = s.slabs.mark_pending(address);
  if (!block) return not_held(device_, address);
  record_free_requested(record_of(*block));
  if (has_capture()) {
    s.pending.defer(*uses);
  } else {
    s.pending.add(*uses, [this](Block& done) { complete_free(done); });
  }
  return {};
}

// The block of an address that is held; of a slab block, what is known of its other streams.
PagedAllocator::Block* PagedAllocator::find_held(DeviceAddress address) {
  PagedState& s = *state_;
  if (!s.slabs.owns(address)) {
    Block* const block = s.active.find(address);
    return block != nullptr && block->is_allocated ? block : nullptr;
  }
  const auto block = s.slabs.find(address);
  if (!block || block->is_pending) return nullptr;
  if (Block* known = s.slab_uses.find(address)) return known;
  s.blocks.prepare(1);
  s.slab_uses.prepare();
  if (!s.slabs.mark_used_elsewhere(address)) return nullptr;
  Block& uses = s.blocks.take();
  uses.address = address;
  uses.size = block->size_bytes;
  uses.stream = block->stream;
  uses.arena = nullptr;
  s.slab_uses.insert(address, &uses);
  return &uses;
}

DeviceResult<void> PagedAllocator::do_record_stream(DeviceAddress address, StreamId stream) {
  const std::lock_guard lock(mutex_);
  state_->slabs.fold_own();
  Block* const found = find_held(address);
  if (found == nullptr) return internal::not_recordable(address);
  if (auto known = check_stream(stream); !known) return known;
  add_use(*found, stream);
  return {};
}

void PagedAllocator::complete_free(Block& block) {
  PagedState& s = *state_;
  if (block.arena != nullptr) {
    give_back(block);
    return;
  }
  // Stands for a slab block.
  const auto freed = s.slabs.complete(block.address);
  s.slab_uses.erase(block.address);
  s.blocks.give_back(block);
  if (freed) record_free_completed(record_of(*freed));
}

void PagedAllocator::process_pending() {
  if (has_capture()) return;
  state_->pending.process([this](Block& block) { complete_free(block); });
}

void PagedAllocator::wait_for_pending() {
  state_->pending.wait([this](Block& block) { complete_free(block); });
}

void PagedAllocator::do_process_events() {
  std::unique_lock lock(mutex_);
  state_->slabs.fold_own();
  process_pending();
  trim_when_idle();
  return_segments(lock);
}

// --- Giving back ---------------------------------------------------------------------------------

std::uint64_t PagedAllocator::do_empty_cache(PoolId pool) {
  std::unique_lock lock(mutex_);
  if (pool.is_default()) {
    const std::uint64_t before = reserved_bytes();
    release_cached(0);
    give_back_sleeping();
    const std::uint64_t released = before - reserved_bytes();
    return_segments(lock);
    return released;
  }
  if (has_capture()) return 0;
  const std::uint64_t before = reserved_bytes();
  state_->slabs.fold_own();
  wait_for_pending();
  state_->clocks.wait();
  release_pools(pool);
  const std::uint64_t released = before - reserved_bytes();
  return_segments(lock);
  return released;
}

std::uint64_t PagedAllocator::do_trim(std::uint64_t keep_bytes) {
  std::unique_lock lock(mutex_);
  const std::uint64_t released = release_cached(keep_bytes);
  return_segments(lock);
  return released;
}

void PagedAllocator::do_mark_step() {
  const std::lock_guard lock(mutex_);
  state_->slabs.fold_own();
  process_pending();
  state_->slabs.start_over();
  state_->end_tight();
  state_->rests.rest();
}

// Gives free pages back until at most `keep_bytes` are cached. Returns the bytes.
std::uint64_t PagedAllocator::release_cached(std::uint64_t keep_bytes) {
  PagedState& s = *state_;
  if (has_capture()) return 0;
  s.slabs.fold_own();
  const std::uint64_t before = reserved_bytes();
  wait_for_pending();
  s.slabs.flush();
  s.clocks.wait();
  s.arenas.release_strays();
  release_pools();
  s.table.take_back_idle();
  const auto active = static_cast<std::uint64_t>(stats_.active_bytes.all.current);
  const std::uint64_t cached = reserved_bytes() - active;
  if (cached > keep_bytes) {
    s.search.begin();
    // To the page: what is left is at most what may stay.
    const std::uint64_t excess = cached - keep_bytes;
    s.mover.release_free(keep_bytes == 0 ? UINT64_MAX : excess + s.options.page_bytes - 1);
    s.mover.unmap_stale(UINT64_MAX);
  }
  if (keep_bytes == 0) {
    s.budget.cushion().reset();
    settle_budget();
  }
  return before - reserved_bytes();
}

// Free handles of private pools that nobody needs any more, or of these only one. The streams have
// been waited for.
void PagedAllocator::release_pools(std::optional<PoolId> only) {
  PagedState& s = *state_;
  for (auto it = s.pools.private_pools.begin(); it != s.pools.private_pools.end();) {
    internal::PagedPool& pool = *it->second;
    if (pool.use_count > 0 || (only && pool.id != *only)) {
      ++it;
      continue;
    }
    std::vector<PageArena*> of_pool;
    for (PageArena& arena : s.table.arenas()) {
      if (arena.is_private() && arena.pool == pool.id) of_pool.push_back(&arena);
    }
    for (PageArena* arena : of_pool) (void)s.arenas.release_private(*arena);
    it = is_pool_in_use(pool) ? std::next(it) : s.pools.private_pools.erase(it);
  }
}

bool PagedAllocator::is_pool_in_use(const internal::PagedPool& pool) const {
  const PagedState& s = *state_;
  const auto is_of_pool = [&](const PageArena& arena) {
    return arena.is_private() && arena.pool == pool.id;
  };
  return std::ranges::any_of(s.table.arenas(), is_of_pool) || s.pools.is_open(pool.id);
}

void PagedAllocator::trim_when_idle() {
  PagedState& s = *state_;
  if (!s.options.idle || has_capture()) return;
  const std::chrono::nanoseconds now = device_.now();
  if (now - s.last_growth < s.options.idle->after) return;
  s.last_growth = now;
  release_cached(s.options.idle->keep_bytes);
}

}  // namespace headroom::memory
