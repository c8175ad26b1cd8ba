#include "headroom/base/format_error.h"

#include "headroom/base/bytes.h"

namespace headroom {

std::string to_string(const FormatError& error) {
  if (!error.offset) return error.message;
  return "at byte " + format_count(*error.offset) + ": " + error.message;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return std::string(text);
  std::size_t end = kMost - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;  // whole UTF-8
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace headroom
