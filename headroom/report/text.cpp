#include "headroom/report/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace headroom::report {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Not all of Unicode: the scripts and symbols that reach a file, host or process name.
constexpr std::array<Range, 5> kZeroWidth{
    {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}}};
constexpr std::array<Range, 9> kWide{{{0x1100, 0x115F},
                                      {0x2E80, 0x303E},
                                      {0x3041, 0xA4CF},
                                      {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF},
                                      {0xFE30, 0xFE6F},
                                      {0xFF00, 0xFF60},
                                      {0x1F300, 0x1FAFF},
                                      {0x20000, 0x3FFFD}}};

template <std::size_t kCount>
bool is_in(const std::array<Range, kCount>& ranges, char32_t c) {
  return std::ranges::any_of(ranges, [c](Range r) { return c >= r.first && c <= r.last; });
}

// One character, or one colour escape, from the start of a text.
struct Glyph {
  std::size_t bytes = 1;
  int width = 1;
};

// "\x1b[" parameters, then a letter.
std::size_t escape_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  std::size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

Glyph first_glyph(std::string_view text) {
  if (const std::size_t escape = escape_bytes(text); escape > 0) return {escape, 0};
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = sequence_length(lead);
  if (length <= 1 || length > text.size()) return {1, 1};
  auto c = static_cast<char32_t>(lead & (0xFFU >> (length + 1)));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) != 0x80U) return {1, 1};
    c = (c << 6U) | (byte & 0x3FU);
  }
  if (is_in(kZeroWidth, c)) return {length, 0};
  return {length, is_in(kWide, c) ? 2 : 1};
}

bool is_control(char c) { return (c >= 0 && c < 0x20) || c == 0x7F; }

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    width += glyph.width;
    text.remove_prefix(glyph.bytes);
  }
  return width;
}

std::string pad(std::string_view text, int width, Align align) {
  const int missing = std::max(0, width - display_width(text));
  int before = 0;
  if (align == Align::kRight) before = missing;
  if (align == Align::kCenter) before = missing / 2;
  std::string out = repeated(" ", before);
  return out.append(text).append(repeated(" ", missing - before));
}

std::string shorten(std::string_view text, int width, const Terminal& terminal) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view mark = terminal.has_unicode ? "…" : "...";
  const int room = width - display_width(mark);
  std::string out;
  int used = 0;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    if (used + glyph.width > room) break;
    used += glyph.width;
    out.append(text.substr(0, glyph.bytes));
    text.remove_prefix(glyph.bytes);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out.append(mark);
}

std::vector<std::string> wrap(std::string_view text, int width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line.append(word);
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string wrapped(std::string_view text, int indent, int width) {
  std::string out;
  for (const std::string& line : wrap(text, width - indent)) {
    out.append(repeated(" ", indent)).append(line).append("\n");
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out(text);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  for (char& c : out) {
    if (c == '\n' || c == '\t' || c == '\r') {
      c = ' ';
    } else if (is_control(c)) {
      c = '?';
    }
  }
  return out;
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(text);
  return out;
}

}  // namespace headroom::report
