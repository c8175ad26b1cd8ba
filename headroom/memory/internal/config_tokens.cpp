#include "headroom/memory/internal/config_tokens.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "headroom/base/suggest.h"

namespace headroom::memory::internal {
namespace {

using Entries = std::vector<ConfigEntry>;
using Warnings = std::vector<std::string>;

// PyTorch's keys, with the release that first knows each (docs of 2.9 to 2.15). Two have a second
// spelling, for HIP.
constexpr std::array<ConfigKeyInfo, 22> kKeys{{
    {"backend", ConfigKey::kBackend},
    {"large_segment_size_mb", ConfigKey::kLargeSegmentSize, kPyTorch211},
    {"max_split_size_mb", ConfigKey::kMaxSplitSize},
    {"max_non_split_rounding_mb", ConfigKey::kMaxNonSplitRounding},
    {"roundup_power2_divisions",
     ConfigKey::kRoundupPower2Divisions,
     {0, 0},
     ConfigShape::kScalarOrList},
    {"garbage_collection_threshold", ConfigKey::kGarbageCollectionThreshold},
    {"expandable_segments", ConfigKey::kExpandableSegments},
    {"expandable_segments_reserve", ConfigKey::kExpandableReserve, kPyTorch215},
    {"expandable_segments_reserve_by_class",
     ConfigKey::kExpandableReserveByClass,
     kPyTorch215,
     ConfigShape::kList},
    {"release_lock_on_cudamalloc", ConfigKey::kReleaseLock},
    {"release_lock_on_hipmalloc", ConfigKey::kReleaseLock},
    {"graph_capture_record_stream_reuse", ConfigKey::kGraphCaptureReuse},
    {"per_process_memory_fraction", ConfigKey::kMemoryFraction, kPyTorch210},
    {"throw_on_cudamalloc_oom", ConfigKey::kThrowOnOutOfMemory, kPyTorch212},
    {"pinned_use_cuda_host_register", ConfigKey::kPinnedHostRegister},
    {"pinned_use_hip_host_register", ConfigKey::kPinnedHostRegister},
    {"pinned_num_register_threads", ConfigKey::kPinnedRegisterThreads},
    {"pinned_use_background_threads", ConfigKey::kPinnedBackgroundThreads},
    {"pinned_reserve_segment_size_mb", ConfigKey::kPinnedReserveSegment, kPyTorch210},
    {"pinned_max_round_threshold_mb", ConfigKey::kPinnedMaxRound, kPyTorch213},
    {"pinned_max_cached_size_mb", ConfigKey::kPinnedMaxCached, kPyTorch213},
    {"pinned_free_catch_all", ConfigKey::kPinnedFreeCatchAll, kPyTorch212},
}};

const ConfigKeyInfo* find_key(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kKeys, name, &ConfigKeyInfo::name);
  return found == kKeys.end() ? nullptr : found;
}

std::string to_string(PyTorchVersion version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

// --- Tokens --------------------------------------------------------------------------------------

constexpr bool is_separator(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }

constexpr bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// White space around a word is dropped; inside a word PyTorch drops it too, which would make one
// word of two, so the strict dialect keeps it for the complaint.
std::string word(std::string_view text, const ParseOptions& options) {
  if (options.dialect == ConfigDialect::kStrict) return std::string(trimmed(text));
  const bool only_blanks = has_old_parser(options.version);
  std::string out;
  for (const char c : text) {
    if (only_blanks ? c != ' ' : !is_space(c)) out += c;
  }
  return out;
}

std::vector<std::string> tokenize(std::string_view text, const ParseOptions& options) {
  std::vector<std::string> tokens;
  const auto add_word = [&](std::size_t first, std::size_t last) {
    std::string token = word(text.substr(first, last - first), options);
    if (!token.empty()) tokens.push_back(std::move(token));
  };
  std::size_t first = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_separator(text[at])) continue;
    add_word(first, at);
    tokens.emplace_back(1, text[at]);
    first = at + 1;
  }
  add_word(first, text.size());
  return tokens;
}

bool is_word(const std::string& token) { return token.size() != 1 || !is_separator(token[0]); }

// --- Unknown keys --------------------------------------------------------------------------------

std::vector<std::string_view> key_names(PyTorchVersion version) {
  std::vector<std::string_view> names;
  for (const ConfigKeyInfo& info : kKeys) {
    if (info.since <= version) names.push_back(info.name);
  }
  return names;
}

std::string unknown_key(std::string_view name, const ParseOptions& options) {
  const PyTorchVersion version = options.version;
  if (options.dialect == ConfigDialect::kPyTorch) {
    if (has_old_parser(version)) {
      return "Unrecognized CachingAllocator option: " + std::string(name);
    }
    return "Unrecognized key '" + std::string(name) + "' in Accelerator allocator config.";
  }
  if (const ConfigKeyInfo* later = find_key(name)) {
    return "unknown key " + in_quotes(name) + ": PyTorch knows it from " + to_string(later->since) +
           " on, and these settings are read as " + to_string(version) + "'s";
  }
  const std::string message = "unknown key " + in_quotes(name);
  const std::vector<std::string_view> names = key_names(version);
  if (const auto meant = suggest(name, names)) {
    return message + "; did you mean '" + std::string(*meant) + "'?";
  }
  std::string known;
  for (const std::string_view one : names) {
    known += known.empty() ? "" : ", ";
    known += one;
  }
  return message + "; the keys are " + known;
}

const ConfigKeyInfo* known_key(std::string_view name, PyTorchVersion version) {
  const ConfigKeyInfo* info = find_key(name);
  return info == nullptr || info->since > version ? nullptr : info;
}

// --- The strict grammar --------------------------------------------------------------------------
//
//   text  = "" | entry { "," entry }
//   entry = key ":" ( word | "[" pair { "," pair } "]" )
//   pair  = word ":" word

class StrictReader {
 public:
  StrictReader(std::vector<std::string> tokens, const ParseOptions& options)
      : tokens_(std::move(tokens)), options_(options) {}

  ConfigEntries read() {
    Entries entries;
    while (at_ < tokens_.size()) {
      if (!entries.empty() && !expect(",", "between two settings")) break;
      std::optional<ConfigEntry> entry = read_entry(entries);
      if (!entry) break;
      entries.push_back(std::move(*entry));
    }
    return {std::move(entries), std::move(error_)};
  }

 private:
  std::optional<ConfigEntry> read_entry(const Entries& before) {
    const std::optional<std::string> name = read_word("a key");
    if (!name) return std::nullopt;
    ConfigEntry entry{.info = known_key(*name, options_.version)};
    if (entry.info == nullptr) return fail(unknown_key(*name, options_));
    for (const ConfigEntry& other : before) {
      if (other.info->key == entry.info->key) {
        return fail("'" + *name + "' is set twice; write it once");
      }
    }
    where_ = *name + ": ";
    if (!expect(":", "after the key") || !read_value(entry)) return std::nullopt;
    where_.clear();
    return entry;
  }

  bool read_value(ConfigEntry& entry) {
    const bool has_bracket = at_ < tokens_.size() && tokens_[at_] == "[";
    if (has_bracket && entry.info->shape == ConfigShape::kScalar) {
      return say(where_ + "takes one value, not a list in brackets");
    }
    if (!has_bracket && entry.info->shape == ConfigShape::kList) {
      return say(where_ + "expected a list in brackets, found " + found());
    }
    entry.value_index = at_;
    if (has_bracket) return read_list(entry);
    std::optional<std::string> value = read_word("a value");
    if (value) entry.value = std::move(*value);
    return value.has_value();
  }

  bool read_list(ConfigEntry& entry) {
    entry.is_list = true;
    ++at_;
    while (true) {
      std::optional<std::string> key = read_word("a list item");
      if (!key || !expect(":", "inside the list")) return false;
      std::optional<std::string> value = read_word("a value in the list");
      if (!value) return false;
      entry.list.push_back({std::move(*key), std::move(*value)});
      if (at_ < tokens_.size() && tokens_[at_] == "]") return ++at_, true;
      if (!expect(",", "or ']' after a list item")) return false;
    }
  }

  std::optional<std::string> read_word(const char* what) {
    if (at_ >= tokens_.size() || !is_word(tokens_[at_])) {
      return fail(where_ + "expected " + what + ", found " + found());
    }
    return tokens_[at_++];
  }

  bool expect(std::string_view token, const char* place) {
    if (at_ < tokens_.size() && tokens_[at_] == token) return ++at_, true;
    return say(where_ + "expected '" + std::string(token) + "' " + place + ", found " + found());
  }

  [[nodiscard]] std::string found() const {
    return at_ < tokens_.size() ? in_quotes(tokens_[at_]) : "the end of the text";
  }
  std::nullopt_t fail(std::string message) { return say(std::move(message)), std::nullopt; }
  bool say(std::string message) {
    error_ = std::move(message);
    return false;
  }

  std::vector<std::string> tokens_;
  const ParseOptions& options_;
  std::size_t at_ = 0;
  std::string where_;  // "max_split_size_mb: " while inside its entry
  std::string error_;
};

// --- As PyTorch reads ----------------------------------------------------------------------------
//
// From 2.10 on a separator is any one token: it is stepped over without a look (the checker's
// result is ignored), and only running off the end is an error.

class PyTorchReader {
 public:
  PyTorchReader(std::vector<std::string> tokens, const ParseOptions& options, Warnings& warnings)
      : tokens_(std::move(tokens)), options_(options), warnings_(warnings) {}

  ConfigEntries read() {
    Entries entries;
    while (at_ < tokens_.size() && read_entry(entries)) {
    }
    return {std::move(entries), std::move(error_)};
  }

 private:
  bool read_entry(Entries& entries) {
    ConfigEntry entry{.info = known_key(tokens_[at_], options_.version)};
    if (entry.info == nullptr) return say(unknown_key(tokens_[at_], options_));
    name_ = entry.info->name;
    ++at_;
    if (!separator(":") || !read_value(entry)) return false;
    entries.push_back(std::move(entry));
    return at_ == tokens_.size() || separator(",");
  }

  bool read_value(ConfigEntry& entry) {
    if (!has_token()) return false;
    entry.value_index = at_;
    const ConfigShape shape = entry.info->shape;
    const bool has_bracket = tokens_[at_] == "[";
    entry.is_list =
        shape == ConfigShape::kList || (shape == ConfigShape::kScalarOrList && has_bracket);
    if (!entry.is_list) return entry.value = tokens_[at_++], true;
    return separator("[") && read_pairs(entry);
  }

  bool read_pairs(ConfigEntry& entry) {
    while (at_ < tokens_.size() && tokens_[at_] != "]") {
      ConfigPair pair{tokens_[at_++], {}};
      if (!separator(":") || !has_token()) return false;
      pair.value = tokens_[at_++];
      entry.list.push_back(std::move(pair));
      if (!has_token()) return false;
      if (tokens_[at_] != "]" && !separator(",")) return false;
    }
    if (at_ >= tokens_.size()) {
      return say("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return ++at_, true;
  }

  bool separator(std::string_view expected) {
    if (!has_token()) return false;
    const std::string& token = tokens_[at_];
    if (token != expected && has_old_parser(options_.version)) {
      return say("Error parsing CachingAllocator settings, expected " + std::string(expected));
    }
    if (token != expected) {
      warnings_.push_back(std::string(name_) + ": found " + in_quotes(token) + " where '" +
                          std::string(expected) + "' belongs; PyTorch does not look");
    }
    return ++at_, true;
  }

  bool has_token() {
    if (at_ < tokens_.size()) return true;
    if (has_old_parser(options_.version)) return say("Error, expecting " + name_ + " value");
    return say("Index out of bounds in ConfigTokenizer (" + name_ + " ends too early)");
  }

  bool say(std::string message) {
    error_ = std::move(message);
    return false;
  }

  std::vector<std::string> tokens_;
  const ParseOptions& options_;
  Warnings& warnings_;
  std::size_t at_ = 0;
  std::string name_;
  std::string error_;
};

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto code = static_cast<unsigned char>(c);
    out += code < 0x20 || code >= 0x7f ? '?' : c;
  }
  if (text.size() > kLongest) out += "...";
  return out + "'";
}

ConfigEntries read_config_entries(std::string_view text,
                                  const ParseOptions& options,
                                  Warnings& warnings) {
  std::vector<std::string> tokens = tokenize(text, options);
  if (options.dialect == ConfigDialect::kStrict) {
    return StrictReader(std::move(tokens), options).read();
  }
  return PyTorchReader(std::move(tokens), options, warnings).read();
}

}  // namespace headroom::memory::internal
