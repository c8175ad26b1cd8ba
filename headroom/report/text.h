// Text measured in terminal columns rather than bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/report/terminal.h"

namespace headroom::report {

enum class Align : std::uint8_t { kLeft, kRight, kCenter };

// Columns the text takes: UTF-8 is decoded, wide characters count two, combining marks and colour
// escapes none, a broken byte one.
[[nodiscard]] int display_width(std::string_view text);

// Adds spaces up to `width` columns; longer text is left as it is.
[[nodiscard]] std::string pad(std::string_view text, int width, Align align = Align::kLeft);

// At most `width` columns; what was cut is marked with an ellipsis. For text without colour.
[[nodiscard]] std::string shorten(std::string_view text, int width, const Terminal& terminal);

// Breaks at spaces; a word that is too long stands alone. For text without colour.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, int width);

// The same as one text, each line behind `indent` spaces and ended.
[[nodiscard]] std::string wrapped(std::string_view text, int indent, int width);

// Control characters become '?' and line breaks spaces: a file or a process may be called
// anything, and must not move the cursor or break a message in two.
[[nodiscard]] std::string printable(std::string_view text);

// `text` `count` times.
[[nodiscard]] std::string repeated(std::string_view text, int count);

}  // namespace headroom::report
