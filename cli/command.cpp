#include "cli/command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "headroom/memory/account.h"
#include "headroom/report/text.h"

namespace headroom::cli {

void Context::print(std::string_view text) const {
  errno = 0;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  // Flushed at once: an error that waits for the end of the process would be lost.
  if (is_written && std::fflush(stdout) == 0) return;
  throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

void Context::say(std::string_view line) const {
  const std::string text = fmt::format("headroom: {}\n", report::printable(line));
  std::fwrite(text.data(), 1, text.size(), stderr);  // nowhere to say that this failed
}

void Context::progress(std::string_view line) const {
  if (!err.is_terminal) return;
  // Back to the first column, the text, and away with what is left of the line before.
  const std::string shown = report::shorten(report::printable(line), err.width - 1, err);
  const std::string text = fmt::format("\r{}\x1b[K", shown);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void Context::stage(std::string_view line) const {
  if (err.is_terminal) {
    progress(line);
  } else if (!line.empty()) {
    say(line);
  }
}

std::string Context::glossary() const {
  if (glossary_path.empty()) return {};
  return report::styled("Words: " + glossary_path, report::Tone::kFaint, out) + "\n";
}

std::string Context::with_glossary(std::string_view report) const {
  if (report.ends_with(memory::kWordsLine)) report.remove_suffix(memory::kWordsLine.size());
  while (report.ends_with('\n')) report.remove_suffix(1);
  return std::string(report) + "\n\n" + glossary();
}

std::string Context::next(std::string_view arguments, std::string_view why) const {
  const std::string command = fmt::format("{} {}", called_as, arguments);
  std::string line = report::styled("Next: ", report::Tone::kFaint, out) +
                     report::styled(command, report::Tone::kStrong, out);
  // Where there is no room for both, what to type is worth more than why.
  if (report::display_width(line) + 2 + report::display_width(why) <= out.width) {
    line += "  " + report::styled(why, report::Tone::kFaint, out);
  }
  return line + "\n";
}

}  // namespace headroom::cli
