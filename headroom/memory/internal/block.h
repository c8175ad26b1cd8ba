// Block, the objects that keep blocks for reuse, and the set of unmapped ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class FreeIndex;
struct BlockPool;
struct ExpandableSegment;
struct PageArena;

// The streams besides its own that use a block. Most blocks have none, so it is a pointer long.
class StreamUses {
 public:
  [[nodiscard]] bool empty() const noexcept { return streams_ == nullptr || streams_->empty(); }
  [[nodiscard]] std::span<const StreamId> all() const noexcept {
    return streams_ == nullptr ? std::span<const StreamId>() : std::span(*streams_);
  }
  void add(StreamId stream) {
    if (streams_ == nullptr) streams_ = std::make_unique<std::vector<StreamId>>();
    streams_->push_back(stream);
  }
  void clear() noexcept {
    if (streams_ != nullptr) streams_->clear();
  }

 private:
  std::unique_ptr<std::vector<StreamId>> streams_;
};

// In the order of use: a paged allocator finds, cuts and joins blocks by the first cache line, and
// hands them out and takes them back with the second.
struct alignas(64) Block {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  // Neighbours in the same segment.
  Block* prev = nullptr;
  Block* next = nullptr;
  // Of a paged allocator's free blocks: the next in the bin of its size, and what points to this.
  Block* next_free = nullptr;
  Block** free_link = nullptr;
  // Streams besides its own that use the block, and events recorded for them at the free.
  StreamUses stream_uses{};
  std::uint32_t event_count = 0;
  bool is_allocated = false;
  bool is_mapped = true;

  std::uint64_t requested = 0;
  StreamId stream = StreamId::kDefault;
  PageArena* arena = nullptr;  // of a paged allocator's blocks
  AllocationContext context{};
  // The pool's (or paged allocator's) clock when the block was last put into the free set.
  std::uint64_t gc_base = 0;
  BlockPool* pool = nullptr;
  FreeIndex* index = nullptr;  // the pool's free blocks of this stream
  // Orders free blocks of one size: from PyTorch 2.13 on the age of the segment, before that 0.
  std::uint64_t tie = 0;

  ExpandableSegment* expandable = nullptr;

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

// Block objects, kept for reuse. They are made many at a time, and those given back last are used
// first: what is in use lies together.
class BlockStore {
 public:
  void prepare(std::size_t count) {
    if (spare_.size() < count) [[unlikely]] {
      grow(count);
    }
  }
  // As its last user left it, but for what says that it is in use.
  [[nodiscard]] Block& take_used() noexcept {
    HEADROOM_ASSERT(!spare_.empty(), "a block is taken that nobody prepared for");
    Block& block = *spare_.back();
    spare_.pop_back();
    block.event_count = 0;
    block.is_allocated = false;
    return block;
  }
  [[nodiscard]] Block& take() noexcept {
    Block& block = take_used();
    block.requested = 0;
    block.prev = nullptr;
    block.next = nullptr;
    block.expandable = nullptr;
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
  using Chunk = std::array<Block, 32>;

  void grow(std::size_t count) {
    while (spare_.size() < count) {
      const std::size_t blocks = (chunks_.size() + 1) * std::tuple_size_v<Chunk>;
      if (spare_.capacity() < blocks) spare_.reserve(2 * blocks);  // room to take every block back
      Chunk& chunk = chunks_.emplace_back();
      for (std::size_t i = chunk.size(); i > 0; --i) spare_.push_back(&chunk[i - 1]);
    }
  }

  std::deque<Chunk> chunks_;
  std::vector<Block*> spare_;
};

}  // namespace headroom::memory::internal
