// FreeChunk: some free blocks next to one another in a FreeIndex, with their sizes as numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "headroom/memory/caching/internal/block.h"

namespace headroom::memory::internal {

// How many of `count` ascending numbers are below `bound`.
[[nodiscard]] inline std::size_t count_below(const std::uint64_t* numbers,
                                             std::size_t count,
                                             std::uint64_t bound) noexcept {
  if (count == 0) return 0;
  const std::uint64_t* base = numbers;
  while (count > 1) {
    const std::size_t half = count / 2;
    base += half * static_cast<std::size_t>(base[half - 1] < bound);
    count -= half;
  }
  return static_cast<std::size_t>(base - numbers) + static_cast<std::size_t>(*base < bound);
}

// Of two blocks with one size.
[[nodiscard]] inline bool is_before(const Block& a, const Block& b) noexcept {
  return a.tie != b.tie ? a.tie < b.tie : a.address < b.address;
}

// Up to kBlocks blocks, sorted.
struct FreeChunk {
  static constexpr std::size_t kBlocks = 64;

  std::size_t count = 0;
  std::array<std::uint64_t, kBlocks> sizes;
  std::array<Block*, kBlocks> blocks;

  [[nodiscard]] std::size_t count_below(std::uint64_t size) const noexcept {
    return internal::count_below(sizes.data(), count, size);
  }
  // Where in [first, last), which does not hold it, the block belongs.
  [[nodiscard]] std::size_t place_of(const Block& block,
                                     std::size_t first,
                                     std::size_t last) const noexcept {
    std::size_t at = first + internal::count_below(&sizes[first], last - first, block.size);
    if (at == last || sizes[at] != block.size) return at;
    const std::size_t equal = internal::count_below(&sizes[at], last - at, block.size + 1);
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(at);
    const auto found = std::partition_point(begin,
                                            begin + static_cast<std::ptrdiff_t>(equal),
                                            [&](Block* b) { return is_before(*b, block); });
    return static_cast<std::size_t>(found - blocks.begin());
  }
  // Whether it belongs before the one at `slot`.
  [[nodiscard]] bool takes_before(std::size_t slot, const Block& block) const noexcept {
    if (block.size != sizes[slot]) return block.size < sizes[slot];
    return is_before(block, *blocks[slot]);
  }
  void put(std::size_t slot, Block& block) noexcept {
    sizes[slot] = block.size;
    blocks[slot] = &block;
  }
  void append(const FreeChunk& other, std::size_t first, std::size_t last) noexcept {
    std::copy(other.sizes.data() + first, other.sizes.data() + last, sizes.data() + count);
    std::copy(other.blocks.data() + first, other.blocks.data() + last, blocks.data() + count);
    count += last - first;
  }
  // Entries [first, last) to `to`.
  void move(std::size_t first, std::size_t last, std::size_t to) noexcept {
    if (first == last) return;
    std::memmove(sizes.data() + to, sizes.data() + first, (last - first) * sizeof(std::uint64_t));
    std::memmove(blocks.data() + to, blocks.data() + first, (last - first) * sizeof(void*));
  }
};

}  // namespace headroom::memory::internal
