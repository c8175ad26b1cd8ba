#include "headroom/replay/internal/tune_space.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::replay::internal {

namespace {

using Divisions = std::array<std::uint32_t, 16>;

constexpr std::array<std::string_view, 5> kKeys{"expandable_segments",
                                                "max_split_size_mb",
                                                "roundup_power2_divisions",
                                                "garbage_collection_threshold",
                                                "large_segment_size_mb"};

// Coarser rounding than two divisions does not exist: 1 is none.
constexpr std::array<std::uint32_t, 5> kDivisions{2, 4, 8, 16, 32};
constexpr std::uint32_t kFactoryLargeMb = 20;
constexpr std::array<std::uint32_t, 6> kLargeSegments{12, 32, 64, 128, 256, 512};
constexpr std::array<std::uint32_t, 4> kCollections{60, 70, 80, 90};

std::size_t interval_of(std::uint64_t size_bytes) {
  const auto log = static_cast<std::size_t>(std::bit_width(std::max<std::uint64_t>(size_bytes, 1)));
  return log <= 21 ? 0 : std::min<std::size_t>(log - 21, 15);
}

bool is_request(const Op& op) { return op.kind == OpKind::kAllocate || op.kind == OpKind::kFailed; }

std::uint64_t largest_request(std::span<const Program* const> programs) {
  std::uint64_t largest = 0;
  for (const Program* program : programs) {
    for (const Op& op : program->ops) {
      if (is_request(op)) largest = std::max(largest, op.size_bytes);
    }
  }
  return largest;
}

// Where the neighbours of a list differ.
std::size_t changes(const Divisions& divisions) {
  std::size_t count = 0;
  for (std::size_t i = 1; i < divisions.size(); ++i) count += divisions[i] != divisions[i - 1];
  return count;
}

std::string entry(std::size_t interval, std::uint32_t value) {
  return std::to_string(std::uint64_t{1} << interval) + ":" + std::to_string(value);
}

// The recorded settings without the keys that are searched, where all programs agree on them.
memory::AllocatorConfig common_rest(std::span<const Program* const> programs, bool has_own_limit) {
  const auto rest_of = [&](memory::AllocatorConfig config) {
    const memory::AllocatorConfig factory;
    config.max_split_bytes = factory.max_split_bytes;
    config.max_non_split_rounding_bytes.reset();
    config.large_segment_bytes = factory.large_segment_bytes;
    config.roundup_power2_divisions = factory.roundup_power2_divisions;
    config.garbage_collection_threshold = 0;
    config.expandable_segments = false;
    config.backend = factory.backend;
    if (has_own_limit) config.memory_fraction = 1;
    config.text.clear();
    return config;
  };
  memory::AllocatorConfig rest = rest_of(programs[0]->config);
  for (const Program* program : programs) {
    if (to_string(rest_of(program->config)) != to_string(rest)) return {};
  }
  return rest;
}

memory::PyTorchVersion oldest(std::span<const Program* const> programs) {
  memory::PyTorchVersion version = programs[0]->version;
  for (const Program* program : programs) version = std::min(version, program->version);
  return version;
}

void append(std::string& text, std::string_view key, const std::string& value) {
  if (!text.empty()) text += ',';
  text.append(key).append(":").append(value);
}

std::string fraction_text(std::uint32_t percent) {
  std::string digits = std::to_string(percent);
  if (digits.size() == 1) digits.insert(0, "0");
  if (digits.ends_with('0')) digits.pop_back();
  return "0." + digits;
}

}  // namespace

int parts(const Setting& setting) noexcept {
  int count = 0;
  count += setting.is_expandable ? 1 : 0;
  count += setting.max_split_mb != 0 ? 1 : 0;
  count += setting.large_segment_mb != 0 ? 1 : 0;
  count += setting.gc_percent != 0 ? 1 : 0;
  if (setting.divisions != Divisions{}) {
    count += static_cast<int>(std::max<std::size_t>(changes(setting.divisions), 1));
  }
  return count;
}

int keys_used(const Setting& setting) noexcept {
  return (setting.max_split_mb != 0 ? 1 : 0) + (setting.large_segment_mb != 0 ? 2 : 0) +
         (setting.gc_percent != 0 ? 4 : 0) + (setting.divisions != Divisions{} ? 8 : 0);
}

std::string divisions_text(const Divisions& divisions, memory::PyTorchVersion version) {
  std::size_t first = 0;  // the end of the run that the first key covers
  while (first + 1 < divisions.size() && divisions[first + 1] == divisions[0]) ++first;
  if (first + 1 == divisions.size()) return std::to_string(divisions[0]);
  std::size_t rest = divisions.size() - 1;  // the start of the run that `>` covers
  while (divisions[rest - 1] == divisions.back()) --rest;
  std::string out = "[" + entry(first, divisions[first]);
  for (std::size_t i = first + 1; i < rest; ++i) {
    const bool anchors_rest = i + 1 == rest;
    if (divisions[i] != 0 || anchors_rest) out += "," + entry(i, divisions[i]);
  }
  // Up to 2.9 `>` starts at the last key itself.
  if (version < memory::kPyTorch210) out += "," + entry(rest, divisions[rest]);
  return out + ",>:" + std::to_string(divisions.back()) + "]";
}

Space::Space(std::span<const Program* const> programs, const TuneOptions& options, bool has_limit)
    : version_(options.version.value_or(oldest(programs))),
      rest_(common_rest(programs, options.limit_bytes.has_value())),
      has_gc_(has_limit),
      has_large_segment_(version_ >= memory::kPyTorch211) {
  for (const std::string& key : options.without) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) {
      std::string known;
      for (const std::string_view one : kKeys)
        known += (known.empty() ? "" : ", ") + std::string(one);
      throw InvalidArgument("tune: '" + key + "' is not searched; what is: " + known);
    }
    has_expandable_ &= key != kKeys[0];
    has_max_split_ &= key != kKeys[1];
    has_divisions_ &= key != kKeys[2];
    has_gc_ &= key != kKeys[3];
    has_large_segment_ &= key != kKeys[4];
  }
  const std::uint64_t largest = largest_request(programs);
  last_interval_ = interval_of(largest);
  largest_mb_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(largest >> 20U, UINT32_MAX / 2));
}

memory::AllocatorConfig Space::config(const Setting& setting) const {
  memory::AllocatorConfig config = rest_;
  config.expandable_segments = setting.is_expandable;
  if (setting.max_split_mb != 0)
    config.max_split_bytes = std::uint64_t{setting.max_split_mb} << 20U;
  if (setting.large_segment_mb != 0) {
    config.large_segment_bytes = std::uint64_t{setting.large_segment_mb} << 20U;
  }
  config.garbage_collection_threshold = setting.gc_percent / 100.0;
  std::ranges::copy(setting.divisions, config.roundup_power2_divisions.begin());
  config.text = text(setting);
  return config;
}

std::string Space::text(const Setting& setting) const {
  std::string out;
  if (setting.is_expandable) append(out, kKeys[0], "True");
  if (setting.max_split_mb != 0) append(out, kKeys[1], std::to_string(setting.max_split_mb));
  if (setting.divisions != Divisions{}) {
    append(out, kKeys[2], divisions_text(setting.divisions, version_));
  }
  if (setting.gc_percent != 0) append(out, kKeys[3], fraction_text(setting.gc_percent));
  if (setting.large_segment_mb != 0)
    append(out, kKeys[4], std::to_string(setting.large_segment_mb));
  const std::string rest = to_string(rest_);
  if (!rest.empty()) out += (out.empty() ? "" : ",") + rest;
  return out;
}

// --- Which are the same, and which are allowed ---------------------------------------------------

Setting Space::normal(Setting setting) const {
  if (!has_expandable_) setting.is_expandable = false;
  if (!has_max_split_) setting.max_split_mb = 0;
  if (!has_gc_) setting.gc_percent = 0;
  if (!has_large_segment_ || setting.large_segment_mb == kFactoryLargeMb) {
    setting.large_segment_mb = 0;
  }
  // Nothing is as large as that.
  if (setting.max_split_mb > largest_mb_) setting.max_split_mb = 0;
  if (!has_divisions_) setting.divisions = {};
  for (std::uint32_t& value : setting.divisions) value = value == 1 ? 0 : value;
  for (std::size_t i = last_interval_ + 1; i < setting.divisions.size(); ++i) {
    setting.divisions[i] = setting.divisions[last_interval_];
  }
  return setting;
}

Setting Space::setting_of(const memory::AllocatorConfig& config) const {
  Setting setting;
  setting.is_expandable = config.expandable_segments;
  if (config.max_split_bytes != memory::AllocatorConfig::kUnlimited) {
    setting.max_split_mb = static_cast<std::uint32_t>(config.max_split_bytes >> 20U);
  }
  setting.large_segment_mb = static_cast<std::uint32_t>(config.large_segment_bytes >> 20U);
  setting.gc_percent = static_cast<std::uint32_t>(config.garbage_collection_threshold * 100 + 0.5);
  for (std::size_t i = 0; i < setting.divisions.size(); ++i) {
    setting.divisions[i] = static_cast<std::uint32_t>(config.roundup_power2_divisions[i]);
  }
  return normal(setting);
}

// As the parser of that version has it.
bool Space::is_valid(const Setting& setting) const noexcept {
  const std::uint32_t large =
      setting.large_segment_mb != 0 ? setting.large_segment_mb : kFactoryLargeMb;
  const std::uint32_t least = version_ < memory::kPyTorch210 ? large + 1 : large;
  if (setting.max_split_mb != 0 && setting.max_split_mb < least) return false;
  return large > 10 && setting.gc_percent < 100;
}

std::vector<Setting> Space::checked(const std::vector<Setting>& settings) const {
  std::vector<Setting> out;
  for (const Setting& setting : settings) {
    const Setting one = normal(setting);
    if (is_valid(one)) out.push_back(one);
  }
  return out;
}

// --- What to try ---------------------------------------------------------------------------------

void Space::add_divisions(const Setting& base, std::vector<Setting>& out) const {
  for (const std::uint32_t value : kDivisions) {
    Setting setting = base;
    setting.divisions.fill(value);
    out.push_back(setting);
  }
  // Only above, or only up to, a size. Fine rounding is left to the neighbours of the best.
  for (std::size_t k = 0; k < last_interval_; ++k) {
    for (const std::uint32_t value : {2U, 4U, 8U}) {
      Setting above = base;
      std::fill(above.divisions.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                above.divisions.end(),
                value);
      out.push_back(above);
    }
    Setting below = base;
    std::fill(
        below.divisions.begin(), below.divisions.begin() + static_cast<std::ptrdiff_t>(k) + 1, 4U);
    out.push_back(below);
  }
}

void Space::add_numbers(const Setting& base, std::vector<Setting>& out) const {
  Setting setting = base;
  for (std::uint32_t mb = 32; mb <= largest_mb_; mb *= 2) {
    setting.max_split_mb = mb;
    out.push_back(setting);
  }
  setting = base;
  for (const std::uint32_t mb : kLargeSegments) {
    setting.large_segment_mb = mb;
    out.push_back(setting);
  }
  setting = base;
  for (const std::uint32_t percent : kCollections) {
    setting.gc_percent = percent;
    out.push_back(setting);
  }
}

std::vector<Setting> Space::grid(const Setting& base) const {
  std::vector<Setting> out;
  add_numbers(base, out);
  add_divisions(base, out);
  return checked(out);
}

void Space::near_divisions(const Setting& base, std::vector<Setting>& out) const {
  for (std::size_t k = 0; k <= last_interval_; ++k) {
    for (const std::uint32_t value : {0U, 2U, 4U, 8U, 16U}) {
      Setting setting = base;
      setting.divisions[k] = value;
      out.push_back(setting);
    }
  }
}

void Space::near_numbers(const Setting& base, std::vector<Setting>& out) const {
  const auto around = [&](std::uint32_t Setting::*field, std::uint32_t quarters) {
    Setting setting = base;
    setting.*field = base.*field * quarters / 4;
    out.push_back(setting);
  };
  for (const std::uint32_t quarters : {2U, 3U, 5U, 6U, 8U}) {
    if (base.max_split_mb != 0) around(&Setting::max_split_mb, quarters);
    if (base.large_segment_mb != 0) around(&Setting::large_segment_mb, quarters);
  }
  for (const std::uint32_t step : {5U, 10U}) {
    if (base.gc_percent <= step) continue;
    Setting setting = base;
    setting.gc_percent = base.gc_percent - step;
    out.push_back(setting);
    setting.gc_percent = base.gc_percent + step;
    out.push_back(setting);
  }
}

std::vector<Setting> Space::near(const Setting& setting) const {
  std::vector<Setting> out;
  // Without one of its keys it may be as good.
  for (const auto field :
       {&Setting::max_split_mb, &Setting::large_segment_mb, &Setting::gc_percent}) {
    Setting less = setting;
    less.*field = 0;
    out.push_back(less);
  }
  near_numbers(setting, out);
  add_numbers(setting, out);
  near_divisions(setting, out);
  return checked(out);
}

}  // namespace headroom::replay::internal

namespace headroom::replay {

std::span<const std::string_view> tunable_keys() noexcept { return internal::kKeys; }

}  // namespace headroom::replay
