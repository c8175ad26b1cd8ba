// The sizes that small blocks come in, and how many of each lie together.
//
// Multiples of 512 to 8 KiB, then eight steps a doubling to 64 KiB: a block is at most an eighth
// larger than what was asked for. Blocks of one class are cut from a slab, a run of 64 KiB granules
// inside a page of 2 MiB; the run is as long as it takes to hold four blocks and to waste at most a
// sixteenth behind the last one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headroom/base/bytes.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

// Blocks up to this size are slab blocks.
inline constexpr std::uint64_t kSlabMaxBytes = 64_KiB;
inline constexpr std::uint64_t kSlabPageBytes = 2_MiB;
inline constexpr std::uint64_t kGranuleBytes = 64_KiB;
inline constexpr std::size_t kPageGranules = kSlabPageBytes / kGranuleBytes;
inline constexpr std::size_t kSizeClasses = 40;
inline constexpr std::size_t kSlabMaxBlocks = kGranuleBytes / kMinBlockBytes;

// The class of a request of 1 to kSlabMaxBytes.
[[nodiscard]] constexpr std::size_t size_class_of(std::uint64_t size_bytes) noexcept {
  const std::uint64_t last = size_bytes - 1;
  if (last < 8_KiB) return last / kMinBlockBytes;
  const auto octave = static_cast<unsigned>(std::bit_width(last)) - 1;  // 13, 14 or 15
  return (last >> (octave - 3)) - 8 + std::size_t{8} * (octave - 11);
}

[[nodiscard]] constexpr std::uint64_t compute_class_bytes(std::size_t size_class) noexcept {
  if (size_class < 16) return (size_class + 1) * kMinBlockBytes;
  const std::size_t octave = (size_class - 16) / 8;
  return (9 + (size_class - 16) % 8) << (10 + octave);
}

[[nodiscard]] constexpr std::size_t compute_slab_granules(std::uint64_t block_bytes) noexcept {
  for (std::size_t granules = 1;; ++granules) {
    const std::uint64_t slab = granules * kGranuleBytes;
    if (slab / block_bytes >= 4 && slab % block_bytes <= slab / 16) return granules;
  }
}

struct SizeClass {
  std::uint32_t block_bytes = 0;
  std::uint16_t slab_blocks = 0;
  std::uint8_t slab_granules = 0;
  // Of a thread's magazine: how many blocks it keeps at most, and where they start in its array.
  std::uint8_t magazine_blocks = 0;
  std::uint16_t magazine_start = 0;
};

// A magazine keeps up to 64 blocks of a class, up to 128 KiB of them, and at least four.
inline constexpr std::array<SizeClass, kSizeClasses> kClasses = [] {
  std::array<SizeClass, kSizeClasses> classes{};
  std::uint16_t start = 0;
  for (std::size_t i = 0; i < kSizeClasses; ++i) {
    const std::uint64_t bytes = compute_class_bytes(i);
    const std::size_t granules = compute_slab_granules(bytes);
    SizeClass& c = classes[i];
    c.block_bytes = static_cast<std::uint32_t>(bytes);
    c.slab_granules = static_cast<std::uint8_t>(granules);
    c.slab_blocks = static_cast<std::uint16_t>(granules * kGranuleBytes / bytes);
    c.magazine_blocks =
        static_cast<std::uint8_t>(std::clamp<std::uint64_t>(128_KiB / bytes, 4, 64));
    c.magazine_start = start;
    start = static_cast<std::uint16_t>(start + c.magazine_blocks);
  }
  return classes;
}();
inline constexpr std::size_t kMagazineSlots =
    std::size_t{kClasses.back().magazine_start} + kClasses.back().magazine_blocks;

static_assert(kClasses.back().block_bytes == kSlabMaxBytes);
static_assert(kClasses.front().slab_blocks == kSlabMaxBlocks);

}  // namespace headroom::memory::internal
