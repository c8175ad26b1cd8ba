// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): 128 random
// bits as a function of a key and a counter.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/tensor/element_args.h"

namespace headroom::tensor::cpu {

[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                                            std::uint64_t counter,
                                                            std::uint64_t stream = 0) noexcept {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter),
                                 static_cast<std::uint32_t>(counter >> 32U),
                                 static_cast<std::uint32_t>(stream),
                                 static_cast<std::uint32_t>(stream >> 32U)};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ k0,
         static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ k1,
         static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

// Where a random op draws, with what is in device memory read.
[[nodiscard]] inline RandomSource resolved(const RandomSource& source) noexcept {
  if (source.state == nullptr) return source;
  return {.seed = source.state[0], .offset = source.state[1] + source.offset};
}

// The upper half of a 128-bit product.
[[nodiscard]] constexpr std::uint64_t high_product(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t a_low = a & 0xFFFFFFFFU;
  const std::uint64_t a_high = a >> 32U;
  const std::uint64_t b_low = b & 0xFFFFFFFFU;
  const std::uint64_t b_high = b >> 32U;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32U);
  const std::uint64_t other = a_low * b_high + (middle & 0xFFFFFFFFU);
  return a_high * b_high + (middle >> 32U) + (other >> 32U);
}

}  // namespace headroom::tensor::cpu
