// Time at the cost of a few ns: the processor's counter where it is steady, else the system's
// clock.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace headroom::trace::internal {

// Whether ticks come from the processor. Asked once.
[[nodiscard]] bool has_steady_counter() noexcept;

[[nodiscard]] inline std::uint64_t ticks(bool is_counter) noexcept {
#if defined(__x86_64__)
  if (is_counter) return __rdtsc();
#endif
  (void)is_counter;
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// From ticks to microseconds since 1970. Two readings of both clocks make a line, and all that is
// recorded lies between them or a little beyond.
class TickClock {
 public:
  explicit TickClock(bool is_counter) noexcept;

  // Takes the second reading anew. Times converted before it are off by the little that the line
  // turned.
  void adjust() noexcept;
  [[nodiscard]] std::int64_t time_us(std::uint64_t ticks) const noexcept;

 private:
  struct Reading {
    std::uint64_t ticks = 0;
    std::int64_t time_ns = 0;
  };
  [[nodiscard]] Reading read() const noexcept;

  bool is_counter_;
  Reading start_;
  double ns_per_tick_ = 1;
};

}  // namespace headroom::trace::internal
