// Arithmetic on sizes that says when it does not fit, instead of wrapping.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

namespace headroom {

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a,
                                                                 std::uint64_t b) noexcept {
  const std::uint64_t sum = a + b;
  return sum < a ? std::nullopt : std::optional(sum);
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a,
                                                                 std::uint64_t b) noexcept {
  if (a != 0 && b > UINT64_MAX / a) return std::nullopt;
  return a * b;
}

// Rounds up to a multiple of `step`, any positive number.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_round_up(std::uint64_t value,
                                                                      std::uint64_t step) noexcept {
  const std::uint64_t rest = value % step;
  return rest == 0 ? std::optional(value) : checked_add(value, step - rest);
}

// For values known to be far from 2^64, where a check would only hide the intent.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) noexcept {
  const std::uint64_t rest = value % step;
  return rest == 0 ? value : value + (step - rest);
}

[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t step) noexcept {
  return value - value % step;
}

// The largest number where the sum is too large, and 0 where the difference would be negative.
[[nodiscard]] constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  return checked_add(a, b).value_or(UINT64_MAX);
}
[[nodiscard]] constexpr std::uint64_t saturating_subtract(std::uint64_t a,
                                                          std::uint64_t b) noexcept {
  return a > b ? a - b : 0;
}

[[nodiscard]] constexpr bool is_power_of_two(std::uint64_t value) noexcept {
  return std::has_single_bit(value);
}

}  // namespace headroom
