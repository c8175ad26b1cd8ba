#include "headroom/diagnose/internal/plain_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

namespace headroom::diagnose::internal {
namespace {

// A piece at the start of a text: how long it is, and the text to write instead.
struct Piece {
  std::size_t length = 0;  // 0: nothing special
  std::string_view instead{};
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// A character of ASCII as text; every other is a blank.
std::string_view character(std::uint32_t code) {
  static constexpr auto kAscii = [] {
    std::array<char, 128> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i);
    return out;
  }();
  return code < kAscii.size() ? std::string_view(&kAscii[code], 1) : " ";
}

std::optional<std::uint32_t> number(std::string_view digits, int base) {
  std::uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Behind the escape character: `[1;31m` of a colour, `]8;;link` and a bell of a title or a link.
std::size_t escape_length(std::string_view text) {
  constexpr std::size_t kLongest = 4096;
  if (text.empty()) return 0;
  if (text.front() == '[') {
    std::size_t at = 1;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
    return std::min(at + 1, text.size());
  }
  if (text.front() != ']') return 1;
  const std::string_view near = text.substr(0, kLongest);
  const std::size_t bell = near.find('\a');
  const std::size_t end = near.find("\x1b\\");
  if (bell < end) return bell + 1;
  return end == std::string_view::npos ? 1 : end + 2;
}

// `\n`, `\"`, `\u001b[0;31m`: of JSON, and of Python's repr.
Piece at_backslash(std::string_view text) {
  for (const std::string_view escape : {"\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033"}) {
    if (text.starts_with(escape)) {
      return {.length = escape.size() + escape_length(text.substr(escape.size()))};
    }
  }
  constexpr std::size_t kUnicode = 6;
  if (text.size() >= kUnicode && text[1] == 'u') {
    const auto code = number(text.substr(2, 4), 16);
    return code ? Piece{.length = kUnicode, .instead = character(*code)} : Piece{};
  }
  if (text.size() < 2) return {};
  switch (text[1]) {
    case 'n':
    case 'r':
      return {.length = 2, .instead = "\n"};
    case 't':
      return {.length = 2, .instead = " "};
    case '"':
    case '/':
      return {.length = 2, .instead = text.substr(1, 1)};
    case '\\':  // escaped twice
      return {.length = 1};
    default:
      return {};
  }
}

// The tags that copies of a notebook or of a page have; `<module>` and `<stderr>` are none.
Piece at_tag(std::string_view text) {
  constexpr std::array<std::string_view, 24> kTags{
      "a", "b",   "br",   "code",  "div",  "em",     "font",  "i",  "kbd", "li", "mark", "ol",
      "p", "pre", "samp", "small", "span", "strong", "table", "td", "tr",  "tt", "u",    "ul"};
  constexpr std::size_t kLongest = 400;
  const std::size_t from = text.size() > 1 && text[1] == '/' ? 2 : 1;
  std::string name;
  while (from + name.size() < text.size() && is_letter(text[from + name.size()])) {
    name += lower(text[from + name.size()]);
    if (name.size() > 6) return {};
  }
  if (std::ranges::find(kTags, name) == kTags.end()) return {};
  const std::string_view rest = text.substr(from + name.size(), kLongest);
  const bool is_whole = !rest.empty() && (rest[0] == '>' || rest[0] == '/' || rest[0] == ' ');
  const std::size_t end = rest.find_first_of("<>\n");
  if (!is_whole || end == std::string_view::npos || rest[end] != '>') return {};
  const bool is_break = name == "br" || name == "p" || name == "div" || name == "li";
  return {.length = from + name.size() + end + 1, .instead = is_break ? "\n" : ""};
}

// `&nbsp;`, `&gt;`, `&#x27;`.
Piece at_ampersand(std::string_view text) {
  constexpr std::size_t kLongest = 10;
  const std::size_t end = text.substr(0, kLongest).find(';');
  if (end == std::string_view::npos) return {};
  struct Entity {
    std::string_view name;
    std::string_view means;
  };
  constexpr std::array<Entity, 6> kEntities{Entity{"nbsp", " "},
                                            Entity{"amp", "&"},
                                            Entity{"lt", "<"},
                                            Entity{"gt", ">"},
                                            Entity{"quot", "\""},
                                            Entity{"apos", "'"}};
  const std::string_view name = text.substr(1, end - 1);
  for (const Entity& entity : kEntities) {
    if (entity.name == name) return {.length = end + 1, .instead = entity.means};
  }
  if (name.size() < 2 || name[0] != '#') return {};
  const bool is_hex = lower(name[1]) == 'x';
  const auto code = number(name.substr(is_hex ? 2 : 1), is_hex ? 16 : 10);
  return code ? Piece{.length = end + 1, .instead = character(*code)} : Piece{};
}

// Blanks, marks without width and the lines of boxes, in UTF-8.
Piece at_high_byte(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (byte(0) == 0xC2 && byte(1) == 0xA0) return {.length = 2, .instead = " "};
  if (byte(0) == 0xC2 && byte(1) == 0xAD) return {.length = 2};  // a soft hyphen
  if (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0x80 && byte(2) <= 0x8A) {
    return {.length = 3, .instead = " "};
  }
  if (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) == 0xAF) return {.length = 3, .instead = " "};
  if (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0x8B && byte(2) <= 0x8F) {
    return {.length = 3};
  }
  const bool is_box = byte(0) == 0xE2 && (byte(1) == 0x94 || byte(1) == 0x95);
  if (is_box || (byte(0) == 0xE3 && byte(1) == 0x80 && byte(2) == 0x80)) {
    return {.length = std::min<std::size_t>(3, text.size()), .instead = " "};
  }
  if (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) return {.length = 3};
  return {};
}

Piece special_at(std::string_view text) {
  switch (text.front()) {
    case '\x1b':
      return {.length = 1 + escape_length(text.substr(1))};
    case '\\':
      return at_backslash(text);
    case '<':
      return at_tag(text);
    case '&':
      return at_ampersand(text);
    default:
      return static_cast<unsigned char>(text.front()) >= 0x80 ? at_high_byte(text) : Piece{};
  }
}

}  // namespace

std::string plain_text(std::string_view log) {
  std::string narrow;  // of a log that PowerShell wrote (UTF-16), where every other byte is 0
  if (log.find('\0') != std::string_view::npos) {
    narrow = log;
    std::erase(narrow, '\0');
    log = narrow;
  }
  std::string out;
  out.reserve(log.size());
  for (std::size_t i = 0; i < log.size();) {
    const Piece piece = special_at(log.substr(i));
    if (piece.length == 0) {
      out += log[i++];
      continue;
    }
    out += piece.instead;
    i += piece.length;
  }
  return out;
}

}  // namespace headroom::diagnose::internal
