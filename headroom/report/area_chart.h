// Two quantities over time as filled areas, one behind the other: what is used before what is held.
//
//   4GiB ┤      ░░░░░░░░░░
//        │   ▂▄░░░▇█░░▂▄▆░
//     0B ┼▁▄███████████████
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/report/terminal.h"

namespace headroom::report {

struct AreaChart {
  std::vector<double> front{};  // one value for each column
  std::vector<double> back{};   // the same, or empty
  std::string top_label{};      // of the highest value, at the axis
  std::string bottom_label{};   // of zero
  int height = 8;               // lines
  double highest = 0;           // the least that the scale goes to: one for several charts
};

// Lines, ended, with the axis on the left; as wide as the labels, two columns and the values. The
// scale goes from zero to the highest value. More than nothing is never drawn as nothing.
[[nodiscard]] std::string area_chart(const AreaChart& chart, int indent, const Terminal& terminal);

// The characters of `front` and of `back`, for a legend.
[[nodiscard]] std::string_view front_fill(const Terminal& terminal);
[[nodiscard]] std::string_view back_fill(const Terminal& terminal);

// `values` as `columns` values: the highest of those that fall together, or each several times.
[[nodiscard]] std::vector<double> resampled(const std::vector<double>& values, int columns);

}  // namespace headroom::report
