#include "headroom/trace/hrt/internal/hrt_format.h"

#include <algorithm>

#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/crc32c.h"

namespace headroom::trace::internal {
namespace {

constexpr std::uint32_t kBlockMarker = 0x42545248;   // "HRTB"
constexpr std::uint32_t kFooterMarker = 0x45545248;  // "HRTE"

// The bytes so far and their checksum.
template <std::size_t kSize>
std::array<std::byte, kSize> sealed(ByteWriter& out) {
  out.fixed(crc32c(out.bytes()), 4);
  std::array<std::byte, kSize> bytes{};
  std::ranges::copy(out.bytes(), bytes.begin());
  return bytes;
}

}  // namespace

BlockHeaderBytes to_bytes(const BlockHeader& header) {
  ByteWriter out;
  out.fixed(kBlockMarker, 4);
  out.byte(header.kind);
  out.byte(header.flags);
  out.fixed(0, 2);
  out.fixed(header.number, 4);
  out.fixed(header.stored_bytes, 4);
  out.fixed(header.raw_bytes, 4);
  out.fixed(static_cast<std::uint32_t>(header.device), 4);
  out.fixed(static_cast<std::uint32_t>(header.rank), 4);
  out.fixed(header.count, 4);
  out.fixed(static_cast<std::uint64_t>(header.first_time_us), 8);
  out.fixed(header.body_checksum, 4);
  return sealed<kBlockHeaderBytes>(out);
}

std::optional<BlockHeader> read_block_header(std::span<const std::byte> bytes) noexcept {
  ByteReader in(bytes);
  if (in.fixed(4) != kBlockMarker) return std::nullopt;
  BlockHeader header;
  header.kind = in.byte();
  header.flags = in.byte();
  (void)in.fixed(2);
  header.number = static_cast<std::uint32_t>(in.fixed(4));
  header.stored_bytes = static_cast<std::uint32_t>(in.fixed(4));
  header.raw_bytes = static_cast<std::uint32_t>(in.fixed(4));
  header.device = static_cast<std::int32_t>(in.fixed(4));
  header.rank = static_cast<std::int32_t>(in.fixed(4));
  header.count = static_cast<std::uint32_t>(in.fixed(4));
  header.first_time_us = static_cast<std::int64_t>(in.fixed(8));
  header.body_checksum = static_cast<std::uint32_t>(in.fixed(4));
  const std::uint32_t expected = crc32c(bytes.first(kBlockHeaderBytes - 4));
  if (in.fixed(4) != expected) return std::nullopt;
  return header;
}

std::array<std::byte, kFileHeaderBytes> file_header() {
  ByteWriter out;
  for (const std::uint8_t byte : kHrtMagic) out.byte(byte);
  out.fixed(kHrtVersion, 2);
  out.fixed(0, 2);  // flags
  return sealed<kFileHeaderBytes>(out);
}

std::array<std::byte, kFooterBytes> footer(std::uint64_t index_offset) {
  ByteWriter out;
  out.fixed(kFooterMarker, 4);
  out.fixed(index_offset, 8);
  return sealed<kFooterBytes>(out);
}

std::optional<std::uint64_t> read_footer(std::span<const std::byte> bytes) noexcept {
  ByteReader in(bytes);
  if (in.fixed(4) != kFooterMarker) return std::nullopt;
  const std::uint64_t offset = in.fixed(8);
  if (in.fixed(4) != crc32c(bytes.first(kFooterBytes - 4))) return std::nullopt;
  return offset;
}

}  // namespace headroom::trace::internal
