#include "headroom/base/tick_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headroom {
namespace {

bool ask_processor() noexcept {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariantCounter = 1U << 8U;
  if (__get_cpuid(kPowerManagement, &a, &b, &c, &d) == 0) return false;
  if ((d & kInvariantCounter) != 0) return true;
  // Virtual machines often hide that flag. Their counter is that of the host, whose system would
  // not run them on an unsteady one; what asks for the time there may cost a microsecond.
  constexpr unsigned kHypervisor = 1U << 31U;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kHypervisor) != 0;
#else
  return false;
#endif
}

}  // namespace

bool has_steady_counter() noexcept {
  static const bool answer = ask_processor();
  return answer;
}

std::uint64_t ticks() noexcept {
  if (has_steady_counter()) return counter_ticks();
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

TickClock::TickClock() noexcept : start_(read_first()) { adjust(); }

TickClock::Reading TickClock::read_first() noexcept {
  static const Reading first = read();
  return first;
}

// A thread may be interrupted between the clocks; of some tries the quickest was not.
TickClock::Reading TickClock::read() noexcept {
  Reading best;
  std::uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = ticks();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::uint64_t passed = ticks() - before;
    if (passed >= shortest) continue;
    shortest = passed;
    best = {.ticks = before + passed / 2,
            .time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()};
  }
  return best;
}

void TickClock::adjust() noexcept {
  // Steady_clock's ticks are nanoseconds; only the counter's length has to be found.
  if (!has_steady_counter()) return;
  const Reading now = read();
  const std::uint64_t passed = now.ticks - start_.ticks;
  // A clock that was set back makes no line; the last one stands.
  if (passed == 0 || now.time_ns <= start_.time_ns) return;
  ns_per_tick_ = static_cast<double>(now.time_ns - start_.time_ns) / static_cast<double>(passed);
}

std::int64_t TickClock::time_us(std::uint64_t at) const noexcept {
  const auto passed = static_cast<double>(static_cast<std::int64_t>(at - start_.ticks));
  return (start_.time_ns + static_cast<std::int64_t>(passed * ns_per_tick_)) / 1000;
}

}  // namespace headroom
