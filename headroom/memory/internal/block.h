// Block, the objects that keep blocks for reuse, and the set of unmapped ones.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class FreeIndex;
struct BlockPool;
struct ExpandableSegment;
struct PageArena;

struct Block {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  std::uint64_t requested = 0;
  StreamId stream = StreamId::kDefault;
  BlockPool* pool = nullptr;
  FreeIndex* index = nullptr;  // the pool's free blocks of this stream
  // Neighbours in the same segment.
  Block* prev = nullptr;
  Block* next = nullptr;
  ExpandableSegment* expandable = nullptr;
  // Of a paged allocator's blocks: the arena, and the neighbours in the bin of its size.
  PageArena* arena = nullptr;
  Block* prev_free = nullptr;
  Block* next_free = nullptr;
  // Orders free blocks of one size: from PyTorch 2.13 on the age of the segment, before that 0.
  std::uint64_t tie = 0;
  // The pool's (or paged allocator's) clock when the block was last put into the free set.
  std::uint64_t gc_base = 0;
  // Streams besides its own that use the block, and events recorded for them at the free.
  std::vector<StreamId> stream_uses{};
  std::uint32_t event_count = 0;
  bool is_allocated = false;
  bool is_mapped = true;
  AllocationContext context{};

  [[nodiscard]] bool is_split() const noexcept { return prev != nullptr || next != nullptr; }
  // Nobody holds it and no stream may still be using it.
  [[nodiscard]] bool is_free() const noexcept {
    return !is_allocated && event_count == 0 && stream_uses.empty();
  }
};

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

// Block objects, kept for reuse.
class BlockStore {
 public:
  void prepare(std::size_t count) {
    if (spare_.size() >= count) return;
    const std::size_t blocks = all_.size() + count;
    if (spare_.capacity() < blocks) spare_.reserve(2 * blocks);  // room to take every block back
    while (spare_.size() < count) spare_.push_back(&all_.emplace_back());
  }
  [[nodiscard]] Block& take() noexcept {
    HEADROOM_ASSERT(!spare_.empty(), "a block is taken that nobody prepared for");
    Block& block = *spare_.back();
    spare_.pop_back();
    block.requested = 0;
    block.prev = nullptr;
    block.next = nullptr;
    block.expandable = nullptr;
    block.event_count = 0;
    block.is_allocated = false;
    block.is_mapped = true;
    block.context = {};
    return block;
  }
  // Another part of the same segment.
  [[nodiscard]] Block& take_beside(const Block& block,
                                   DeviceAddress address,
                                   std::uint64_t size) noexcept {
    Block& part = take();
    part.address = address;
    part.size = size;
    part.stream = block.stream;
    part.pool = block.pool;
    part.index = block.index;
    part.expandable = block.expandable;
    part.arena = block.arena;
    part.tie = block.tie;
    return part;
  }
  void give_back(Block& block) noexcept {
    block.stream_uses.clear();
    spare_.push_back(&block);
  }

 private:
  std::deque<Block> all_;
  std::vector<Block*> spare_;
};

}  // namespace headroom::memory::internal
