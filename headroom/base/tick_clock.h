// Time at the cost of a few ns: the processor's counter where it is steady, else the system's
// clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace headroom {

// Whether ticks come from the processor. Asked once.
[[nodiscard]] bool has_steady_counter() noexcept;

// Only where has_steady_counter().
[[nodiscard]] inline std::uint64_t counter_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

// From whichever there is.
[[nodiscard]] std::uint64_t ticks() noexcept;

// From ticks to microseconds since 1970. Two readings of both clocks make a line, and all that is
// recorded lies between them or a little beyond. The first is the same for the whole process, so
// that what two recorders saw at one time has one time.
class TickClock {
 public:
  TickClock() noexcept;

  // Takes the second reading anew. Times converted before it are off by the little that the line
  // turned.
  void adjust() noexcept;
  [[nodiscard]] std::int64_t time_us(std::uint64_t ticks) const noexcept;

 private:
  struct Reading {
    std::uint64_t ticks = 0;
    std::int64_t time_ns = 0;
  };
  [[nodiscard]] static Reading read() noexcept;
  [[nodiscard]] static Reading read_first() noexcept;

  Reading start_;
  double ns_per_tick_ = 1;
};

}  // namespace headroom
