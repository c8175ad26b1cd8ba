// A pyramid of boxes, small on top, with a note beside each: how memory hierarchies are drawn.
//
//     ┌─────┐        size
//     │ L1d │      48KiB
//   ┌─┴─────┴─┐
//   │   L2    │    1.2MiB
//   └─────────┘
#pragma once

#include <span>
#include <string>

#include "headroom/report/terminal.h"

namespace headroom::report {

struct Rung {
  std::string label;
  std::string note;  // right of the box
};

// `header` stands over the notes, beside the first border. Lines are ended.
[[nodiscard]] std::string ladder(std::span<const Rung> rungs,
                                 const std::string& header,
                                 int indent,
                                 const Terminal& terminal);

// How wide the boxes are, without indent and notes.
[[nodiscard]] int ladder_width(std::span<const Rung> rungs);

}  // namespace headroom::report
