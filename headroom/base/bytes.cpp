#include "headroom/base/bytes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

namespace headroom {
namespace {

struct Unit {
  std::string_view name;  // lower case
  unsigned shift;
};

constexpr std::array<Unit, 7> kUnits{
    {{"b", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"pib", 50}, {"eib", 60}}};

// The locale must not change how a size is read.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) out += to_lower(c);
  return out;
}

std::string complaint(std::string_view text, std::string_view why) {
  std::string out = "'";
  out.append(text)
      .append("' is not a size: ")
      .append(why)
      .append("; write for example 512, 20MiB or 1.5GiB");
  return out;
}

std::optional<unsigned> unit_shift(std::string_view name) {
  if (name.empty()) return 0;
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.shift;
  }
  return std::nullopt;
}

bool is_decimal_unit(std::string_view name) {
  constexpr std::string_view kPrefixes = "kmgtpe";
  if (name.empty() || kPrefixes.find(name[0]) == std::string_view::npos) return false;
  return name.size() == 1 || (name.size() == 2 && name[1] == 'b');
}

std::string decimal_unit_complaint(std::string_view text, std::string_view digits, char prefix) {
  std::string why = "decimal units are ambiguous, did you mean ";
  why.append(digits);
  why += static_cast<char>(prefix - 'a' + 'A');
  why += "iB?";
  return complaint(text, why);
}

}  // namespace

Result<std::uint64_t, std::string> parse_bytes(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == 0) {
    return Unexpected(complaint(text, text.empty() ? "it is empty" : "it must start with a digit"));
  }

  std::uint64_t whole = 0;
  if (std::from_chars(text.data(), text.data() + end, whole).ec != std::errc{}) {
    return Unexpected(complaint(text, "it is past 2^64 bytes"));
  }

  long double fraction = 0;
  if (end < text.size() && text[end] == '.') {
    const std::size_t first = ++end;
    long double scale = 1;
    for (; end < text.size() && is_digit(text[end]); ++end) {
      scale /= 10;
      fraction += scale * static_cast<long double>(text[end] - '0');
    }
    if (end == first) return Unexpected(complaint(text, "a digit must follow the point"));
  }

  const std::string_view digits = text.substr(0, end);
  std::string_view rest = text.substr(end);
  if (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
  const std::string unit = lower(rest);
  const std::optional<unsigned> shift = unit_shift(unit);
  if (!shift && is_decimal_unit(unit)) {
    return Unexpected(decimal_unit_complaint(text, digits, unit[0]));
  }
  if (!shift)
    return Unexpected(complaint(text, "the unit must be B, KiB, MiB, GiB, TiB, PiB or EiB"));
  if (*shift == 0 && fraction > 0) {
    return Unexpected(complaint(text, "a byte cannot be divided"));
  }

  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (whole > (kMax >> *shift)) return Unexpected(complaint(text, "it is past 2^64 bytes"));
  const std::uint64_t base = whole << *shift;
  const auto extra = static_cast<std::uint64_t>(
      std::llround(fraction * static_cast<long double>(std::uint64_t{1} << *shift)));
  if (extra > kMax - base) return Unexpected(complaint(text, "it is past 2^64 bytes"));
  return base + extra;
}

std::optional<ByteUnit> leading_byte_unit(std::string_view text) noexcept {
  constexpr std::array<ByteUnit, 11> kNames{{{"bytes", 1},
                                             {"KiB", 0x1p10},
                                             {"MiB", 0x1p20},
                                             {"GiB", 0x1p30},
                                             {"TiB", 0x1p40},
                                             {"kB", 0x1p10},
                                             {"KB", 0x1p10},
                                             {"MB", 0x1p20},
                                             {"GB", 0x1p30},
                                             {"TB", 0x1p40},
                                             {"B", 1}}};
  for (const ByteUnit& unit : kNames) {
    if (text.starts_with(unit.name)) return unit;
  }
  return std::nullopt;
}

std::string format_bytes(std::uint64_t size_bytes) {
  constexpr std::array<const char*, 7> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (size_bytes < 1024) return std::to_string(size_bytes) + "B";
  std::size_t unit = 0;
  auto value = static_cast<double>(size_bytes);
  // 1023.995 would print as `1024`, so it belongs to the next unit.
  while (unit + 1 < kNames.size() && value >= 1023.995) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  std::string out = text.data();
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out + kNames[unit];
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace headroom
