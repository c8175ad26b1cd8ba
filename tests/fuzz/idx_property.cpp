#include "tests/fuzz/idx_property.h"

#include "headroom/nn/data/files.h"

namespace headroom::nn::testing {

std::optional<std::string> broken_idx_property(std::span<const std::byte> bytes) {
  const auto read = parse_idx_header(bytes, bytes.size());
  if (!read) {
    if (read.error().message.empty()) return "an error without words";
    if (!read.error().offset || *read.error().offset > bytes.size()) return "a place outside";
    return std::nullopt;
  }
  std::uint64_t elements = 1;
  for (const std::uint32_t size : read->sizes) elements *= size;
  if (elements != read->data_bytes) return "sizes of another number of elements";
  if (read->data_offset + read->data_bytes != bytes.size()) return "elements do not fill the file";
  return std::nullopt;
}

}  // namespace headroom::nn::testing
