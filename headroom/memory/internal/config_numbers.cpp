#include "headroom/memory/internal/config_numbers.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

namespace headroom::memory::internal {
namespace {

struct Sign {
  bool is_negative = false;
  std::string_view rest;
};

// Leading white space and one sign, as strtol and its kin skip them.
Sign read_sign(std::string_view text) {
  while (!text.empty() && std::string_view(" \t\n\v\f\r").find(text[0]) != std::string_view::npos) {
    text.remove_prefix(1);
  }
  if (text.starts_with('-')) return {true, text.substr(1)};
  if (text.starts_with('+')) return {false, text.substr(1)};
  return {false, text};
}

template <class T, class... Format>
ReadNumber<T> read_prefix(std::string_view text, Format... format) {
  ReadNumber<T> out;
  // from_chars would take a second sign.
  if (text.starts_with('-')) return {.fault = NumberFault::kNotANumber};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out.value, format...);
  if (error == std::errc::result_out_of_range) return {.fault = NumberFault::kOutOfRange};
  if (error != std::errc{}) return {.fault = NumberFault::kNotANumber};
  out.has_trailing_junk = stop != end;
  return out;
}

bool is_hexadecimal(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X");
}

}  // namespace

std::optional<std::uint64_t> read_whole(std::string_view text) noexcept {
  const auto read = read_prefix<std::uint64_t>(text);
  if (read.fault != NumberFault::kNone || read.has_trailing_junk) return std::nullopt;
  return read.value;
}

std::optional<double> read_real(std::string_view text) noexcept {
  const auto read = read_prefix<double>(text, std::chars_format::general);
  if (read.fault != NumberFault::kNone || read.has_trailing_junk || !std::isfinite(read.value)) {
    return std::nullopt;
  }
  return read.value;
}

ReadNumber<std::uint64_t> read_like_stoull(std::string_view text) noexcept {
  const Sign sign = read_sign(text);
  ReadNumber<std::uint64_t> out = read_prefix<std::uint64_t>(sign.rest);
  out.has_wrapped = sign.is_negative && out.value != 0;
  if (sign.is_negative) out.value = std::uint64_t{0} - out.value;
  return out;
}

ReadNumber<std::uint64_t> read_like_stoi(std::string_view text) noexcept {
  constexpr std::uint64_t kMax = std::numeric_limits<int>::max();
  const Sign sign = read_sign(text);
  ReadNumber<std::uint64_t> out = read_prefix<std::uint64_t>(sign.rest);
  if (out.fault == NumberFault::kNone && out.value > kMax + (sign.is_negative ? 1 : 0)) {
    return {.fault = NumberFault::kOutOfRange};
  }
  out.has_wrapped = sign.is_negative && out.value != 0;
  if (sign.is_negative) out.value = std::uint64_t{0} - out.value;
  return out;
}

ReadNumber<double> read_like_stod(std::string_view text) noexcept {
  const Sign sign = read_sign(text);
  ReadNumber<double> out;
  if (is_hexadecimal(sign.rest)) {
    out = read_prefix<double>(sign.rest.substr(2), std::chars_format::hex);
  } else {
    out = read_prefix<double>(sign.rest, std::chars_format::general);
  }
  if (sign.is_negative) out.value = -out.value;
  return out;
}

}  // namespace headroom::memory::internal
