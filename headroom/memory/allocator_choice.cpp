#include "headroom/memory/allocator_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "headroom/base/env.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/internal/config_numbers.h"
#include "headroom/memory/internal/config_tokens.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {
namespace {

using internal::in_quotes;

constexpr const char* kChoiceVariable = "HEADROOM_ALLOC_CONF";
constexpr std::string_view kPagedBackend = "paged";
constexpr std::string_view kNativeBackend = "native";
constexpr std::string_view kDriverBackend = "cudaMallocAsync";
constexpr std::string_view kPyTorchPrefix = "pytorch:";
constexpr std::string_view kPagedPrefix = "paged:";
constexpr std::array<std::string_view, 7> kPagedKeys{"page_mb",
                                                     "large_page_mb",
                                                     "large_from_mb",
                                                     "cushion",
                                                     "widest_cushion",
                                                     "cushion_mb",
                                                     "magazines"};
constexpr std::uint64_t kMostMebibytes = 1 << 20;  // 1 TiB

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// `key:value` or `key=value`; the value is empty where there is neither.
struct SettingText {
  std::string_view key{};
  std::string_view value{};
  std::string_view text{};  // as it was written
};

std::vector<SettingText> split_settings(std::string_view text) {
  std::vector<SettingText> out;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view part = without_spaces(text.substr(0, comma));
    const std::size_t sign = part.find_first_of(":=");
    if (!part.empty()) {
      out.push_back({.key = without_spaces(part.substr(0, sign)),
                     .value = sign == std::string_view::npos
                                  ? std::string_view{}
                                  : without_spaces(part.substr(sign + 1)),
                     .text = part});
    }
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

std::string refusal(const SettingText& setting, std::string_view allowed) {
  return std::string(setting.key) + ": found " + in_quotes(setting.value) + ", allowed is " +
         std::string(allowed);
}

using Refusal = std::optional<std::string>;

Refusal read_mebibytes(const SettingText& setting, std::uint64_t least, std::uint64_t& out) {
  const auto count = internal::read_whole(setting.value);
  if (!count || *count < least || *count > kMostMebibytes) {
    return refusal(setting,
                   "a whole number from " + std::to_string(least) + " to " +
                       std::to_string(kMostMebibytes) + " (MiB)");
  }
  out = *count * 1_MiB;
  return std::nullopt;
}

Refusal read_cushion(const SettingText& setting, double& out) {
  const auto share = internal::read_real(setting.value);
  if (!share || *share < 0 || *share > 1) return refusal(setting, "a fraction from 0 to 1");
  out = *share;
  return std::nullopt;
}

Refusal read_magazines(const SettingText& setting, bool& out) {
  if (setting.value != "0" && setting.value != "1") return refusal(setting, "0 or 1");
  out = setting.value == "1";
  return std::nullopt;
}

std::string paged_keys() {
  std::string out;
  for (const std::string_view key : kPagedKeys) {
    if (!out.empty()) out += key == kPagedKeys.back() ? " and " : ", ";
    out += key;
  }
  return out;
}

Refusal apply_paged(const SettingText& setting, PagedOptions& out) {
  if (setting.key == "page_mb") return read_mebibytes(setting, 1, out.page_bytes);
  if (setting.key == "large_page_mb") return read_mebibytes(setting, 1, out.large_page_bytes);
  if (setting.key == "large_from_mb") return read_mebibytes(setting, 1, out.large_from_bytes);
  if (setting.key == "cushion") return read_cushion(setting, out.cushion_fraction);
  if (setting.key == "widest_cushion") {
    return read_cushion(setting, out.widest_cushion_fraction.emplace());
  }
  if (setting.key == "cushion_mb") return read_mebibytes(setting, 0, out.cushion_bytes);
  if (setting.key == "magazines") return read_magazines(setting, out.uses_magazines);
  return "paged has no setting " + in_quotes(setting.key) + "; there are " + paged_keys();
}

Result<PagedOptions, std::string> read_paged(const std::vector<SettingText>& settings,
                                             PagedOptions out) {
  for (auto at = settings.begin(); at != settings.end(); ++at) {
    if (std::any_of(settings.begin(), at, [&](const auto& s) { return s.key == at->key; })) {
      return Unexpected(std::string(at->key) + " is there twice");
    }
    if (Refusal complaint = apply_paged(*at, out)) return Unexpected(*std::move(complaint));
  }
  const auto is_given = [&](std::string_view key) {
    return std::ranges::find(settings, key, &SettingText::key) != settings.end();
  };
  // A cushion that somebody chose stays as it is.
  if (is_given("cushion") && !is_given("widest_cushion")) {
    out.widest_cushion_fraction = out.cushion_fraction;
  }
  if (out.large_page_bytes < out.page_bytes) {
    return Unexpected("large_page_mb: " + format_bytes(out.large_page_bytes) +
                      " is less than page_mb, " + format_bytes(out.page_bytes));
  }
  return out;
}

bool is_backend(const SettingText& setting) { return setting.key == "backend"; }

bool is_paged_backend(const SettingText& setting) {
  return is_backend(setting) && setting.value == kPagedBackend;
}

bool is_unknown_backend(const SettingText& setting) {
  return is_backend(setting) && setting.value != kPagedBackend && setting.value != kNativeBackend &&
         setting.value != kDriverBackend;
}

// A setting of the shell or of pinned memory, whichever the core.
bool is_common(const SettingText& setting) {
  return setting.key == "per_process_memory_fraction" || setting.key.starts_with("pinned_");
}

bool is_of_paged(const SettingText& setting) {
  return std::ranges::count(kPagedKeys, setting.key) > 0;
}

// Where no backend is named. A mixture is for the paged allocator's reader to complain about.
bool means_paged(const std::vector<SettingText>& settings) {
  return std::ranges::all_of(settings, is_common) || std::ranges::any_of(settings, is_of_paged);
}

Result<AllocatorChoice, std::string> read_paged_choice(std::string_view text,
                                                       const std::vector<SettingText>& settings,
                                                       const AllocatorChoice& base) {
  std::vector<SettingText> own;
  std::string common;
  for (const SettingText& setting : settings) {
    if (is_paged_backend(setting)) continue;
    if (!is_common(setting)) {
      own.push_back(setting);
      continue;
    }
    if (!common.empty()) common += ',';
    common += setting.text;
  }
  const auto paged = read_paged(own, base.paged.value_or(PagedOptions{}));
  if (!paged) return Unexpected("backend:paged: " + paged.error());
  auto parsed = parse_config(common, {.base = base.config});
  if (!parsed) return Unexpected(parsed.error());
  parsed->config.backend = kPagedBackend;
  parsed->config.text = text;
  return AllocatorChoice{.config = std::move(parsed->config),
                         .paged = *paged,
                         .is_default = false,
                         .version = base.version,
                         .warnings = std::move(parsed->warnings)};
}

AllocatorChoice caching_choice(ParsedConfig parsed, PyTorchVersion version = {}) {
  return {.config = std::move(parsed.config),
          .paged = std::nullopt,
          .is_default = false,
          .version = version,
          .warnings = std::move(parsed.warnings)};
}

Result<AllocatorChoice, std::string> read_caching_choice(std::string_view text,
                                                         const AllocatorChoice& base) {
  AllocatorConfig from = base.config;
  if (base.paged) from.backend = kNativeBackend;
  auto parsed = parse_config(text, {.version = base.version, .base = from});
  if (!parsed) return Unexpected(parsed.error());
  return caching_choice(std::move(*parsed), base.version);
}

// The shortest text that reads back as the same number.
std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// `key=value`, of what differs from the defaults.
std::string paged_text(const PagedOptions& options) {
  const PagedOptions plain;
  std::string out;
  const auto put = [&](std::string_view key, const std::string& value) {
    if (!out.empty()) out += ',';
    out.append(key).append("=").append(value);
  };
  const auto put_size = [&](std::string_view key, std::uint64_t size, std::uint64_t usual) {
    if (size != usual) put(key, std::to_string(size / 1_MiB));
  };
  put_size("page_mb", options.page_bytes, plain.page_bytes);
  put_size("large_page_mb", options.large_page_bytes, plain.large_page_bytes);
  put_size("large_from_mb", options.large_from_bytes, plain.large_from_bytes);
  if (options.cushion_fraction != plain.cushion_fraction) {
    put("cushion", shortest(options.cushion_fraction));
  }
  if (options.widest_cushion_fraction) {
    put("widest_cushion", shortest(*options.widest_cushion_fraction));
  }
  put_size("cushion_mb", options.cushion_bytes, plain.cushion_bytes);
  if (!options.uses_magazines) put("magazines", "0");
  return out;
}

// The settings that concern a PagedAllocator too.
std::string common_text(const AllocatorConfig& config) {
  AllocatorConfig common;
  common.memory_fraction = config.memory_fraction;
  common.pinned = config.pinned;
  return to_string(common);
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "," + b;
}

std::string named(std::string_view prefix, const std::string& settings, std::string_view plain) {
  return settings.empty() ? std::string(plain) : std::string(prefix) + settings;
}

}  // namespace

std::string_view to_string(AllocatorKind kind) noexcept {
  switch (kind) {
    case AllocatorKind::kPaged:
      return kPagedBackend;
    case AllocatorKind::kDriverPool:
      return kDriverBackend;
    case AllocatorKind::kCaching:
      break;
  }
  return "pytorch";
}

AllocatorKind AllocatorChoice::kind() const noexcept {
  if (paged) return AllocatorKind::kPaged;
  return config.backend == kDriverBackend ? AllocatorKind::kDriverPool : AllocatorKind::kCaching;
}

bool operator==(const AllocatorChoice& a, const AllocatorChoice& b) {
  if (a.kind() != b.kind() || a.is_default != b.is_default) return false;
  if (a.paged) return *a.paged == *b.paged && common_text(a.config) == common_text(b.config);
  return a.version == b.version && to_string(a.config) == to_string(b.config);
}

Result<AllocatorChoice, std::string> parse_choice_name(std::string_view name) {
  const auto refused = [&](const std::string& why) {
    return Unexpected(std::string(name) + ": " + why);
  };
  if (name == kPagedBackend || name.starts_with(kPagedPrefix)) {
    const std::string_view text = name.substr(std::min(kPagedPrefix.size(), name.size()));
    auto choice = read_paged_choice(text, split_settings(text), {});
    if (!choice) return refused(choice.error());
    return choice;
  }
  std::string_view conf = "backend:cudaMallocAsync";
  if (name == "pytorch") {
    conf = "";
  } else if (name.starts_with(kPyTorchPrefix)) {
    conf = name.substr(kPyTorchPrefix.size());
    if (conf == "default") conf = "";
  } else if (name != kDriverBackend) {
    return Unexpected("there is no policy " + in_quotes(name) +
                      "; there are pytorch, pytorch:default, pytorch:CONF, paged and "
                      "cudaMallocAsync");
  }
  auto parsed = parse_config(conf, {.version = kPyTorch215});
  if (!parsed) return refused(parsed.error());
  return caching_choice(std::move(*parsed));
}

std::string to_string(const AllocatorChoice& choice) {
  switch (choice.kind()) {
    case AllocatorKind::kPaged:
      return named(kPagedPrefix,
                   joined(paged_text(*choice.paged), common_text(choice.config)),
                   kPagedBackend);
    case AllocatorKind::kDriverPool:
      return std::string(kDriverBackend);
    case AllocatorKind::kCaching:
      break;
  }
  return named(kPyTorchPrefix, to_string(choice.config), "pytorch:default");
}

Result<PagedOptions, std::string> parse_paged_options(std::string_view text) {
  return read_paged(split_settings(text), {});
}

Result<AllocatorChoice, std::string> parse_choice(std::string_view text) {
  return parse_choice(text, {});
}

Result<AllocatorChoice, std::string> parse_choice(std::string_view text,
                                                  const AllocatorChoice& base) {
  const std::vector<SettingText> settings = split_settings(text);
  const auto unknown = std::ranges::find_if(settings, is_unknown_backend);
  if (unknown != settings.end()) {
    return Unexpected(refusal(*unknown, "native, cudaMallocAsync or paged"));
  }
  if (std::ranges::any_of(settings, is_paged_backend)) {
    return read_paged_choice(text, settings, base);
  }
  if (std::ranges::any_of(settings, is_backend)) return read_caching_choice(text, base);
  const bool is_paged = base.is_default ? means_paged(settings) : base.paged.has_value();
  if (!is_paged) return read_caching_choice(text, base);
  auto choice = read_paged_choice(text, settings, base);
  if (choice) choice->is_default = base.is_default;
  return choice;
}

std::vector<std::string> pytorch_variables_in_environment() {
  std::vector<std::string> out;
  for (const char* name : internal::kPyTorchVariables) {
    if (std::getenv(name) != nullptr) out.emplace_back(name);
  }
  return out;
}

Result<AllocatorChoice, std::string> choice_from_environment(PyTorchVariables pytorch) {
  if (const auto own = env_string(kChoiceVariable)) {
    auto choice = parse_choice(*own);
    if (!choice) return Unexpected(std::string(kChoiceVariable) + ": " + choice.error());
    return choice;
  }
  if (pytorch == PyTorchVariables::kIgnore) return AllocatorChoice{};
  auto parsed = config_from_environment();
  if (!parsed) return Unexpected(parsed.error());
  if (!means_paged(split_settings(parsed->config.text))) return caching_choice(std::move(*parsed));
  parsed->config.backend = kPagedBackend;
  return AllocatorChoice{.config = std::move(parsed->config),
                         .warnings = std::move(parsed->warnings)};
}

std::unique_ptr<Allocator> make_allocator(device::Device& device, const AllocatorChoice& choice) {
  const bool has_pages = device.properties().has_virtual_memory || !choice.is_default;
  if (!choice.paged || !has_pages) {
    return std::make_unique<CachingAllocator>(
        device, CachingOptions{.config = choice.config, .version = choice.version});
  }
  auto allocator = std::make_unique<PagedAllocator>(device, *choice.paged);
  if (choice.config.memory_fraction != 1.0) {
    allocator->set_memory_fraction(choice.config.memory_fraction);
  }
  return allocator;
}

}  // namespace headroom::memory
