#include "headroom/base/env.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom {
namespace {

std::string complaint(const char* name, std::string_view found, std::string_view expected) {
  std::string out = name;
  out.append("='").append(found).append("': expected ").append(expected);
  return out;
}

}  // namespace

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

EnvResult<std::uint64_t> env_bytes(const char* name) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::optional<std::uint64_t>{};
  const auto parsed = parse_bytes(*text);
  if (!parsed) return Unexpected(std::string(name) + ": " + parsed.error());
  return std::optional(*parsed);
}

EnvResult<std::int64_t> env_int(const char* name, std::int64_t low, std::int64_t high) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::optional<std::int64_t>{};
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) {
    return Unexpected(complaint(
        name, *text, "a whole number from " + std::to_string(low) + " to " + std::to_string(high)));
  }
  return std::optional(value);
}

EnvResult<bool> env_flag(const char* name) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::optional<bool>{};
  std::string lower = *text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  constexpr std::array<std::string_view, 4> kOn{"1", "true", "yes", "on"};
  constexpr std::array<std::string_view, 4> kOff{"0", "false", "no", "off"};
  if (std::ranges::find(kOn, lower) != kOn.end()) return std::optional(true);
  if (std::ranges::find(kOff, lower) != kOff.end()) return std::optional(false);
  return Unexpected(complaint(name, *text, "1 or 0"));
}

}  // namespace headroom
