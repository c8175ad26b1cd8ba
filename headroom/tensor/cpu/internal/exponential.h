// exp for loops: without a branch or a call in f32, so that the compiler vectorises what is around
// it, and made of additions and products alone, so that every processor gives the same bits. Within
// one unit in the last place of f32; infinities, NaN and subnormal results are right.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace headroom::tensor::cpu {

[[nodiscard]] inline float power_of_two(std::int32_t n) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23U);
}

[[nodiscard]] inline float exponential(float x) noexcept {
  // Beyond these the result is 0 or infinity; NaN passes both comparisons.
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  // x = n ln 2 + r: adding and taking away 1.5 * 2^23 rounds to a whole number.
  const float n = (x * 1.44269504F + 12582912.0F) - 12582912.0F;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  // Cephes' polynomial for exp(r), |r| <= ln 2 / 2.
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // In two steps: one factor alone would leave the range before the result does.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

[[nodiscard]] inline double exponential(double x) noexcept { return std::exp(x); }

}  // namespace headroom::tensor::cpu
