// The parts that the blocks of every core share: the streams that use one, and where the objects
// that describe them come from.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "headroom/base/check.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

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

// Block objects, kept for reuse. They are made 32 at a time, and those given back last are used
// first: the objects in use lie together. A core's Block has `start_over()`, which clears what its
// last user left.
template <class Block>
class BlockStore {
 public:
  // The next `count` takes need no memory.
  void prepare(std::size_t count) {
    if (spare_.size() < count) [[unlikely]] {
      grow(count);
    }
  }
  // A block that is not in use, with all else as its last user left it.
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
    block.start_over();
    return block;
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
