#include "headroom/diagnose/internal/squeezed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/diagnose/internal/plain_text.h"

namespace headroom::diagnose::internal {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60U;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

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
  const bool is_uptime = has_bracket && word.ends_with(']') && word.find('.') != word.npos;
  return is_plain && (colons >= 2 || dashes >= 1 || is_uptime);
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

// `[pod/train-0/main] ` of kubectl logs --prefix.
std::size_t pod_length(std::string_view text, std::string& label) {
  constexpr std::string_view kPod = "[pod/";
  constexpr std::size_t kLongest = 300;
  const std::size_t end = text.substr(0, kLongest).find(']');
  if (!text.starts_with(kPod) || end == std::string_view::npos) return 0;
  label = text.substr(kPod.size(), end - kPod.size());
  return end + 1;
}

// `3:` of srun --label.
std::size_t task_length(std::string_view text) {
  const std::string_view word = text.substr(0, word_length(text));
  const bool is_task = word.size() >= 2 && word.size() <= 6 && word.ends_with(':') &&
                       std::ranges::all_of(word.substr(0, word.size() - 1), is_digit);
  return is_task ? word.size() : 0;
}

// Whether srun wrote it: then most lines have it, and what a terminal broke begins with `2:` by
// chance only.
bool has_tasks_before_lines(std::string_view log) {
  std::size_t lines = 0;
  std::size_t tasks = 0;
  for (std::size_t from = 0; from < log.size();) {
    const std::size_t end = std::min(log.find('\n', from), log.size());
    std::string_view line = log.substr(from, end - from);
    from = end + 1;
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    if (line.empty()) continue;
    ++lines;
    if (task_length(line) > 0) ++tasks;
  }
  return tasks > 0 && (tasks == lines || (tasks > 1 && tasks * 2 >= lines));
}

// `[rank3]:`, `[default3]:` of torchrun; `3:` of srun --label; `(EngineCore pid=518)` of vLLM and
// Ray. The length with the name in `label`; 0 for anything else.
std::size_t speaker_length(std::string_view text, bool has_tasks, std::string& label) {
  for (const std::string_view start : {"[rank", "[default"}) {
    const std::size_t end = text.find("]:");
    if (!text.starts_with(start) || end == std::string_view::npos || end > start.size() + 6) {
      continue;
    }
    label = "rank" + std::string(text.substr(start.size(), end - start.size()));
    return end + 2;
  }
  for (const auto length :
       {service_length(text, label), mpi_length(text, label), pod_length(text, label)}) {
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
  const std::size_t task = has_tasks ? task_length(text) : 0;
  if (task > 0) label = "rank" + std::string(text.substr(0, task - 1));
  return task;
}

// `Oct 14 21:11:05 node7 python3[4711]: ` of journalctl and of syslog.
std::size_t journal_length(std::string_view text) {
  constexpr std::array<std::string_view, 12> kMonths{
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<std::string_view, 5> words{};
  std::size_t at = 0;
  for (std::string_view& word : words) {
    while (at < text.size() && is_blank(text[at])) ++at;
    word = text.substr(at, word_length(text.substr(at)));
    at += word.size();
  }
  const bool is_journal = std::ranges::find(kMonths, words[0]) != kMonths.end() &&
                          !words[1].empty() && std::ranges::all_of(words[1], is_digit) &&
                          is_time(words[2]) && words[4].ends_with(':');
  return is_journal ? at : 0;
}

// `stderr F ` of a container's log, as Kubernetes keeps it.
std::size_t stream_length(std::string_view text) {
  for (const std::string_view start : {"stdout F ", "stderr F ", "stdout P ", "stderr P "}) {
    if (text.starts_with(start)) return start.size();
  }
  return 0;
}

// `__main__:main:12 - ` of loguru.
std::size_t function_length(std::string_view text) {
  const std::string_view word = text.substr(0, word_length(text));
  const std::size_t colon = word.rfind(':');
  const bool is_place = std::ranges::count(word, ':') == 2 && colon + 1 < word.size() &&
                        std::ranges::all_of(word.substr(colon + 1), is_digit);
  return is_place && text.substr(word.size()).starts_with(" - ") ? word.size() + 3 : 0;
}

// `> ` of a quoted mail or issue, `| ` of a table.
std::size_t quote_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && text[length] == '>') ++length;
  if (length == 0 && text.starts_with('|')) length = 1;
  return length == text.size() || (length > 0 && is_blank(text[length])) ? length : 0;
}

// Past a time, a level, a place in the source: what a logger writes.
std::size_t logger_length(std::string_view text) {
  const std::string_view word = text.substr(0, word_length(text));
  if (is_time(word)) return word.size();
  for (const std::size_t length :
       {journal_length(text), quote_length(text), stream_length(text), function_length(text)}) {
    if (length > 0) return length;
  }
  for (const std::string_view level : {"DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL"}) {
    if (word == level) return word.size();
  }
  const bool is_place =
      word.starts_with('[') && word.ends_with(']') &&
      (word.find(".py:") != std::string_view::npos || word.find(".cc:") != std::string_view::npos ||
       word.find(".cpp:") != std::string_view::npos);
  return is_place ? word.size() : 0;
}

std::string_view without_blanks(std::string_view line) {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  return line;
}

// The rest of a line behind its time; unset where it has none.
std::optional<std::string_view> behind_time(std::string_view line) {
  line = without_blanks(line);
  const std::string_view whole = line;
  while (is_time(line.substr(0, word_length(line)))) {
    line = without_blanks(line.substr(word_length(line)));
  }
  return line.size() < whole.size() ? std::optional(line) : std::nullopt;
}

// `node7`, `ip-10-0-0-2`: a letter first, and a digit.
bool is_like_a_host(std::string_view word) {
  const auto is_part = [](char c) {
    return is_digit(c) || c == '-' || c == '.' || c == '_' || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  };
  return !word.empty() && !is_digit(word.front()) && std::ranges::all_of(word, is_part) &&
         std::ranges::any_of(word, is_digit);
}

// The machines that most lines name behind their time: in a message that was broken into lines
// their names would stand in the middle of it.
std::unordered_set<std::string_view> hosts_behind_times(std::string_view log) {
  std::unordered_map<std::string_view, std::size_t> counts;
  std::size_t timed = 0;
  for (std::size_t from = 0; from < log.size();) {
    const std::size_t end = std::min(log.find('\n', from), log.size());
    const auto rest = behind_time(log.substr(from, end - from));
    from = end + 1;
    if (!rest) continue;
    ++timed;
    const std::string_view word = rest->substr(0, word_length(*rest));
    if (is_like_a_host(word)) ++counts[word];
  }
  std::unordered_set<std::string_view> out;
  std::size_t named = 0;
  for (const auto& [word, count] : counts) {
    if (count < 2) continue;
    out.insert(word);
    named += count;
  }
  if (named * 2 < timed) out.clear();
  return out;
}

// What is true of the whole log.
struct Prefixes {
  bool has_tasks = false;
  std::unordered_set<std::string_view> hosts{};
};

std::string_view without_prefixes(std::string_view line,
                                  const Prefixes& prefixes,
                                  std::string& label) {
  bool is_behind_time = false;
  for (;;) {
    line = without_blanks(line);
    const std::string_view word = line.substr(0, word_length(line));
    if (is_behind_time && prefixes.hosts.contains(word)) {
      line = without_blanks(line.substr(word.size()));
      const std::string_view program = line.substr(0, word_length(line));  // `python[4711]:`
      const bool is_program = program.ends_with("]:") && !program.starts_with('[');
      if (is_program) line.remove_prefix(program.size());
      is_behind_time = false;
      continue;
    }
    std::size_t length = speaker_length(line, prefixes.has_tasks, label);
    if (length == 0) length = logger_length(line);
    if (length == 0) return line;
    is_behind_time = is_time(word);
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

// One line of the log, without its prefixes.
struct Line {
  std::string_view text{};
  std::size_t label = 0;  // 0: nobody has been named yet
  std::size_t part = 0;   // what is read as one text
};

// The lines with who wrote them. A line without a name goes on with what the last one said: it may
// have been broken.
class Lines {
 public:
  explicit Lines(std::string_view log) {
    const Prefixes prefixes{.has_tasks = has_tasks_before_lines(log),
                            .hosts = hosts_behind_times(log)};
    std::unordered_map<std::string, std::size_t> numbers;
    std::size_t speaker = 0;
    for (std::size_t from = 0; from < log.size();) {
      const std::size_t end = std::min(log.find('\n', from), log.size());
      std::string label;
      const std::string_view line = without_prefixes(log.substr(from, end - from), prefixes, label);
      from = end + 1;
      if (!label.empty()) {
        const auto [place, is_new] = numbers.try_emplace(label, labels.size());
        if (is_new) labels.push_back(std::move(label));
        speaker = place->second;
      }
      all.push_back({.text = line, .label = speaker});
    }
    separate();
  }

  std::vector<Line> all{};
  std::vector<std::string> labels{std::string()};

 private:
  // Ranks write at the same time: what each says is read by itself. Where nobody has a second line
  // nothing can be between two of his; so it is too where `12: ` only counts the lines of a text.
  void separate() {
    std::vector<std::size_t> lines(labels.size());
    for (const Line& line : all) ++lines[line.label];
    const bool may_mix =
        std::any_of(lines.begin() + 1, lines.end(), [](std::size_t count) { return count > 1; });
    if (!may_mix) return;
    for (Line& line : all) line.part = line.label;
  }
};

// `7,93GiB`, as some locales have it. Three digits behind a comma are thousands.
void mend_decimal_commas(std::string& text) {
  const auto digit = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
  for (std::size_t at = text.find(','); at != std::string::npos; at = text.find(',', at + 1)) {
    if (at == 0 || !digit(at - 1) || !digit(at + 1)) continue;
    std::size_t end = at + 1;
    while (digit(end)) ++end;
    constexpr std::string_view kUnits = "KMGTk";
    const bool is_size = end < text.size() && kUnits.find(text[end]) != std::string_view::npos;
    const std::string_view unit = std::string_view(text).substr(std::min(end, text.size()), 3);
    const bool has_unit = is_size && unit.size() > 1 && (unit[1] == 'B' || unit.ends_with("iB"));
    if (has_unit && end - at - 1 != 3) text[at] = '.';
  }
}

}  // namespace

std::string_view Squeezed::speaker_at(std::size_t at) const {
  const auto after = std::ranges::upper_bound(speakers, at, {}, &Speaker::at);
  return after == speakers.begin() ? std::string_view() : std::prev(after)->label;
}

std::size_t Squeezed::line_at(std::size_t at) const {
  const auto after = std::ranges::upper_bound(lines, at, {}, &Place::at);
  return after == lines.begin() ? 0 : std::prev(after)->line;
}

Squeezed::Part Squeezed::part_at(std::size_t at) const {
  const auto after = std::ranges::upper_bound(parts, at);
  return {.from = after == parts.begin() ? 0 : *std::prev(after),
          .to = after == parts.end() ? text.size() : *after};
}

Squeezed squeeze(std::string_view log) {
  const std::string plain = plain_text(log);
  const Lines lines(plain);
  std::vector<std::vector<std::size_t>> parts(lines.labels.size());
  for (std::size_t i = 0; i < lines.all.size(); ++i) parts[lines.all[i].part].push_back(i);
  Squeezed out;
  out.text.reserve(plain.size());
  std::size_t speaker = 0;
  for (const std::vector<std::size_t>& part : parts) {
    if (!part.empty()) out.parts.push_back(out.text.size());
    for (const std::size_t number : part) {
      const Line& line = lines.all[number];
      const std::size_t at = out.text.size();
      out.lines.push_back({.at = at, .line = number});
      if (std::exchange(speaker, line.label) != line.label) {
        out.speakers.push_back({.at = at, .label = lines.labels[line.label]});
      }
      const std::string_view word = word_of(line.text);
      if (!word.empty()) out.words.push_back({.at = at, .word = word});
      for (const char c : line.text) {
        if (!is_blank(c)) out.text += c;
      }
    }
  }
  mend_decimal_commas(out.text);
  return out;
}

namespace {

// Tools that print tables write one letter, too.
std::optional<ByteUnit> leading_unit(std::string_view text) {
  if (const auto unit = leading_byte_unit(text)) return unit;
  constexpr std::array<ByteUnit, 4> kLetters{
      {{"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}}};
  const auto found = std::ranges::find_if(
      kLetters, [&](const ByteUnit& unit) { return text.starts_with(unit.name); });
  return found == kLetters.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

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
  const auto unit = leading_unit(text.substr(length));
  if (!unit) return std::nullopt;
  const double bytes = value * unit->bytes;
  return SizeText{
      .bytes = bytes >= 0x1p60 ? kMostBytes : static_cast<std::uint64_t>(std::llround(bytes)),
      .length = length + unit->name.size()};
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

std::string_view last_of(std::string_view text, std::size_t count) {
  return text.substr(text.size() - std::min(text.size(), count));
}

std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  return leading_number(text.substr(at + words.size()));
}

std::optional<std::uint64_t> size_behind(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  const auto size = leading_size(text.substr(at + words.size()));
  return size ? std::optional(size->bytes) : std::nullopt;
}

}  // namespace headroom::diagnose::internal
