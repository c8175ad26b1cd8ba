#include "cli/input/trace_input.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/diagnose/oom_message.h"
#include "headroom/report/text.h"

namespace headroom::cli {

using trace::Format;

namespace {

// The text of a log that doctor reads; unset for anything else.
std::optional<std::string> log_text(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  constexpr std::size_t kMostRead = 16_MiB;
  std::string text(kMostRead, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  // Recordings, plain or packed, begin with bytes that no text has.
  if (text.find('\0') != std::string::npos || text.starts_with('\x80')) return std::nullopt;
  return text;
}

// Why it is no recording, and which command reads it.
std::string what_it_is(const std::string& path, const std::string& reason, const Context& context) {
  std::error_code ignored;
  if (path == "-" && !std::filesystem::exists(path, ignored)) {
    return "-: a recording is not read from standard input; name its file, or /dev/stdin behind a "
           "pipe";
  }
  if (const auto text = log_text(path); text && diagnose::read_oom_log(*text)) {
    return fmt::format(
        "{0}: it is a log with out-of-memory messages, not a recording; '{1} doctor {2}' explains "
        "them",
        path,
        context.called_as,
        shell_word(path));
  }
  return fmt::format("{}: {}", path, reason);
}

}  // namespace

trace::TraceFile read_input(const std::string& path, const Context& context) {
  auto file = trace::read_trace(path, {.progress = show_progress("reading " + path, context)});
  context.progress("");
  if (!file) throw Error(what_it_is(path, to_string(file.error()), context));
  return *std::move(file);
}

trace::Progress show_progress(std::string doing, const Context& context) {
  if (!context.err.is_terminal) return {};
  auto shown = std::make_shared<int>(-1);
  return [doing = std::move(doing), shown, &context](double part) {
    const int percent = static_cast<int>(std::clamp(part, 0.0, 1.0) * 100);
    if (percent == *shown) return;
    *shown = percent;
    context.progress(fmt::format("{} ... {} %", doing, percent));
  };
}

std::string_view format_title(Format format) noexcept {
  switch (format) {
    case Format::kPickle:
      return "PyTorch snapshot";
    case Format::kHrt:
      return "headroom recording";
    case Format::kPerfetto:
      return "Perfetto timeline";
    case Format::kSpeedscope:
      return "speedscope profile";
    case Format::kCsv:
      return "lines of events";
  }
  return "";
}

std::string_view format_id(Format format) noexcept {
  switch (format) {
    case Format::kPickle:
      return "pickle";
    case Format::kHrt:
      return "hrt";
    case Format::kPerfetto:
      return "perfetto";
    case Format::kSpeedscope:
      return "speedscope";
    case Format::kCsv:
      return "csv";
  }
  return "";
}

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+=:,@%").find(c) != std::string_view::npos ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  std::string shown = report::printable(text);
  if (!shown.empty() && std::ranges::all_of(shown, is_plain)) return shown;
  std::string out = "'";
  for (const char c : shown) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string without_endings(std::string_view path) {
  for (const std::string_view ending : {".zst", ".pickle", ".pkl", ".hrt"}) {
    const bool has_more = file_name(path).size() > ending.size();
    if (has_more && path.ends_with(ending)) path.remove_suffix(ending.size());
  }
  return std::string(path);
}

}  // namespace headroom::cli
