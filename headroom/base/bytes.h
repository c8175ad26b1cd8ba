// Sizes with units, read and printed: `512`, `20MiB`, `1.5GiB`. Units are binary and always named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/result.h"

namespace headroom {

// Not consteval: clang 14, and so clang-tidy, refuses that in a default argument.
inline namespace literals {
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10U; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20U; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30U; }
constexpr std::uint64_t operator""_TiB(unsigned long long n) { return n << 40U; }
}  // namespace literals

// Reads `512`, `512B`, `20MiB`, `1.5 GiB`; case and one space before the unit do not matter.
// Decimal units (`20MB`, `20M`) are refused, because people mean two different things by them.
// The error is a sentence that quotes `text` and says what to write.
[[nodiscard]] Result<std::uint64_t, std::string> parse_bytes(std::string_view text);

// Prints with at most two decimals, in the largest unit that keeps the number at or above one:
// 512 -> `512B`, 1536 -> `1.5KiB`, 150109880320 -> `139.8GiB`. parse_bytes reads it back.
[[nodiscard]] std::string format_bytes(std::uint64_t size_bytes);

// A unit as other programs write it in their messages, where MB means what MiB does.
struct ByteUnit {
  std::string_view name{};
  double bytes = 1;
};

// The unit that the text begins with: `bytes`, `B`, `KiB` to `TiB`, `KB` or `kB` to `TB`.
[[nodiscard]] std::optional<ByteUnit> leading_byte_unit(std::string_view text) noexcept;

// Prints with digit groups, where every byte matters: 20971520 -> `20,971,520`.
[[nodiscard]] std::string format_count(std::uint64_t count);

}  // namespace headroom
