// FreeIndex: the free blocks of one pool and stream, in PyTorch's search order.
//
// A sorted array in chunks of at most 64 keys: a search is two binary searches over contiguous
// memory, an insert or erase moves at most one chunk's keys. Next to a balanced tree this saves a
// cache miss per level and every call of malloc.
//
//   chunks_   [ 512 512 1024 1536 ]  [ 2048 2048 4096 ]  [ 1 MiB 2 MiB ... ]
//
// Keys are ordered by size, then by `tie` (the age of the segment from PyTorch 2.13 on, 0 before),
// then by address.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct Block;

struct FreeKey {
  std::uint64_t size = 0;
  std::uint64_t tie = 0;
  DeviceAddress address = 0;
  Block* block = nullptr;

  friend bool operator<(const FreeKey& a, const FreeKey& b) noexcept {
    if (a.size != b.size) return a.size < b.size;
    if (a.tie != b.tie) return a.tie < b.tie;
    return a.address < b.address;
  }
};

// Where a key stands in an index; valid until the next insert or erase.
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
  [[nodiscard]] const FreeKey& at(Position position) const noexcept {
    return chunks_[position.chunk]->keys[position.slot];
  }
  [[nodiscard]] Position next(Position position) const noexcept {
    if (++position.slot < chunks_[position.chunk]->count) return position;
    return {.chunk = position.chunk + 1, .slot = 0};
  }
  [[nodiscard]] Position previous(Position position) const noexcept {
    if (position.slot > 0) return {.chunk = position.chunk, .slot = position.slot - 1};
    return {.chunk = position.chunk - 1, .slot = chunks_[position.chunk - 1]->count - 1};
  }

  // The first key with at least this size.
  [[nodiscard]] Position lower_bound(std::uint64_t size) const noexcept {
    return find_first_not_below({.size = size});
  }
  [[nodiscard]] Position find(const FreeKey& key) const noexcept {
    return find_first_not_below(key);
  }

  template <class Function>
  void for_each(Function&& function) const {
    for (const std::unique_ptr<Chunk>& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk->count; ++i) function(chunk->keys[i]);
    }
  }

  // Makes sure that the next `inserts` inserts need no memory.
  void prepare(std::size_t inserts) {
    // An insert splits at most one chunk.
    if (spare_.size() < inserts) add_spares(inserts);
  }

  void insert(const FreeKey& key) noexcept {
    if (chunks_.empty()) chunks_.push_back(take_spare());
    Position position = find_first_not_below(key);
    if (position == end()) position = {.chunk = chunks_.size() - 1, .slot = chunks_.back()->count};
    if (chunks_[position.chunk]->count == kChunk) position = split(position);
    Chunk& chunk = *chunks_[position.chunk];
    std::copy_backward(chunk.at(position.slot), chunk.at(chunk.count), chunk.at(chunk.count + 1));
    chunk.keys[position.slot] = key;
    ++chunk.count;
    ++size_;
  }

  void erase(Position position) noexcept {
    Chunk& chunk = *chunks_[position.chunk];
    std::copy(chunk.at(position.slot + 1), chunk.at(chunk.count), chunk.at(position.slot));
    --chunk.count;
    --size_;
    if (chunk.count < kChunk / 4) shrink(position.chunk);
  }

  // Puts `key` in the place of the one at `position`. A block that is cut or grows keeps near its
  // place, so this moves only what lies between the two, and often nothing.
  void replace(Position position, const FreeKey& key) noexcept {
    Chunk& chunk = *chunks_[position.chunk];
    FreeKey* const old = chunk.at(position.slot);
    const bool is_edge = key < chunk.keys[0] || chunk.keys[chunk.count - 1] < key;
    const bool stays =
        (position.chunk == 0 || !(key < chunk.keys[0])) &&
        (position.chunk + 1 == chunks_.size() || !(chunk.keys[chunk.count - 1] < key));
    if (is_edge && !stays) {
      erase(position);
      insert(key);
    } else if (key < *old) {
      FreeKey* const place = std::lower_bound(chunk.at(0), old, key);
      std::copy_backward(place, old, old + 1);
      *place = key;
    } else {
      FreeKey* const place = std::lower_bound(old + 1, chunk.at(chunk.count), key);
      std::copy(old + 1, place, old);
      *(place - 1) = key;
    }
  }

  void erase(const FreeKey& key) noexcept {
    const Position position = find(key);
    HEADROOM_ASSERT(position != end() && at(position).block == key.block,
                    "a free block is not in the index of its pool");
    erase(position);
  }

  [[nodiscard]] std::optional<std::string> check_invariants() const {
    std::size_t count = 0;
    const FreeKey* last = nullptr;
    for (const std::unique_ptr<Chunk>& chunk : chunks_) {
      const bool may_be_empty = chunks_.size() == 1;
      if ((chunk->count == 0 && !may_be_empty) || chunk->count > kChunk) {
        return "a chunk of the free index is empty";
      }
      for (std::size_t i = 0; i < chunk->count; ++i) {
        if (last != nullptr && !(*last < chunk->keys[i])) return "the free index is out of order";
        last = &chunk->keys[i];
      }
      count += chunk->count;
    }
    if (count != size_) return "the free index miscounts";
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kChunk = 64;
  struct Chunk {
    std::size_t count = 0;
    std::array<FreeKey, kChunk> keys;

    FreeKey* at(std::size_t slot) noexcept { return keys.data() + slot; }
  };

  [[nodiscard]] Position find_first_not_below(const FreeKey& key) const noexcept {
    if (size_ == 0) return end();
    const auto chunk = std::partition_point(
        chunks_.begin(), chunks_.end(), [&](const std::unique_ptr<Chunk>& candidate) {
          return candidate->keys[candidate->count - 1] < key;
        });
    if (chunk == chunks_.end()) return end();
    const FreeKey* first = (*chunk)->keys.data();
    const FreeKey* slot = std::lower_bound(first, first + (*chunk)->count, key);
    return {.chunk = static_cast<std::size_t>(chunk - chunks_.begin()),
            .slot = static_cast<std::size_t>(slot - first)};
  }

  // Cuts a full chunk in two; the position in its new place.
  Position split(Position position) noexcept {
    constexpr std::size_t kHalf = kChunk / 2;
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(position.chunk) + 1, take_spare());
    Chunk& left = *chunks_[position.chunk];
    Chunk& right = *chunks_[position.chunk + 1];
    std::copy(left.at(kHalf), left.at(kChunk), right.at(0));
    left.count = kHalf;
    right.count = kChunk - kHalf;
    if (position.slot <= kHalf) return position;
    return {.chunk = position.chunk + 1, .slot = position.slot - kHalf};
  }

  // Joins a chunk that has become short with the one behind it, or drops it when it is empty.
  void shrink(std::size_t index) noexcept {
    Chunk& chunk = *chunks_[index];
    if (chunk.count == 0) {
      if (chunks_.size() > 1) drop(index);  // the last one stays: it will be needed again
    } else if (index + 1 < chunks_.size() &&
               chunk.count + chunks_[index + 1]->count <= kChunk / 2) {
      Chunk& right = *chunks_[index + 1];
      std::copy(right.at(0), right.at(right.count), chunk.at(chunk.count));
      chunk.count += right.count;
      drop(index + 1);
    }
  }

  void drop(std::size_t index) noexcept {
    spare_.push_back(std::move(chunks_[index]));
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::unique_ptr<Chunk> take_spare() noexcept {
    HEADROOM_ASSERT(!spare_.empty(), "a chunk is taken that prepare() did not provide");
    std::unique_ptr<Chunk> chunk = std::move(spare_.back());
    spare_.pop_back();
    chunk->count = 0;
    return chunk;
  }

  void add_spares(std::size_t inserts) {
    const std::size_t all = chunks_.size() + inserts;
    if (chunks_.capacity() < all) chunks_.reserve(2 * all);
    if (spare_.capacity() < all) spare_.reserve(2 * all);  // room to take every chunk back
    while (spare_.size() < inserts) spare_.push_back(std::make_unique<Chunk>());
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::unique_ptr<Chunk>> spare_;
  std::size_t size_ = 0;
};

}  // namespace headroom::memory::internal
