// A CachingAllocator seen from outside: snapshots, the account, invariants.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "headroom/base/checked.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"
#include "headroom/memory/internal/block_info.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::StatusCode;
using internal::BlockPool;

namespace {

// The bytes of a free block that a flush would give back.
std::uint64_t releasable_bytes(const internal::Block& block) noexcept {
  if (block.expandable == nullptr) return block.is_split() ? 0 : block.size;
  const std::uint64_t page = block.expandable->page_bytes;
  const std::uint64_t offset = block.address - block.expandable->address;
  const std::uint64_t first = round_up(offset, page);
  const std::uint64_t last = round_down(offset + block.size, page);
  return first < last ? last - first : 0;
}

}  // namespace

template <class Function>
void CachingAllocator::for_each_pool(Function&& function) const {
  function(state_->small);
  function(state_->large);
  for (const auto& [id, pool] : state_->private_pools) {
    function(pool->small);
    function(pool->large);
  }
}

template <class Function>
void CachingAllocator::for_each_block(Function&& function) const {
  state_->active.for_each(function);
  for_each_pool([&](const BlockPool& pool) {
    pool.for_each_free(function);
    for (const internal::UnmappedKey& key : pool.unmapped) function(*key.block);
  });
}

// Whether a block, an open scope or a request on its way still needs the pool.
bool CachingAllocator::is_pool_in_use(const internal::PrivatePool& pool) const {
  bool is_used = pool.requests > 0 || state_->is_open(pool.id);
  state_->active.for_each([&](const Block& block) { is_used |= block.pool->owner == &pool; });
  return is_used;
}

std::optional<BlockInfo> CachingAllocator::find_block_locked(DeviceAddress address) const {
  const Block* block = state_->active.find(address);
  if (block == nullptr || !block->is_allocated) return std::nullopt;
  return block_info(*block);
}

std::optional<BlockPlace> CachingAllocator::locate_locked(DeviceAddress address) const {
  const Block* found = nullptr;
  state_->active.for_each([&](const Block& block) {
    if (block.is_allocated && address - block.address < block.size) found = &block;
  });
  if (found == nullptr) return std::nullopt;
  BlockPlace place{.block = block_info(*found), .stream = found->stream, .pool = found->pool->id()};
  const Block* head = found;
  while (head->prev != nullptr && head->prev->is_mapped) head = head->prev;
  place.segment_address = head->address;
  for (; head != nullptr && head->is_mapped; head = head->next) place.segment_bytes += head->size;
  return place;
}

AllocatorCore::CoreAccount CachingAllocator::core_account(StreamId stream) const {
  CoreAccount account{.is_expandable = state_->config.expandable_segments,
                      .expandable_reserve_bytes = state_->config.expandable_reserve_bytes,
                      .version = state_->version};
  for_each_pool([&](const BlockPool& pool) {
    pool.for_each_free([&](const Block& block) {
      if (pool.owner != nullptr) account.cached_private_bytes += block.size;
      if (block.stream != stream) {
        account.cached_stream_bytes += block.size;
        return;
      }
      const std::uint64_t soft = releasable_bytes(block);
      account.cached_soft_bytes += soft;
      account.cached_hard_bytes += block.size - soft;
      account.largest_cached_bytes = std::max(account.largest_cached_bytes, block.size);
    });
  });
  return account;
}

std::vector<AllocatorCore::LiveBlock> CachingAllocator::live_blocks() const {
  return internal::held_blocks<LiveBlock>(state_->active);
}

std::vector<SegmentInfo> CachingAllocator::segments_locked() const {
  std::vector<SegmentInfo> segments;
  for_each_block([&](const Block& head) {
    // A segment starts at a mapped block that no mapped block precedes.
    if (!head.is_mapped || (head.prev != nullptr && head.prev->is_mapped)) return;
    SegmentInfo segment{.address = head.address,
                        .stream = head.stream,
                        .pool = head.pool->id(),
                        .is_small = head.pool->is_small,
                        .is_expandable = head.expandable != nullptr};
    for (const Block* block = &head; block != nullptr && block->is_mapped; block = block->next) {
      segment.size_bytes += block->size;
      segment.blocks.push_back(block_info(*block));
    }
    segments.push_back(std::move(segment));
  });
  std::ranges::sort(segments, {}, &SegmentInfo::address);
  return segments;
}

// --- Invariants ----------------------------------------------------------------------------------

namespace {

std::optional<std::string> check_neighbours(const internal::Block& block) {
  if (block.size == 0 || block.size % kMinBlockBytes != 0)
    return "a block's size is no multiple of 512";
  if (block.address % kMinBlockBytes != 0) return "a block is not aligned to 512";
  const internal::Block* next = block.next;
  if (next == nullptr) return std::nullopt;
  if (next->prev != &block) return "neighbours do not point at one another";
  if (next->address != block.address + block.size) return "the blocks of a segment leave a gap";
  if (next->pool != block.pool || next->stream != block.stream ||
      next->expandable != block.expandable) {
    return "the blocks of a segment differ in pool, stream or segment";
  }
  if (block.is_free() && next->is_free() && block.is_mapped == next->is_mapped) {
    return "two free neighbours were not merged";
  }
  return std::nullopt;
}

// The sums of the blocks themselves, counted by walking them.
struct Tally {
  std::int64_t reserved = 0;
  std::int64_t active = 0;
  std::int64_t allocated = 0;
  std::int64_t requested = 0;
  std::int64_t held = 0;
  std::int64_t splits = 0;
  std::int64_t split_bytes = 0;
  std::int64_t segments = 0;

  void add(const internal::Block& block) {
    const auto size = static_cast<std::int64_t>(block.size);
    const BlockState state = block_state(block);
    if (block.is_mapped) reserved += size;
    if (block.expandable == nullptr && block.prev == nullptr) ++segments;
    if (state == BlockState::kAllocated) {
      allocated += size;
      ++held;
    }
    if (state == BlockState::kAllocated || state == BlockState::kPendingFree) {
      active += size;
      requested += static_cast<std::int64_t>(block.requested);
    }
    if (state == BlockState::kInactive && block.expandable == nullptr && block.is_split()) {
      ++splits;
      split_bytes += size;
    }
  }

  [[nodiscard]] std::optional<std::string> check(const Statistics& stats) const {
    struct Claim {
      std::int64_t counted;
      const Stat& stat;
      const char* problem;
    };
    for (const Claim& claim :
         {Claim{reserved, stats.reserved_bytes.all, "reserved is not the sum of the segments"},
          Claim{active, stats.active_bytes.all, "active is not the sum of its blocks"},
          Claim{allocated, stats.allocated_bytes.all, "allocated is not the sum of its blocks"},
          Claim{requested, stats.requested_bytes.all, "requested is not the sum of its blocks"},
          Claim{held, stats.allocation.all, "the count of allocations is wrong"},
          Claim{segments, stats.segment.all, "the count of segments is wrong"},
          Claim{splits, stats.inactive_split.all, "the count of inactive splits is wrong"},
          Claim{split_bytes, stats.inactive_split_bytes.all, "inactive_split_bytes is wrong"}}) {
      if (claim.counted != claim.stat.current) return claim.problem;
    }
    return std::nullopt;
  }
};

std::optional<std::string> check_index(const BlockPool& pool,
                                       StreamId stream,
                                       const internal::FreeIndex& index) {
  std::optional<std::string> problem = index.check_invariants();
  index.for_each([&](const internal::Block& block) {
    const bool is_filed = block.pool == &pool && block.index == &index && block.stream == stream;
    if (!is_filed || !block.is_free() || !block.is_mapped) {
      problem = "the free index holds a block that is not free, not its own, or filed wrongly";
    }
  });
  return problem;
}

std::optional<std::string> check_pool(const BlockPool& pool) {
  for (const auto& [stream, index] : pool.free) {
    if (auto problem = check_index(pool, stream, index)) return problem;
  }
  for (const internal::UnmappedKey& key : pool.unmapped) {
    if (key.block->is_mapped || key.address != key.block->address) {
      return "the unmapped set holds a block that is mapped or filed wrongly";
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> CachingAllocator::check_core_invariants() const {
  std::optional<std::string> problem;
  Tally tally;
  for_each_block([&](const Block& block) {
    if (!problem) problem = check_neighbours(block);
    tally.add(block);
  });
  for_each_pool([&](const BlockPool& pool) {
    if (!problem) problem = check_pool(pool);
  });
  return problem ? problem : tally.check(stats_);
}

}  // namespace headroom::memory
