// How PyTorch rounds a request, and how large a segment it takes for one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "headroom/base/checked.h"
#include "headroom/memory/config.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

// The divisions that apply to a request: entry k covers [2^k, 2^(k+1)) MiB.
[[nodiscard]] inline std::uint64_t roundup_divisions(std::uint64_t size,
                                                     const AllocatorConfig& config) noexcept {
  const auto log2 = static_cast<int>(std::bit_width(size)) - 1;
  return config.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15))];
}

// Rounds up to the next of `divisions` equal steps between two powers of two.
[[nodiscard]] inline std::uint64_t round_to_division(std::uint64_t size,
                                                     std::uint64_t divisions) noexcept {
  if (is_power_of_two(size)) return size;
  const std::uint64_t floor = std::bit_floor(size);
  const std::uint64_t step = floor >> static_cast<unsigned>(std::bit_width(divisions) - 1);
  return step == 0 ? floor << 1U : round_up(size, step);
}

[[nodiscard]] inline std::uint64_t round_size(std::uint64_t size,
                                              const AllocatorConfig& config) noexcept {
  if (size < kMinBlockBytes) return kMinBlockBytes;
  const std::uint64_t divisions = roundup_divisions(size, config);
  if (divisions > 1 && size > kMinBlockBytes * divisions) return round_to_division(size, divisions);
  return round_up(size, kMinBlockBytes);
}

// The size asked of the device for a request of this rounded size.
[[nodiscard]] inline std::uint64_t segment_size(std::uint64_t rounded,
                                                const AllocatorConfig& config) noexcept {
  if (rounded <= kSmallBytes) return kSmallSegmentBytes;
  if (rounded < kOwnSegmentBytes) return config.large_segment_bytes;
  return round_up(rounded, kSegmentRoundingBytes);
}

}  // namespace headroom::memory::internal
