// Random: numbers that depend on a seed and on how many were drawn, and on nothing else.
//
// Integers only: the same seed makes the same traffic on every machine and with every compiler.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::bench {

class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : seed_(mixed(seed + kStep)) {}

  std::uint64_t next() noexcept { return mixed(seed_ + ++drawn_ * kStep); }
  // Below `count`, which is not 0. The bias is count / 2^64.
  std::uint64_t below(std::uint64_t count) noexcept { return next() % count; }
  // Both ends included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
    return low + below(high - low + 1);
  }
  [[nodiscard]] bool chance(std::uint64_t percent) noexcept { return below(100) < percent; }

  // Every power of two between the ends is as likely as the next: as many small as large sizes.
  std::uint64_t by_octaves(std::uint64_t low, std::uint64_t high) noexcept {
    const auto octaves = static_cast<std::uint64_t>(std::bit_width(high / low));
    return in_octave(low, high, below(octaves));
  }
  // Each octave is half as likely as the one below it: few are large, and those hold as many bytes.
  std::uint64_t heavy_tailed(std::uint64_t low, std::uint64_t high) noexcept {
    const auto octaves = static_cast<std::uint64_t>(std::bit_width(high / low));
    std::uint64_t octave = 0;
    while (octave + 1 < octaves && chance(50)) ++octave;
    return in_octave(low, high, octave);
  }

  template <class T>
  void shuffle(std::vector<T>& all) noexcept {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio, odd

  std::uint64_t in_octave(std::uint64_t low, std::uint64_t high, std::uint64_t octave) noexcept {
    const std::uint64_t from = low << octave;
    return between(from, from > high / 2 ? high : 2 * from - 1);
  }

  // SplitMix64's finalizer.
  [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

}  // namespace headroom::bench
