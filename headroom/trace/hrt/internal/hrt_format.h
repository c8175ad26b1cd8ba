// The fixed parts of a .hrt file; docs/format/hrt.md says what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headroom::trace::internal {

// The first byte is no text, and the line ends show what was sent as text.
inline constexpr std::array<std::uint8_t, 8> kHrtMagic{0x89, 'H', 'R', 'T', '\r', '\n', 0x1A, '\n'};
inline constexpr std::uint16_t kHrtVersion = 1;
inline constexpr std::size_t kFileHeaderBytes = 16;
inline constexpr std::size_t kBlockHeaderBytes = 48;
inline constexpr std::size_t kFooterBytes = 16;
// A body is at most this many times as long unpacked: what bounds the memory a small file can ask
// for.
inline constexpr std::uint64_t kMostExpansion = 64;
// Of an event: a byte in each of its columns.
inline constexpr std::size_t kLeastEventBytes = 7;
inline constexpr int kMostValueDepth = 200;

enum class BlockKind : std::uint8_t {
  kProperties = 1,
  kStrings = 2,
  kValues = 3,
  kFrames = 4,
  kStacks = 5,
  kDetails = 6,
  kDevice = 7,
  kEvents = 8,
  kSegments = 9,
  kAnnotations = 10,
  kSymbols = 11,
  kIndex = 127,
};
// From here on a reader skips what it does not know.
inline constexpr std::uint8_t kFirstOptionalKind = 128;

inline constexpr std::uint8_t kFlagPacked = 1;  // the body is a zstd frame
inline constexpr std::uint8_t kFlagHost = 2;

struct BlockHeader {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint32_t number = 0;  // of the block, from 0
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::int32_t device = 0;
  std::int32_t rank = 0;
  std::uint32_t count = 0;  // of what is in it
  std::int64_t first_time_us = 0;
  std::uint32_t body_checksum = 0;

  [[nodiscard]] bool is(BlockKind wanted) const noexcept {
    return kind == static_cast<std::uint8_t>(wanted);
  }
};

using BlockHeaderBytes = std::array<std::byte, kBlockHeaderBytes>;

[[nodiscard]] BlockHeaderBytes to_bytes(const BlockHeader& header);
// Nothing when marker or checksum are wrong. `bytes` has kBlockHeaderBytes.
[[nodiscard]] std::optional<BlockHeader> read_block_header(
    std::span<const std::byte> bytes) noexcept;

[[nodiscard]] std::array<std::byte, kFileHeaderBytes> file_header();

[[nodiscard]] std::array<std::byte, kFooterBytes> footer(std::uint64_t index_offset);
// Where the index is, or nothing. `bytes` has kFooterBytes.
[[nodiscard]] std::optional<std::uint64_t> read_footer(std::span<const std::byte> bytes) noexcept;

}  // namespace headroom::trace::internal
