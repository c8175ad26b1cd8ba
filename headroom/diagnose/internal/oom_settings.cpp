// What a log, or whoever pastes it, says of the program beside the message itself: its settings,
// its release.
#include <algorithm>
#include <array>
#include <cctype>

#include "headroom/diagnose/internal/oom_writers.h"

namespace headroom::diagnose::internal {
namespace {

constexpr memory::PyTorchVersion kFirstWithSettings{1, 10};

// `try setting PYTORCH_CUDA_ALLOC_CONF=...`, of PyTorch and of people. `set` at the start of a line
// is a command of Windows.
bool is_advice(const Squeezed& log, std::size_t at) {
  const std::string_view before = std::string_view(log.text).substr(0, at);
  constexpr std::array<std::string_view, 5> kWords{"setting", "try", "trying", "use", "consider"};
  if (std::ranges::any_of(kWords, [&](std::string_view word) { return before.ends_with(word); })) {
    return true;
  }
  constexpr std::string_view kSet = "set";
  if (!before.ends_with(kSet)) return false;
  const std::size_t set = at - kSet.size();
  return std::ranges::none_of(log.lines,
                              [&](const Squeezed::Place& line) { return line.at == set; });
}

// The value of the variable whose name ends at `text`: behind `=`, `: `, `", "`, or nothing.
std::string_view value_of(std::string_view text) {
  constexpr std::string_view kBetween = "\"'`])=:,";
  const std::size_t from = text.find_first_not_of(kBetween);
  if (from == std::string_view::npos) return {};
  text.remove_prefix(from);
  constexpr std::string_view kYaml = "value:";
  if (text.starts_with(kYaml)) text = text.substr(kYaml.size());
  while (!text.empty() && kBetween.find(text.front()) != std::string_view::npos) {
    text.remove_prefix(1);
  }
  const auto is_part = [](char c) {
    constexpr std::string_view kOther = "_:,.[]>";
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kOther.find(c) != kOther.npos;
  };
  const auto end = std::ranges::find_if_not(text, is_part);
  text = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  // A key is in small letters; other words only follow the variable.
  const std::string_view key = text.substr(0, text.find(':'));
  const bool is_value = std::ranges::all_of(
      key, [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  return is_value ? text : std::string_view();
}

}  // namespace

SeenSettings settings_in(const Squeezed& log) {
  constexpr std::string_view kVariable = "_ALLOC_CONF";
  constexpr std::string_view kExpandable = "expandable_segments:True";
  constexpr std::size_t kLongest = 400;
  SeenSettings out;
  const std::string_view text = log.text;
  for (std::size_t at = text.find(kVariable); at != std::string_view::npos;
       at = text.find(kVariable, at + 1)) {
    const std::size_t name = text.substr(0, at).rfind("PYTORCH");
    if (name == std::string_view::npos || at - name > std::string_view("PYTORCH_CUDA").size() ||
        is_advice(log, name)) {
      continue;
    }
    const std::string_view value = value_of(text.substr(at + kVariable.size(), kLongest));
    const std::size_t expandable = value.find(kExpandable);
    if (expandable != std::string_view::npos &&
        !value.substr(expandable + kExpandable.size()).starts_with("toavoid")) {
      out.has_expandable_segments = true;
    }
    if (has(value, "max_split_size_mb:")) out.has_max_split_size = true;
  }
  return out;
}

void add_settings(OomMessage& message, const SeenSettings& settings) {
  message.sets_expandable_segments = settings.has_expandable_segments;
  message.sets_max_split_size = settings.has_max_split_size;
  if (settings.has_expandable_segments) message.numbers.is_expandable = true;
}

void add_version(OomMessage& message, const memory::PyTorchVersion& version) {
  const bool is_nvidia_or_amd =
      message.writer == Writer::kPyTorchCuda || message.writer == Writer::kPyTorchHip;
  if (!is_nvidia_or_amd || !may_be_of(message, version)) return;
  message.versions = VersionRange{version, version};
  if (version < kFirstWithSettings) {
    message.settings_variable = {};
  } else if (message.settings_variable.empty()) {
    message.settings_variable = message.writer == Writer::kPyTorchHip ? "PYTORCH_HIP_ALLOC_CONF"
                                                                      : "PYTORCH_CUDA_ALLOC_CONF";
  }
}

}  // namespace headroom::diagnose::internal
