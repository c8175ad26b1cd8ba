// The two kinds of terminal that drawings are made for.
#pragma once

#include "headroom/report/terminal.h"

namespace headroom::report {

inline constexpr Terminal kUnicode{.has_unicode = true};
inline constexpr Terminal kAscii{.has_unicode = false};

}  // namespace headroom::report
