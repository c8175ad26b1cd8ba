#include "headroom/report/bar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

namespace headroom::report {
namespace {

std::string_view fill_of(std::span<const BarPart> parts,
                         std::size_t place,
                         const Terminal& terminal) {
  constexpr std::array<std::string_view, 7> kBlocks{"█", "▓", "▒", "▚", "▌", "▀", "◆"};
  constexpr std::array<std::string_view, 7> kSigns{"#", "=", "+", "-", "*", "o", "%"};
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const bool is_last = parts.size() > 1 && place + 1 == parts.size();
  const int chosen = parts[place].fill.value_or(is_last ? kRestFill : static_cast<int>(place));
  if (chosen == kRestFill) return terminal.has_unicode ? "░" : ".";
  const auto part = static_cast<std::size_t>(chosen);
  if (part < kBlocks.size()) return terminal.has_unicode ? kBlocks[part] : kSigns[part];
  return kLetters.substr((part - kBlocks.size()) % kLetters.size(), 1);
}

// Takes columns from the widest until they add up, or gives the widest what is missing: there an
// error shows least.
void settle(std::vector<int>& columns, int width) {
  int sum = 0;
  for (const int c : columns) sum += c;
  while (sum != width) {
    const auto widest = std::ranges::max_element(columns);
    if (sum > width && *widest <= 1) return;  // more parts than columns
    *widest += sum > width ? -1 : 1;
    sum += sum > width ? -1 : 1;
  }
}

}  // namespace

std::string bar(double fraction, int width, Tone tone, const Terminal& terminal) {
  constexpr std::array<std::string_view, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double clamped = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const double columns = clamped * width;
  std::string out;
  if (terminal.has_unicode) {
    auto eighths = static_cast<int>(std::lround(columns * 8));
    if (eighths == 0 && clamped > 0) eighths = 1;
    out = repeated("█", eighths / 8);
    out.append(kEighths[static_cast<std::size_t>(eighths % 8)]);
  } else {
    auto whole = static_cast<int>(std::lround(columns));
    if (whole == 0 && clamped > 0) whole = 1;
    out = repeated("#", whole);
  }
  return pad(styled(out, tone, terminal), width);
}

double log_fraction(double value, double low, double high) {
  if (!(value > 0) || !(low > 0) || !(high > low)) return value > 0 ? 1 : 0;
  return std::clamp(std::log(value / low) / std::log(high / low), 0.0, 1.0);
}

std::string stacked_bar(std::span<const BarPart> parts, int width, const Terminal& terminal) {
  double total = 0;
  for (const BarPart& part : parts) total += static_cast<double>(part.value);
  if (parts.empty() || total == 0) return repeated(" ", width);
  std::vector<int> columns;
  for (const BarPart& part : parts) {
    const double share = static_cast<double>(part.value) / total;
    const auto exact = static_cast<int>(std::lround(share * width));
    columns.push_back(part.value > 0 ? std::max(1, exact) : 0);
  }
  settle(columns, width);
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string cells = repeated(fill_of(parts, i, terminal), columns[i]);
    out += styled(cells, parts[i].tone, terminal);
  }
  return out;
}

std::string legend(std::span<const BarPart> parts, const Terminal& terminal) {
  const auto lines = legend_lines(parts, std::numeric_limits<int>::max(), terminal);
  return lines.empty() ? "" : lines.front();
}

std::vector<std::string> legend_lines(std::span<const BarPart> parts,
                                      int width,
                                      const Terminal& terminal) {
  constexpr std::string_view kGap = "   ";
  std::vector<std::string> lines;
  int used = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string entry = styled(fill_of(parts, i, terminal), parts[i].tone, terminal) + " " +
                              parts[i].label + " " + format_bytes(parts[i].value);
    const int columns = display_width(entry);
    if (lines.empty() || columns + static_cast<int>(kGap.size()) > width - used) {
      lines.push_back(entry);
      used = columns;
    } else {
      lines.back().append(kGap).append(entry);
      used += static_cast<int>(kGap.size()) + columns;
    }
  }
  return lines;
}

}  // namespace headroom::report
