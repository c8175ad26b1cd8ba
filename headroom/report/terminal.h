// The terminal or file that text goes to: its width, its colours and its characters.
//
//   const Terminal out = detect_terminal(STDOUT_FILENO, ColorChoice::kAuto);
//   print(styled("does not fit", Tone::kBad, out));
//
// Everything else in report/ is a pure function of its input and a Terminal, so that tests give a
// Terminal of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::report {

enum class ColorChoice : std::uint8_t { kAuto, kAlways, kNever };

struct Terminal {
  int width = 80;  // columns
  bool is_terminal = false;
  bool has_color = false;
  bool has_unicode = true;  // box drawing and block characters may be used
};

// Looks at the file descriptor and the environment: COLUMNS, NO_COLOR, TERM, and LC_ALL, LC_CTYPE
// or LANG for the character set. Never fails: what is not a terminal is 80 columns wide.
[[nodiscard]] Terminal detect_terminal(int file_descriptor, ColorChoice choice);

// The meaning of a piece of text; the colours follow from it.
enum class Tone : std::uint8_t { kPlain, kStrong, kFaint, kAccent, kGood, kWarn, kBad };

// `text` unchanged where there is no colour.
[[nodiscard]] std::string styled(std::string_view text, Tone tone, const Terminal& terminal);

}  // namespace headroom::report
