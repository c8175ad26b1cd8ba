// Part: buffers that have no moment in common with those of other parts, with their times as ranks.
// Parts are packed one by one; the highest decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headroom/solve/packing.h"

namespace headroom::solve::internal {

// As Buffer, in what packers look at most. Times count the moments at which a buffer starts or
// ends.
struct Item {
  std::uint32_t lower = 0;
  std::uint32_t upper = 0;
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;
};

struct Part {
  std::vector<Item> items{};
  std::vector<std::size_t> buffers{};  // the index of each item's buffer
  std::uint32_t moments = 0;           // all times are below or equal
  std::uint64_t peak_load = 0;
};

// Buffers of no bytes are in no part.
[[nodiscard]] std::vector<Part> split_into_parts(std::span<const Buffer> buffers);

[[nodiscard]] inline std::uint64_t aligned(std::uint64_t offset, std::uint64_t alignment) noexcept {
  const std::uint64_t rest = alignment == 1 ? 0 : offset % alignment;
  return rest == 0 ? offset : offset + (alignment - rest);
}

}  // namespace headroom::solve::internal
