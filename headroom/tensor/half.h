// Half and BFloat16: 16-bit numbers that are stored, not computed with. Both conversions are exact
// where the value is representable and round to nearest even where it is not, NaN and subnormal
// numbers included, so every processor gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace headroom {

namespace internal {

// Without branches, so that loops over it are vectorised (after Fabian Giesen's float_to_half).
[[nodiscard]] constexpr std::uint16_t half_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // A subnormal half: adding 0.5 moves its mantissa to the low bits, rounded as the adder does.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + odd) >> 13U;
  std::uint32_t out = magnitude < 0x38800000U ? subnormal : normal;
  out = magnitude >= 0x477FF000U ? 0x7C00U : out;  // rounds to infinity
  out = magnitude > 0x7F800000U ? 0x7E00U : out;
  return static_cast<std::uint16_t>(out | sign);
}

[[nodiscard]] constexpr float half_value(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t magnitude = half & 0x7FFFU;
  const std::uint32_t normal = (magnitude << 13U) + 0x38000000U;
  const float subnormal = std::bit_cast<float>((magnitude << 13U) + 0x38800000U) - 0x1p-14F;
  std::uint32_t out = magnitude < 0x400U ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  out = magnitude >= 0x7C00U ? (magnitude << 13U) | 0x7F800000U : out;
  return std::bit_cast<float>(out | sign);
}

[[nodiscard]] constexpr std::uint16_t bfloat16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16U) | 0x40U : rounded);
}

}  // namespace internal

struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit constexpr Half(float value) noexcept : bits(internal::half_bits(value)) {}
  // By way of float: rounding twice, once more exact than needed, as hardware without f64 does.
  explicit constexpr Half(double value) noexcept : Half(static_cast<float>(value)) {}
  explicit constexpr operator float() const noexcept { return internal::half_value(bits); }
  friend bool operator==(const Half&, const Half&) = default;  // of the bits
};

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) noexcept : bits(internal::bfloat16_bits(value)) {}
  explicit constexpr BFloat16(double value) noexcept : BFloat16(static_cast<float>(value)) {}
  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  friend bool operator==(const BFloat16&, const BFloat16&) = default;
};

}  // namespace headroom
