// Arithmetic on sizes that a user gave, each at least 0: what takes more than 63 bits is said,
// never wrapped.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"

namespace headroom::tensor {

[[nodiscard]] constexpr std::optional<std::int64_t> as_size(
    std::optional<std::uint64_t> value) noexcept {
  if (!value || *value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

[[nodiscard]] constexpr std::optional<std::int64_t> size_sum(std::int64_t a,
                                                             std::int64_t b) noexcept {
  return as_size(checked_add(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

[[nodiscard]] constexpr std::optional<std::int64_t> size_product(std::int64_t a,
                                                                 std::int64_t b) noexcept {
  return as_size(checked_mul(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

// a / b rounded up, for b of at least 1; a + b - 1 would not always fit.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept {
  return a / b + static_cast<std::int64_t>(a % b > 0);
}

// A side with padding before and behind it. Throws InvalidArgument in the name of `op`.
[[nodiscard]] inline std::int64_t padded_size(std::string_view op,
                                              std::int64_t size,
                                              std::int64_t padding) {
  const auto twice = size_product(2, padding);
  const auto padded = twice ? size_sum(size, *twice) : std::nullopt;
  if (padded) return *padded;
  throw InvalidArgument(std::string(op) + ": a padding of " + std::to_string(padding) +
                        " makes a side of " + std::to_string(size) +
                        " longer than 64 bits can count");
}

}  // namespace headroom::tensor
