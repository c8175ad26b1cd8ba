// Pickles by hand, for tests: pieces of bytes put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headroom/trace/pickle/pickle_reader.h"

namespace headroom::trace::testing {

// A literal with zeros in it.
template <std::size_t kSize>
[[nodiscard]] std::string raw(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

[[nodiscard]] inline std::string str(std::string_view text) {
  return "\x8c" + std::string(1, static_cast<char>(text.size())) + std::string(text);
}

[[nodiscard]] inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

[[nodiscard]] inline std::string number(std::uint64_t value) {
  return "\x8a\x09" + little_endian(value, 8) + std::string(1, '\0');
}

// A whole pickle around the bytes of one value.
[[nodiscard]] inline std::string pickle(const std::string& value, int protocol = 4) {
  return "\x80" + std::string(1, static_cast<char>(protocol)) + value + ".";
}

// A dictionary of keys and the bytes of their values, in turn.
template <class... Rest>
[[nodiscard]] std::string dict(const Rest&... keys_and_values) {
  std::string out = "}(";
  bool is_key = true;
  const auto add = [&](const std::string& text) {
    out += is_key ? str(text) : text;
    is_key = !is_key;
  };
  (add(keys_and_values), ...);
  return out + "u";
}

template <class... Rest>
[[nodiscard]] std::string list(const Rest&... items) {
  return (std::string("](") + ... + std::string(items)) + "e";
}

[[nodiscard]] inline FormatResult<Trace> parse(const std::string& bytes,
                                               std::string* note = nullptr) {
  return parse_pickle(std::as_bytes(std::span(bytes)), note);
}

[[nodiscard]] inline std::string error_of(const std::string& bytes) {
  const auto result = parse(bytes);
  return result ? "no error" : to_string(result.error());
}

// A snapshot with one entry, and one whose settings are the value.
[[nodiscard]] inline std::string with_entry(const std::string& entry) {
  return pickle(dict("segments", list(), "device_traces", list(list(entry))));
}
[[nodiscard]] inline std::string with_settings(const std::string& value, int protocol = 4) {
  return pickle(dict("segments", list(), "allocator_settings", value), protocol);
}

}  // namespace headroom::trace::testing
