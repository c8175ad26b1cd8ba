// Horizontal bars made of block characters, or of # and . where there are none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headroom/report/terminal.h"

namespace headroom::report {

// `fraction` of `width` columns, in eighths where the characters allow it, padded with spaces. More
// than nothing is never drawn as nothing.
[[nodiscard]] std::string bar(double fraction, int width, Tone tone, const Terminal& terminal);

// Where `value` lies between `low` and `high` on a logarithmic scale, from 0 to 1.
[[nodiscard]] double log_fraction(double value, double low, double high);

inline constexpr int kRestFill = -1;

struct BarPart {
  std::string label;
  std::uint64_t value = 0;
  Tone tone = Tone::kPlain;
  // The number of its fill, where parts may be left out and each is to look the same everywhere;
  // unset: its place among the parts, and the last is the rest.
  std::optional<int> fill{};
};

// The parts of a whole, one behind the other. The columns add up to `width` exactly; a part that is
// not zero gets one at least. Each part has a fill of its own, so that it reads without colour.
[[nodiscard]] std::string stacked_bar(std::span<const BarPart> parts,
                                      int width,
                                      const Terminal& terminal);

// `█ used 1.5GiB   ░ free 2GiB`: the fills of stacked_bar with the values as sizes.
[[nodiscard]] std::string legend(std::span<const BarPart> parts, const Terminal& terminal);

// The same in as many lines as it takes: none is wider than `width` that has several entries.
[[nodiscard]] std::vector<std::string> legend_lines(std::span<const BarPart> parts,
                                                    int width,
                                                    const Terminal& terminal);

}  // namespace headroom::report
