#include "headroom/trace/pickle/internal/utf8.h"

#include <algorithm>
#include <cstdint>

namespace headroom::trace::internal {
namespace {

// The bytes of the character that `text` begins with, or 0 where it is none.
std::size_t length_of_first(std::string_view text) noexcept {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  const auto is_inner = [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0U) == 0x80; };
  if (!std::ranges::all_of(text.substr(1, length - 1), is_inner)) return 0;
  const auto second = static_cast<std::uint8_t>(text[1]);
  // Longer than it has to be, or above the last character.
  const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90) ||
                        (first == 0xf4 && second > 0x8f);
  return is_wrong ? 0 : length;
}

}  // namespace

bool is_ascii(std::string_view text) noexcept {
  return std::ranges::all_of(text, [](char c) { return static_cast<std::uint8_t>(c) < 0x80; });
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = length_of_first(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace headroom::trace::internal
