#include "headroom/report/numbers.h"

#include <cmath>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace headroom::report {
namespace {

struct Scale {
  double factor;
  std::string_view unit;
};

// Rounded to `digits` significant digits without an exponent: 0.512, 5.3, 98, 1230.
std::string rounded(double value, int digits) {
  if (!std::isfinite(value)) return "?";
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  const double step = std::pow(10.0, magnitude - digits + 1);
  std::string text = fmt::format("{:.6f}", std::round(value / step) * step);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// The largest unit that keeps the number at or above one once it is rounded.
std::string scaled(double value, std::span<const Scale> scales, int digits) {
  const Scale* chosen = &scales.front();
  const double just_below_one = 1 - 0.5 * std::pow(10.0, -digits);
  for (const Scale& scale : scales) {
    if (value / scale.factor >= just_below_one) chosen = &scale;
  }
  const std::string number = rounded(value / chosen->factor, digits);
  return chosen->unit.empty() ? number : fmt::format("{} {}", number, chosen->unit);
}

}  // namespace

std::string format_rate(double bytes_per_second) {
  static constexpr Scale kScales[] = {
      {1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}};
  return scaled(bytes_per_second, kScales, 3);
}

std::string format_duration_ns(double nanoseconds) {
  static constexpr Scale kScales[] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
  return scaled(nanoseconds, kScales, nanoseconds < 100 ? 2 : 3);
}

std::string format_large(double count) {
  static constexpr Scale kScales[] = {
      {1, ""}, {1e6, "million"}, {1e9, "billion"}, {1e12, "trillion"}};
  return scaled(count, kScales, count < 1e6 ? 6 : 2);
}

std::string format_ratio(double ratio) { return rounded(ratio, 2); }

}  // namespace headroom::report
