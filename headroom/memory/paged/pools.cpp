// Private pools of a PagedAllocator that have memory of somebody else, or are put back to what they
// held before.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using internal::PagedState;

// --- Memory of somebody else ---------------------------------------------------------------------

void PagedAllocator::do_set_pool_source(PoolId id, std::shared_ptr<const SegmentSource> source) {
  const std::lock_guard lock(mutex_);
  internal::PagedPool* const pool = state_->pools.find_private_pool(id);
  if (pool == nullptr || pool->use_count == 0) {
    throw InvalidArgument("set_pool_source: there is no such pool in use");
  }
  for (const PageArena& arena : state_->table.arenas()) {
    if (!arena.is_private() || arena.pool != id) continue;
    throw InvalidArgument("set_pool_source: the pool has memory already");
  }
  pool->source = std::move(source);
}

// Asks with the lock open: a source may be anything, and call the allocator. Null when it has none.
PagedAllocator::PageArena* PagedAllocator::grow_from_source(std::unique_lock<Mutex>& lock,
                                                            internal::PagedPool& pool,
                                                            StreamId stream,
                                                            internal::FreeBins& free,
                                                            std::uint64_t size_bytes) {
  const std::shared_ptr<const SegmentSource> source = pool.source;
  ++pool.use_count;  // it stays meanwhile
  lock.unlock();
  DeviceAddress segment = 0;
  try {
    segment = source->allocate(size_bytes, stream);
  } catch (...) {  // What it would have said is not ours to pass on: there is no memory.
    segment = 0;
  }
  lock.lock();
  --pool.use_count;
  if (segment == 0) return nullptr;
  prepare();
  return &state_->arenas.add_foreign(
      stream, pool.id, free, {.base = segment, .size = size_bytes}, source);
}

// Gives segments of somebody else's back, with the lock open.
void PagedAllocator::return_segments(std::unique_lock<Mutex>& lock) {
  if (!state_->arenas.has_returned()) return;
  const auto returned = state_->arenas.take_returned();
  lock.unlock();
  for (const auto& segment : returned) {
    try {
      segment.source->free(segment.range.base, segment.range.size);
    } catch (...) {  // It is the source's to know.
      continue;
    }
  }
  lock.lock();
}

// --- Pages for others ----------------------------------------------------------------------------

std::vector<PageAt> PagedAllocator::pages_of_locked(DeviceAddress address) const {
  const PagedState& s = *state_;
  const Block* block = s.slabs.owns(address)
                           ? s.slab_pages.find(round_down(address, internal::kSlabPageBytes))
                           : s.active.find(address);
  if (block == nullptr || !block->is_allocated || !find_block_locked(address)) {
    throw InvalidArgument("pages_of: the address is not a block that is held");
  }
  const PageArena& arena = *block->arena;
  if (arena.source != nullptr) {
    throw InvalidArgument("pages_of: the block's memory is from its pool's own allocator");
  }
  std::vector<PageAt> pages;
  const DeviceAddress end = block->address + block->size;
  for (const internal::PoolHandle& handle : arena.handles) {
    if (handle.address >= end || handle.address + handle.size <= block->address) continue;
    pages.push_back(
        {.handle = handle.handle, .address = handle.address, .size_bytes = handle.size});
  }
  if (arena.is_private()) return pages;
  for (DeviceAddress at = block->address; at < end;) {
    const internal::PageSlot& slot = arena.slots[(at - arena.base) / arena.slot_bytes];
    HEADROOM_ASSERT(slot.page != nullptr, "a held block has pages everywhere");
    const DeviceAddress begin = arena.address_of(slot.first);
    pages.push_back({.handle = slot.page->handle,
                     .address = begin,
                     .size_bytes = slot.page->pages->page_bytes});
    at = begin + pages.back().size_bytes;
  }
  return pages;
}

// --- Pools put back ------------------------------------------------------------------------------

// The block of the pool that has the address, held or free; null when none has.
PagedAllocator::Block* PagedAllocator::find_in_pool(PoolId id, DeviceAddress address) const {
  for (const PageArena& arena : state_->table.arenas()) {
    if (!arena.is_private() || arena.pool != id) continue;
    if (address - arena.base >= arena.size) continue;
    for (Block* block = arena.first; block != nullptr; block = block->next) {
      if (address - block->address < block->size) return block;
    }
  }
  return nullptr;
}

namespace {

// Behind the last block in one piece with this one that is mapped.
DeviceAddress mapped_end(const internal::PagedBlock& block) noexcept {
  DeviceAddress end = block.address;
  for (const auto* next = &block; next != nullptr && next->is_mapped; next = next->next) {
    end = next->address + next->size;
  }
  return end;
}

}  // namespace

PoolChange PagedAllocator::do_restore_pool(PoolId id, std::span<const BlockInfo> blocks) {
  const std::lock_guard lock(mutex_);
  PagedState& s = *state_;
  s.slabs.fold_own();
  if (s.pools.find_private_pool(id) == nullptr) {
    throw InvalidArgument("restore_pool: there is no such pool");
  }
  // The blocks to hold, by address. All are checked before anything changes.
  std::unordered_map<DeviceAddress, const BlockInfo*> wanted;
  std::vector<const BlockInfo*> by_address;
  for (const BlockInfo& block : blocks) {
    const Block* const around = find_in_pool(id, block.address);
    const DeviceAddress end = around == nullptr ? 0 : mapped_end(*around);
    if (around == nullptr || !around->is_mapped || block.size_bytes == 0 ||
        block.size_bytes % kMinBlockBytes != 0 || block.size_bytes > end - block.address ||
        block.requested_bytes > block.size_bytes) {
      throw InvalidArgument("restore_pool: the pool does not have these addresses any more");
    }
    wanted.emplace(block.address, &block);
    by_address.push_back(&block);
  }
  std::ranges::sort(by_address, {}, &BlockInfo::address);
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    if (by_address[i - 1]->address + by_address[i - 1]->size_bytes > by_address[i]->address) {
      throw InvalidArgument("restore_pool: two of the blocks overlap");
    }
  }
  std::vector<Block*> leaving;
  s.active.for_each([&](Block& block) {
    if (block.arena == nullptr || !block.arena->is_private() || block.arena->pool != id) return;
    const auto found = wanted.find(block.address);
    if (block.is_allocated && found != wanted.end() && found->second->size_bytes == block.size &&
        found->second->requested_bytes == block.requested) {
      wanted.erase(found);
      return;
    }
    if (!block.is_allocated || !block.stream_uses.empty()) {
      throw InvalidArgument("restore_pool: another stream still uses a block of the pool");
    }
    leaving.push_back(&block);
  });
  PoolChange change;
  change.freed.reserve(leaving.size());
  change.allocated.reserve(wanted.size());
  s.blocks.prepare(2 * wanted.size());

  for (Block* const block : leaving) {
    change.freed.push_back(block->address);
    block->is_allocated = false;
    record_free_requested(record_of(*block));
    complete_free(*block);
  }
  for (const BlockInfo* const block : by_address) {
    if (!wanted.contains(block->address)) continue;  // it was held all the time
    s.active.prepare();
    const Request request{.asked = block->requested_bytes,
                          .rounded = block->size_bytes,
                          .kind = internal::ArenaKind::kPrivate};
    Block& hole = *find_in_pool(id, block->address);
    hand_out_at(request, hole, block->address);
    change.allocated.push_back(block->address);
  }
  return change;
}

}  // namespace headroom::memory
