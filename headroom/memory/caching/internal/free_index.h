// FreeIndex: the free blocks of one pool and stream, in PyTorch's search order.
//
// Sorted, in chunks of at most 64 blocks. A search goes by size alone through two short arrays of
// numbers, without a branch that depends on them; the blocks themselves are looked at only where
// sizes are equal. An insert or erase moves at most one chunk's entries. Next to a balanced tree
// this saves a cache miss and a wrong guess per level, and every call of malloc.
//
//   maxima_          1536                4096                2 MiB
//   chunks_   [ 512 512 1024 1536 ]  [ 2048 2048 4096 ]  [ 1 MiB 2 MiB ]
//
// Blocks are ordered by size, then by `tie` (the age of the segment from PyTorch 2.13 on, 0
// before), then by address. While a block is filed, only replace() may be told a new order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/memory/caching/internal/block.h"
#include "headroom/memory/caching/internal/free_chunk.h"

namespace headroom::memory::internal {

// Where a block stands in an index; valid until the next change.
struct FreePosition {
  std::size_t chunk = 0;
  std::size_t slot = 0;

  friend bool operator==(const FreePosition&, const FreePosition&) = default;
};

class FreeIndex {
 public:
  using Position = FreePosition;

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Position begin() const noexcept { return size_ == 0 ? end() : Position{}; }
  [[nodiscard]] Position end() const noexcept { return {.chunk = chunks_.size(), .slot = 0}; }
  [[nodiscard]] Block& at(Position position) const noexcept {
    return *chunks_[position.chunk]->blocks[position.slot];
  }
  [[nodiscard]] Position next(Position position) const noexcept {
    if (++position.slot < chunks_[position.chunk]->count) return position;
    return {.chunk = position.chunk + 1, .slot = 0};
  }
  [[nodiscard]] Position previous(Position position) const noexcept {
    if (position.slot > 0) return {.chunk = position.chunk, .slot = position.slot - 1};
    return {.chunk = position.chunk - 1, .slot = chunks_[position.chunk - 1]->count - 1};
  }

  // The first block with at least this size.
  [[nodiscard]] Position lower_bound(std::uint64_t size) const noexcept {
    if (size_ == 0) return end();
    const std::size_t chunk = count_below(maxima_.data(), maxima_.size(), size);
    if (chunk == chunks_.size()) return end();
    return {.chunk = chunk, .slot = chunks_[chunk]->count_below(size)};
  }
  // Where the block is, or would be: the first one that does not precede it.
  [[nodiscard]] Position find(const Block& block) const noexcept {
    Position at = lower_bound(block.size);
    if (at == end() || &this->at(at) == &block || size_at(at) != block.size) return at;
    return find_among_equals(at.chunk, block);
  }

  template <class Function>
  void for_each(Function&& function) const {
    for (const std::unique_ptr<Chunk>& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk->count; ++i) function(*chunk->blocks[i]);
    }
  }

  // Makes sure that the next `inserts` inserts need no memory.
  void prepare(std::size_t inserts) {
    // An insert splits at most one chunk.
    if (spare_.size() < inserts) add_spares(inserts);
  }

  void insert(Block& block) noexcept {
    if (chunks_.empty()) add_chunk(0);
    Position at = find(block);
    if (at == end()) at = {.chunk = chunks_.size() - 1, .slot = chunks_.back()->count};
    if (chunks_[at.chunk]->count == kChunk) at = split(at);
    Chunk& chunk = *chunks_[at.chunk];
    chunk.move(at.slot, chunk.count, at.slot + 1);
    chunk.put(at.slot, block);
    ++chunk.count;
    ++size_;
    maxima_[at.chunk] = chunk.sizes[chunk.count - 1];
  }

  void erase(Position at) noexcept {
    Chunk& chunk = *chunks_[at.chunk];
    chunk.move(at.slot + 1, chunk.count, at.slot);
    --chunk.count;
    --size_;
    if (chunk.count > 0) maxima_[at.chunk] = chunk.sizes[chunk.count - 1];
    if (chunk.count < kChunk / 4) shrink(at.chunk);
  }

  void erase(const Block& block) noexcept {
    const Position at = find(block);
    HEADROOM_ASSERT(at != end() && &this->at(at) == &block,
                    "a free block is not in the index of its pool");
    erase(at);
  }

  // Files `block`, whose size and address may be new, in the place of the one at `at`, which may
  // be itself. What is cut or grows stays near its place: this moves what lies between, and often
  // nothing.
  void replace(Position at, Block& block) noexcept {
    Chunk& chunk = *chunks_[at.chunk];
    const bool stays = (at.chunk == 0 || block.size > maxima_[at.chunk - 1]) &&
                       (at.chunk + 1 == chunks_.size() || block.size < maxima_[at.chunk]);
    if (!stays) {
      erase(at);
      insert(block);
      return;
    }
    std::size_t slot = at.slot;
    if (slot > 0 && chunk.takes_before(slot - 1, block)) {
      slot = chunk.place_of(block, 0, slot);
      chunk.move(slot, at.slot, slot + 1);
    } else if (slot + 1 < chunk.count && !chunk.takes_before(slot + 1, block)) {
      slot = chunk.place_of(block, slot + 1, chunk.count) - 1;
      chunk.move(at.slot + 1, slot + 1, at.slot);
    }
    chunk.put(slot, block);
    maxima_[at.chunk] = chunk.sizes[chunk.count - 1];
  }

  [[nodiscard]] std::optional<std::string> check_invariants() const {
    std::size_t count = 0;
    const Block* last = nullptr;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      const Chunk& chunk = *chunks_[c];
      const bool may_be_empty = chunks_.size() == 1;
      if ((chunk.count == 0 && !may_be_empty) || chunk.count > kChunk) {
        return "a chunk of the free index is empty";
      }
      for (std::size_t i = 0; i < chunk.count; ++i) {
        const Block& block = *chunk.blocks[i];
        if (chunk.sizes[i] != block.size) return "the free index has an old size of a block";
        if (last != nullptr &&
            !(last->size < block.size || (last->size == block.size && is_before(*last, block)))) {
          return "the free index is out of order";
        }
        last = &block;
      }
      if (chunk.count > 0 && maxima_[c] != chunk.sizes[chunk.count - 1]) {
        return "the free index misjudges a chunk";
      }
      count += chunk.count;
    }
    if (count != size_) return "the free index miscounts";
    return std::nullopt;
  }

 private:
  using Chunk = FreeChunk;
  static constexpr std::size_t kChunk = FreeChunk::kBlocks;

  [[nodiscard]] std::uint64_t size_at(Position at) const noexcept {
    return chunks_[at.chunk]->sizes[at.slot];
  }
  // Equal sizes may fill many chunks: `first` is the first that has them.
  [[nodiscard]] Position find_among_equals(std::size_t first, const Block& block) const noexcept {
    const auto begin = chunks_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto found = std::partition_point(begin, chunks_.end(), [&](const auto& chunk) {
      const std::size_t last = chunk->count - 1;
      return chunk->sizes[last] == block.size && is_before(*chunk->blocks[last], block);
    });
    if (found == chunks_.end()) return end();
    return {.chunk = static_cast<std::size_t>(found - chunks_.begin()),
            .slot = (*found)->place_of(block, 0, (*found)->count)};
  }

  void add_chunk(std::size_t index) noexcept {
    HEADROOM_ASSERT(!spare_.empty(), "a chunk is taken that prepare() did not provide");
    spare_.back()->count = 0;
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(index), std::move(spare_.back()));
    spare_.pop_back();
    maxima_.insert(maxima_.begin() + static_cast<std::ptrdiff_t>(index), 0);
  }

  // Cuts a full chunk in two; the position in its new place.
  Position split(Position at) noexcept {
    constexpr std::size_t kHalf = kChunk / 2;
    add_chunk(at.chunk + 1);
    Chunk& left = *chunks_[at.chunk];
    Chunk& right = *chunks_[at.chunk + 1];
    right.append(left, kHalf, kChunk);
    left.count = kHalf;
    maxima_[at.chunk] = left.sizes[kHalf - 1];
    maxima_[at.chunk + 1] = right.sizes[right.count - 1];
    if (at.slot <= kHalf) return at;
    return {.chunk = at.chunk + 1, .slot = at.slot - kHalf};
  }

  // Joins a chunk that has become short with the one behind it, or drops it when it is empty.
  void shrink(std::size_t index) noexcept {
    Chunk& chunk = *chunks_[index];
    if (chunk.count == 0) {
      if (chunks_.size() > 1) drop(index);  // the last one stays: it will be needed again
    } else if (index + 1 < chunks_.size() &&
               chunk.count + chunks_[index + 1]->count <= kChunk / 2) {
      chunk.append(*chunks_[index + 1], 0, chunks_[index + 1]->count);
      maxima_[index] = chunk.sizes[chunk.count - 1];
      drop(index + 1);
    }
  }

  void drop(std::size_t index) noexcept {
    spare_.push_back(std::move(chunks_[index]));
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
    maxima_.erase(maxima_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void add_spares(std::size_t inserts) {
    const std::size_t all = chunks_.size() + inserts;
    if (chunks_.capacity() < all) chunks_.reserve(2 * all);
    if (maxima_.capacity() < all) maxima_.reserve(2 * all);
    if (spare_.capacity() < all) spare_.reserve(2 * all);  // room to take every chunk back
    while (spare_.size() < inserts) spare_.push_back(std::make_unique<Chunk>());
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::uint64_t> maxima_;  // the size of each chunk's last block
  std::vector<std::unique_ptr<Chunk>> spare_;
  std::size_t size_ = 0;
};

}  // namespace headroom::memory::internal
