// Block: a part of a segment of CachingAllocator; and the set of those that have no memory.
#pragma once

#include <cstdint>
#include <set>

#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/block_store.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class FreeIndex;
struct BlockPool;
struct ExpandableSegment;

// In the order of use: a request that is served from the cache finds, cuts and joins blocks by the
// first cache line, and hands them out and takes them back with the second.
struct alignas(64) Block {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  // Neighbours in the same segment.
  Block* prev = nullptr;
  Block* next = nullptr;
  BlockPool* pool = nullptr;
  FreeIndex* index = nullptr;  // the pool's free blocks of this stream
  // Streams besides its own that use the block, and how many events were recorded for them when it
  // was freed.
  StreamUses stream_uses{};
  std::uint32_t event_count = 0;
  bool is_allocated = false;
  bool is_mapped = true;

  std::uint64_t requested = 0;
  StreamId stream = StreamId::kDefault;
  AllocationContext context{};
  // The pool's clock when the block was last put among the free ones.
  std::uint64_t gc_base = 0;
  // Orders free blocks of one size: from PyTorch 2.13 on the age of the segment, before that 0.
  std::uint64_t tie = 0;
  ExpandableSegment* expandable = nullptr;

  [[nodiscard]] bool is_split() const noexcept { return prev != nullptr || next != nullptr; }
  // Nobody holds it and no stream may still be using it.
  [[nodiscard]] bool is_free() const noexcept {
    return !is_allocated && event_count == 0 && stream_uses.empty();
  }
  void start_over() noexcept {
    requested = 0;
    prev = nullptr;
    next = nullptr;
    expandable = nullptr;
    is_mapped = true;
    context = {};
  }
};
static_assert(sizeof(Block) == 128, "two cache lines");

// A block for another part of the same segment.
[[nodiscard]] inline Block& take_beside(BlockStore<Block>& store,
                                        const Block& block,
                                        DeviceAddress address,
                                        std::uint64_t size) noexcept {
  Block& part = store.take();
  part.address = address;
  part.size = size;
  part.stream = block.stream;
  part.pool = block.pool;
  part.index = block.index;
  part.expandable = block.expandable;
  part.tie = block.tie;
  return part;
}

// Blocks of expandable segments that have no memory, by stream and address.
struct UnmappedKey {
  StreamId stream = StreamId::kDefault;
  DeviceAddress address = 0;
  Block* block = nullptr;

  friend bool operator<(const UnmappedKey& a, const UnmappedKey& b) noexcept {
    return a.stream != b.stream ? a.stream < b.stream : a.address < b.address;
  }
};
using UnmappedSet = std::set<UnmappedKey>;

}  // namespace headroom::memory::internal
