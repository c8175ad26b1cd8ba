// Fingerprint: many numbers as one, so that two states can be told apart without keeping both.
//
//   Fingerprint print;
//   for (const Block& block : blocks) print.add(block.size).add(block.is_free);
//   print.value();
//
// Not against an attacker; by chance, two different states agree once in 2^64.
#pragma once

#include <bit>
#include <cstdint>

namespace headroom {

class Fingerprint {
 public:
  Fingerprint& add(std::uint64_t number) noexcept {
    value_ = std::rotl(value_ ^ mixed(number + kStep), 27) * kStep + kStep;
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return mixed(value_); }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio, odd

  // SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): every bit depends on every other.
  [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

  std::uint64_t value_ = kStep;
};

}  // namespace headroom
