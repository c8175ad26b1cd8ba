#include "tests/fuzz/hrt_property.h"

#include <algorithm>
#include <zstd.h>

#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/crc32c.h"
#include "headroom/trace/hrt/internal/hrt_format.h"

namespace headroom::trace::testing {
namespace {

using internal::BlockHeader;
using internal::ByteReader;
using internal::ByteWriter;

constexpr std::size_t kBareHeader = 6;  // kind, flags, count, length

// A file with sound headers around these bodies.
std::vector<std::byte> framed(std::span<const std::byte> bytes) {
  ByteWriter file;
  file.raw(internal::file_header());
  for (std::uint32_t number = 0; bytes.size() >= kBareHeader; ++number) {
    ByteReader in(bytes);
    BlockHeader header{.kind = in.byte()};
    header.flags = in.byte() & internal::kFlagHost;
    header.number = number;
    header.count = static_cast<std::uint32_t>(in.fixed(2));
    const auto length = std::min<std::size_t>(in.fixed(2), bytes.size() - kBareHeader);
    const auto body = bytes.subspan(kBareHeader, length);
    header.stored_bytes = header.raw_bytes = static_cast<std::uint32_t>(length);
    header.body_checksum = internal::crc32c(body);
    file.raw(internal::to_bytes(header));
    file.raw(body);
    bytes = bytes.subspan(kBareHeader + length);
  }
  return file.take();
}

}  // namespace

std::optional<std::string> broken_hrt_property(std::span<const std::byte> bytes) {
  std::vector<std::byte> made;
  if (!is_hrt(bytes)) {
    made = framed(bytes);
    bytes = made;
  }
  (void)list_hrt_blocks(bytes);
  std::string note;
  const auto read = parse_hrt(bytes, &note);
  if (!read) {
    if (read.error().message.empty()) return "an error without words";
    return std::nullopt;
  }
  const std::vector<std::byte> first = write_hrt(*read);
  const auto again = parse_hrt(first, &note);
  if (!again) return "what was written is not read: " + to_string(again.error());
  if (!note.empty()) return "what was written is not whole: " + note;
  if (write_hrt(*again) != first) return "what was written reads differently";
  return std::nullopt;
}

std::vector<std::byte> as_bare_blocks(std::span<const std::byte> file) {
  ByteWriter out;
  const auto blocks = list_hrt_blocks(file);
  for (const HrtBlock& block : *blocks) {
    const auto header =
        internal::read_block_header(file.subspan(block.offset, internal::kBlockHeaderBytes))
            .value();
    if (header.is(internal::BlockKind::kIndex)) continue;
    std::vector<std::byte> body(header.raw_bytes);
    const auto stored =
        file.subspan(block.offset + internal::kBlockHeaderBytes, header.stored_bytes);
    if (ZSTD_isError(ZSTD_decompress(body.data(), body.size(), stored.data(), stored.size())) !=
        0U) {
      continue;
    }
    out.byte(header.kind);
    out.byte(header.flags);
    out.fixed(header.count, 2);
    out.fixed(body.size(), 2);
    out.raw(body);
  }
  return out.take();
}

}  // namespace headroom::trace::testing
