#include "headroom/base/tick_clock.h"

#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace headroom {
namespace {

std::int64_t system_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

TEST(TickClock, ReadsAsTheSystemsClock) {
  TickClock clock;
  const std::int64_t before = system_us();
  const std::uint64_t at = ticks();
  const std::int64_t after = system_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  clock.adjust();
  constexpr std::int64_t kOffUs = 20'000;  // another program may have had the processor
  EXPECT_GE(clock.time_us(at), before - kOffUs);
  EXPECT_LE(clock.time_us(at), after + kOffUs);
}

TEST(TickClock, RunsOn) {
  TickClock clock;
  const std::uint64_t first = ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const std::uint64_t second = ticks();
  clock.adjust();
  const std::int64_t passed_us = clock.time_us(second) - clock.time_us(first);
  EXPECT_GE(passed_us, 25'000);
}

}  // namespace
}  // namespace headroom
