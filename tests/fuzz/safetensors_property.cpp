#include "tests/fuzz/safetensors_property.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "headroom/nn/internal/safetensors_header.h"
#include "headroom/nn/safetensors.h"

namespace headroom::nn::testing {
namespace {

using internal::kLengthBytes;

std::uint64_t number(std::span<const std::byte> bytes) {
  std::uint64_t out = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    out = out << 8U | std::to_integer<std::uint64_t>(bytes[i - 1]);
  }
  return out;
}

bool begins_like_a_file(std::span<const std::byte> bytes) {
  return bytes.size() >= kLengthBytes &&
         number(bytes.first(kLengthBytes)) <= bytes.size() - kLengthBytes;
}

struct File {
  std::vector<std::byte> start;
  std::uint64_t size_bytes = 0;
};

File framed(std::span<const std::byte> bytes) {
  const std::uint64_t data = bytes.size() < 2 ? 0 : number(bytes.first(2));
  const auto json = bytes.subspan(std::min<std::size_t>(2, bytes.size()));
  File out;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    out.start.push_back(static_cast<std::byte>(json.size() >> (8 * i) & 0xFFU));
  }
  out.start.insert(out.start.end(), json.begin(), json.end());
  out.size_bytes = out.start.size() + data;
  return out;
}

std::optional<std::string> broken_layout(const SafetensorsHeader& header,
                                         std::uint64_t file_bytes) {
  std::uint64_t end = file_bytes;
  for (const SafetensorsEntry& entry : header.entries) end -= entry.size_bytes;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.offset != end) return "tensors do not lie side by side";
    end += entry.size_bytes;
  }
  return end == file_bytes ? std::nullopt : std::optional<std::string>("data is left over");
}

bool is_equal(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  if (a.metadata != b.metadata || a.entries.size() != b.entries.size()) return false;
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const SafetensorsEntry& x = a.entries[i];
    const SafetensorsEntry& y = b.entries[i];
    if (x.name != y.name || x.dtype != y.dtype || x.shape != y.shape ||
        x.size_bytes != y.size_bytes) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<std::string> broken_safetensors_property(std::span<const std::byte> bytes) {
  const File file =
      begins_like_a_file(bytes) ? File{{bytes.begin(), bytes.end()}, bytes.size()} : framed(bytes);
  const auto read = parse_safetensors_header(file.start, file.size_bytes);
  if (!read) {
    if (read.error().message.empty()) return "an error without words";
    if (!read.error().offset || *read.error().offset > file.size_bytes) return "a place outside";
    return std::nullopt;
  }
  if (auto broken = broken_layout(*read, file.size_bytes)) return broken;
  SafetensorsHeader again = *read;
  std::uint64_t data = 0;
  for (SafetensorsEntry& entry : again.entries) {
    entry.offset = data;
    data += entry.size_bytes;
  }
  const std::string text = internal::header_text(again);
  const auto reread = parse_safetensors_header(std::as_bytes(std::span(text)), text.size() + data);
  if (!reread) return "what was written is not read: " + to_string(reread.error());
  if (!is_equal(*read, *reread)) return "what was written reads differently";
  return std::nullopt;
}

}  // namespace headroom::nn::testing
