// The state of a CachingAllocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/block.h"
#include "headroom/memory/caching/internal/free_index.h"
#include "headroom/memory/config.h"
#include "headroom/memory/internal/address_map.h"
#include "headroom/memory/internal/pending_frees.h"
#include "headroom/memory/internal/pool_scopes.h"
#include "headroom/memory/internal/records.h"

namespace headroom::memory::internal {

struct PrivatePool;

// The free blocks of one kind.
struct BlockPool {
  // By stream, ascending; the order in which a flush walks them. Indexes keep their place.
  std::map<StreamId, FreeIndex> free{};
  UnmappedSet unmapped{};
  bool is_small = false;
  PrivatePool* owner = nullptr;  // null for the default pools
  // Searches of this pool so far: the clock that garbage collection measures age with.
  std::uint64_t searches = 0;
  StreamId last_stream = StreamId::kDefault;
  FreeIndex* last_index = nullptr;

  [[nodiscard]] PoolId id() const noexcept;
  // Made when a stream is first seen. Most requests come from the stream of the one before.
  [[nodiscard]] FreeIndex& index_of(StreamId stream) {
    if (last_index == nullptr || last_stream != stream) {
      last_index = &free[stream];
      last_stream = stream;
    }
    return *last_index;
  }
  template <class Function>
  void for_each_free(Function&& function) const {
    for (const auto& [stream, index] : free) index.for_each(function);
  }
  // The free blocks in order, to walk while blocks leave the pool.
  [[nodiscard]] std::vector<Block*> free_blocks() const {
    std::vector<Block*> blocks;
    for_each_free([&](Block& block) { blocks.push_back(&block); });
    return blocks;
  }
  [[nodiscard]] bool has_free() const noexcept {
    return std::any_of(free.begin(), free.end(), [](const auto& e) { return !e.second.empty(); });
  }
};

struct PrivatePool : PoolUse {
  explicit PrivatePool(PoolId pool_id) noexcept : PoolUse(pool_id) {
    small.owner = this;
    large.owner = this;
  }
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

  // Requests under way that may have opened the lock.
  int requests = 0;
  BlockPool small{.is_small = true};
  BlockPool large{};
};

inline PoolId BlockPool::id() const noexcept { return owner == nullptr ? PoolId{} : owner->id; }

// One long reservation of addresses with pages mapped as they are needed.
struct ExpandableSegment {
  DeviceAddress address = 0;
  std::uint64_t page_bytes = 0;
  StreamId stream = StreamId::kDefault;
  std::vector<device::PageHandle> pages{};  // kNone where nothing is mapped

  [[nodiscard]] std::uint64_t size() const noexcept { return page_bytes * pages.size(); }
};

struct CachingState : PoolScopes<PrivatePool> {
  explicit CachingState(device::Device& device) : pending(device) {}

  AllocatorConfig config{};
  PyTorchVersion version{};

  BlockStore<Block> blocks{};
  BlockPool small{.is_small = true};
  BlockPool large{};

  // Handed out, or freed and pending.
  AddressMap<Block> active{};

  PendingFrees<Block> pending;

  std::vector<std::unique_ptr<ExpandableSegment>> expandable_segments{};
  std::uint64_t segments_taken = 0;
  // The number that orders the blocks of the next segment among those of their size.
  [[nodiscard]] std::uint64_t next_tie() noexcept {
    return version >= kPyTorch213 ? segments_taken++ : 0;
  }

  // Pages that the device refused to take back; tried again at every flush.
  std::vector<device::PageHandle> stray_pages{};
  std::vector<DeviceAddress> stray_reservations{};
};

}  // namespace headroom::memory::internal

namespace headroom::memory {

inline AllocatorCore::BlockRecord CachingAllocator::record_of(const Block& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size,
          .requested_bytes = block.requested,
          .stream = block.stream,
          .pool = block.pool->id(),
          .is_small = block.pool->is_small,
          .context = block.context};
}

// Everything a hand-out needs from the host, before anything has changed.
inline void CachingAllocator::prepare() {
  state_->blocks.prepare(2);
  state_->active.prepare();
}

inline bool CachingAllocator::uses_expandable(const internal::BlockPool& /*pool*/) const noexcept {
  return state_->config.expandable_segments;
}

// Until 2.12 any open pool scope counted as a capture.
inline bool CachingAllocator::acts_as_capturing() const noexcept {
  return has_capture() || (!state_->scopes.empty() && state_->version < kPyTorch213);
}

}  // namespace headroom::memory
