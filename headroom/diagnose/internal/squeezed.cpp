#include "headroom/diagnose/internal/squeezed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace headroom::diagnose::internal {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60U;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Also NUL, which is every other byte of a log that PowerShell wrote (UTF-16).
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

// The line without colours and other escapes.
std::string without_escapes(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      if (line[i] != '\0') out += line[i];
      continue;
    }
    if (i + 1 >= line.size() || line[i + 1] != '[') {
      ++i;
      continue;
    }
    i += 2;
    while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
  }
  return out;
}

// --- What stands before a line -------------------------------------------------------------------

// The length of the first word.
std::size_t word_length(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if(text, is_blank) - text.begin());
}

// `21:48:54`, `2026-05-08`, `[2026-02-24T20:21:58Z]`, `07-29`, `[12345.678901]`: never a size.
bool is_time(std::string_view word) {
  const bool has_bracket = word.starts_with('[');
  if (has_bracket) word.remove_prefix(1);
  if (word.empty() || !is_digit(word.front())) return false;
  constexpr std::string_view kOther = ":-.,/+TZ]";
  const bool is_plain = std::ranges::all_of(
      word, [&](char c) { return is_digit(c) || kOther.find(c) != std::string_view::npos; });
  const auto colons = std::ranges::count(word, ':');
  const auto dashes = std::ranges::count(word, '-') + std::ranges::count(word, '/');
  return is_plain && (colons >= 2 || dashes >= 1 || (has_bracket && word.ends_with(']')));
}

// `train-1  | ` of docker compose.
std::size_t service_length(std::string_view text, std::string& label) {
  const std::string_view word = text.substr(0, word_length(text));
  const std::size_t number = word.find_last_of("-_");
  if (number == std::string_view::npos || number + 1 == word.size() || number == 0) return 0;
  if (!std::ranges::all_of(word.substr(number + 1), is_digit)) return 0;
  std::size_t bar = word.size();
  while (bar < text.size() && is_blank(text[bar])) ++bar;
  if (bar == word.size() || bar + 1 >= text.size() || text[bar] != '|' || text[bar + 1] != ' ') {
    return 0;
  }
  label = word;
  return bar + 1;
}

// `[1,3]<stderr>:` of mpirun --tag-output: job and rank.
std::size_t mpi_length(std::string_view text, std::string& label) {
  const std::size_t comma = text.find(',');
  const std::size_t end = text.find("]<std");
  constexpr std::size_t kLongest = 20;
  if (!text.starts_with('[') || end > kLongest || comma > end) return 0;
  const std::string_view rank = text.substr(comma + 1, end - comma - 1);
  const std::size_t colon = text.find(">:", end);
  const bool is_rank = !rank.empty() && std::ranges::all_of(rank, is_digit);
  if (!is_rank || colon == std::string_view::npos || colon > end + kLongest) return 0;
  label = "rank" + std::string(rank);
  return colon + 2;
}

// `[rank3]:`, `[default3]:` of torchrun; `3:` of srun --label; `(EngineCore pid=518)` of vLLM and
// Ray. The length with the name in `label`; 0 for anything else.
std::size_t speaker_length(std::string_view text, std::string& label) {
  for (const std::string_view start : {"[rank", "[default"}) {
    const std::size_t end = text.find("]:");
    if (!text.starts_with(start) || end == std::string_view::npos || end > start.size() + 6) {
      continue;
    }
    label = "rank" + std::string(text.substr(start.size(), end - start.size()));
    return end + 2;
  }
  for (const auto length : {service_length(text, label), mpi_length(text, label)}) {
    if (length > 0) return length;
  }
  constexpr std::size_t kLongest = 80;
  if (text.starts_with('(')) {
    const std::size_t end = text.substr(0, kLongest).find(')');
    const std::string_view inside = text.substr(1, end == std::string_view::npos ? 0 : end - 1);
    if (inside.find("pid=") == std::string_view::npos) return 0;
    label = inside;
    return end + 1;
  }
  const std::string_view word = text.substr(0, word_length(text));
  const bool is_task = word.size() >= 2 && word.size() <= 6 && word.ends_with(':') &&
                       std::ranges::all_of(word.substr(0, word.size() - 1), is_digit);
  if (!is_task) return 0;
  label = "rank" + std::string(word.substr(0, word.size() - 1));
  return word.size();
}

// Past a time, a level, a place in the source: what a logger writes.
std::size_t logger_length(std::string_view text) {
  const std::string_view word = text.substr(0, word_length(text));
  if (is_time(word)) return word.size();
  for (const std::string_view level : {"DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL"}) {
    if (word == level) return word.size();
  }
  const bool is_place =
      word.starts_with('[') && word.ends_with(']') &&
      (word.find(".py:") != std::string_view::npos || word.find(".cc:") != std::string_view::npos ||
       word.find(".cpp:") != std::string_view::npos);
  return is_place ? word.size() : 0;
}

std::string_view without_prefixes(std::string_view line, std::string& label) {
  for (;;) {
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    std::size_t length = speaker_length(line, label);
    if (length == 0) length = logger_length(line);
    if (length == 0) return line;
    line.remove_prefix(length);
  }
}

// A shell says `Killed`, or `run.sh: line 3: 4711 Killed   python train.py`; Python ends with
// `MemoryError` alone.
std::string_view word_of(std::string_view line) {
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  if (line == "Killed") return "Killed";
  if (line == "MemoryError" || line.starts_with("MemoryError:")) return "MemoryError";
  const std::size_t at = line.find(" Killed ");
  if (at != std::string_view::npos && at > 0 && is_digit(line[at - 1])) return "Killed";
  return {};
}

}  // namespace

std::string_view Squeezed::speaker_at(std::size_t at) const {
  const auto after = std::ranges::upper_bound(speakers, at, {}, &Speaker::at);
  return after == speakers.begin() ? std::string_view() : std::prev(after)->label;
}

Squeezed squeeze(std::string_view log) {
  Squeezed out;
  out.text.reserve(log.size());
  for (std::size_t from = 0; from < log.size();) {
    const std::size_t end = std::min(log.find('\n', from), log.size());
    const std::string clean = without_escapes(log.substr(from, end - from));
    from = end + 1;
    std::string label;
    const std::string_view line = without_prefixes(clean, label);
    // A line without a name goes on with what the last one said: it may have been broken.
    if (!label.empty() && (out.speakers.empty() || out.speakers.back().label != label)) {
      out.speakers.push_back({.at = out.text.size(), .label = std::move(label)});
    }
    const std::string_view word = word_of(line);
    if (!word.empty()) out.words.push_back({.at = out.text.size(), .word = word});
    for (const char c : line) {
      if (!is_blank(c)) out.text += c;
    }
  }
  return out;
}

std::optional<SizeText> leading_size(std::string_view text) {
  std::string digits;
  std::size_t length = 0;
  constexpr std::size_t kLongest = 40;
  while (length < std::min(text.size(), kLongest) &&
         (is_digit(text[length]) || text[length] == '.' || text[length] == ',')) {
    if (text[length] != ',') digits += text[length];
    ++length;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(
      digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 15> kNames{Unit{"bytes", 1},
                                        Unit{"KiB", 0x1p10},
                                        Unit{"MiB", 0x1p20},
                                        Unit{"GiB", 0x1p30},
                                        Unit{"TiB", 0x1p40},
                                        Unit{"kB", 0x1p10},
                                        Unit{"KB", 0x1p10},
                                        Unit{"MB", 0x1p20},
                                        Unit{"GB", 0x1p30},
                                        Unit{"TB", 0x1p40},
                                        Unit{"B", 1},
                                        Unit{"K", 0x1p10},
                                        Unit{"M", 0x1p20},
                                        Unit{"G", 0x1p30},
                                        Unit{"T", 0x1p40}};
  for (const Unit& unit : kNames) {
    if (!text.substr(length).starts_with(unit.name)) continue;
    const double bytes = value * unit.bytes;
    return SizeText{
        .bytes = bytes >= 0x1p60 ? kMostBytes : static_cast<std::uint64_t>(std::llround(bytes)),
        .length = length + unit.name.size()};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> size_behind(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  const auto size = leading_size(text.substr(at + words.size()));
  return size ? std::optional(size->bytes) : std::nullopt;
}

}  // namespace headroom::diagnose::internal
