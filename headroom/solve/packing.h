// Buffers with lifetimes, to be put at offsets of one memory (dynamic storage allocation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace headroom::solve {

// Lives from `lower` up to, and not with, `upper`, in any unit of time.
struct Buffer {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t alignment = 1;                 // of its offset
  std::optional<std::uint64_t> hint_offset{};  // where it may do well; nobody is bound by it
};

using Offsets = std::vector<std::uint64_t>;  // by buffer

// The offset past the last byte that any buffer has.
[[nodiscard]] std::uint64_t height_of(std::span<const Buffer> buffers, const Offsets& offsets);

// The most bytes that are alive at once: no packing is lower.
[[nodiscard]] std::uint64_t peak_load(std::span<const Buffer> buffers);

inline constexpr std::uint64_t kMostPackedBytes = std::uint64_t{1} << 62U;

// Throws InvalidArgument, which names the buffer by its index, where a lifetime is empty, an
// alignment is 0, or sizes and alignments add up to more than kMostPackedBytes.
void check_buffers(std::span<const Buffer> buffers);

}  // namespace headroom::solve
