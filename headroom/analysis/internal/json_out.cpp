#include "headroom/analysis/internal/json_out.h"

#include <cstdint>

namespace headroom::analysis::internal {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
}

bool is_continuation(unsigned byte) { return (byte & 0xC0U) == 0x80U; }

// How many bytes the character at `i` has; 0 where it is no UTF-8: too long a form, half of a pair,
// past the last character, or cut off.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i);
  const unsigned second = byte_at(text, i + 1);
  if (first < 0x80) return 1;
  if (!is_continuation(second) || first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return 2;
  if (!is_continuation(byte_at(text, i + 2))) return 0;
  if (first < 0xF0) {
    const bool is_too_long = first == 0xE0 && second < 0xA0;
    const bool is_surrogate = first == 0xED && second >= 0xA0;
    return is_too_long || is_surrogate ? 0 : 3;
  }
  if (!is_continuation(byte_at(text, i + 3))) return 0;
  const bool is_too_long = first == 0xF0 && second < 0x90;
  const bool is_too_high = first == 0xF4 && second >= 0x90;
  return is_too_long || is_too_high ? 0 : 4;
}

bool is_plain(char c) {
  return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7F &&
         c != '"' && c != '\\';
}

}  // namespace

void JsonOut::string(std::string_view text) {
  raw("\"");
  for (std::size_t i = 0; i < text.size();) {
    if (is_plain(text[i])) {
      buffer_.push_back(text[i++]);
      continue;
    }
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      raw("\\ufffd");
      ++i;
    } else if (length == 1) {
      raw("\\u{:04x}", byte_at(text, i));
      ++i;
    } else {
      raw("{}", text.substr(i, length));
      i += length;
    }
  }
  raw("\"");
}

}  // namespace headroom::analysis::internal
