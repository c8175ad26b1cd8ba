#include "headroom/report/terminal.h"

#include <algorithm>
#include <optional>
#include <sys/ioctl.h>
#include <unistd.h>

#include "headroom/base/env.h"

namespace headroom::report {
namespace {

// A window dragged narrower than this wraps; no layout is made for it.
constexpr int kNarrowest = 40;
constexpr int kWidest = 1000;
constexpr int kUsualWidth = 80;

int detect_width(int file_descriptor) {
  // As in the shell's own tools, COLUMNS is a wish and stands above what the terminal says. Garbage
  // in it is not ours to complain about.
  if (const auto columns = env_int("COLUMNS", 1, kWidest); columns && columns.value()) {
    return std::max(kNarrowest, static_cast<int>(*columns.value()));
  }
  winsize size{};
  if (ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::clamp(static_cast<int>(size.ws_col), kNarrowest, kWidest);
  }
  return kUsualWidth;
}

bool detect_color(bool is_terminal, ColorChoice choice) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  return is_terminal && !env_string("NO_COLOR") && env_string("TERM") != "dumb";
}

// The variables are read rather than setlocale(): a library must not change the process's locale.
bool detect_unicode() {
  std::optional<std::string> locale = env_string("LC_ALL");
  if (!locale) locale = env_string("LC_CTYPE");
  if (!locale) locale = env_string("LANG");
  if (!locale) return false;
  std::string letters;
  for (const char c : *locale) {
    if (c != '-') letters += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return letters.find("utf8") != std::string::npos;
}

std::string_view escape(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kStrong:
      return "\x1b[1m";
    case Tone::kFaint:
      return "\x1b[2m";
    case Tone::kAccent:
      return "\x1b[36m";
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kWarn:
      return "\x1b[33m";
    case Tone::kBad:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

Terminal detect_terminal(int file_descriptor, ColorChoice choice) {
  const bool is_terminal = isatty(file_descriptor) == 1;
  return {.width = detect_width(file_descriptor),
          .is_terminal = is_terminal,
          .has_color = detect_color(is_terminal, choice),
          .has_unicode = detect_unicode()};
}

std::string styled(std::string_view text, Tone tone, const Terminal& terminal) {
  const std::string_view start = escape(tone);
  std::string out;
  if (!terminal.has_color || start.empty() || text.empty()) return out.append(text);
  return out.append(start).append(text).append("\x1b[0m");
}

}  // namespace headroom::report
