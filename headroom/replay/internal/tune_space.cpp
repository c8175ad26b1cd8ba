#include "headroom/replay/internal/tune_space.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::replay::internal {

namespace {

constexpr std::array<std::string_view, 6> kKeys{"expandable_segments",
                                                "max_split_size_mb",
                                                "roundup_power2_divisions",
                                                "garbage_collection_threshold",
                                                "large_segment_size_mb",
                                                "max_non_split_rounding_mb"};
// The first release that reads each; a list of divisions, for the third.
constexpr std::array<memory::PyTorchVersion, 6> kSince{
    {{2, 1}, {1, 10}, {2, 0}, {1, 12}, memory::kPyTorch211, {2, 6}}};

// Coarser rounding than two divisions does not exist: 1 is none.
constexpr std::array<std::uint32_t, 6> kDivisions{2, 4, 8, 16, 32, 64};
constexpr std::uint32_t kFactoryLargeMb = 20;
constexpr std::array<std::uint32_t, 6> kCollections{50, 60, 70, 80, 90, 95};
// How many of the sizes that most bytes were asked in become the bounds of what is split.
constexpr std::size_t kHeaviest = 4;

using Field = std::uint32_t Setting::*;
constexpr std::array<Field, 4> kNumbers{&Setting::max_split_mb,
                                        &Setting::non_split_rounding_mb,
                                        &Setting::large_segment_mb,
                                        &Setting::gc_percent};

std::uint32_t to_mb(std::uint64_t size_bytes) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size_bytes >> 20U, UINT32_MAX / 4));
}

// 32, 64, 128, ...
std::vector<std::uint32_t> doubled(std::uint32_t most_mb) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t mb = 32; mb <= most_mb; mb *= 2) out.push_back(mb);
  return out;
}

// The setting with each of the values.
std::vector<Setting> line(const Setting& base, Field field, std::span<const std::uint32_t> values) {
  std::vector<Setting> out;
  for (const std::uint32_t value : values) {
    out.push_back(base);
    out.back().*field = value;
  }
  return out;
}

void append(std::vector<Setting>& to, const std::vector<Setting>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The values at these places from the end, 1 being the last.
std::vector<std::uint32_t> from_end(std::span<const std::uint32_t> values,
                                    std::initializer_list<std::size_t> places) {
  std::vector<std::uint32_t> out;
  for (const std::size_t place : places) {
    if (place <= values.size()) out.push_back(values[values.size() - place]);
  }
  return out;
}

// Each of the ones with each of the others: what they change of the base, together.
void add_pairs(const Setting& base,
               std::span<const Setting> ones,
               std::span<const Setting> others,
               std::vector<Setting>& out) {
  for (const Setting& one : ones) {
    for (const Setting& other : others) {
      Setting both = one;
      for (const Field field : kNumbers) {
        if (other.*field != base.*field) both.*field = other.*field;
      }
      if (other.divisions != base.divisions) both.divisions = other.divisions;
      out.push_back(both);
    }
  }
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

bool uses(const memory::AllocatorConfig& config, std::string_view key) {
  const memory::AllocatorConfig factory;
  if (key == kKeys[0]) return config.expandable_segments;
  if (key == kKeys[1]) return config.max_split_bytes != factory.max_split_bytes;
  if (key == kKeys[2]) return config.roundup_power2_divisions != factory.roundup_power2_divisions;
  if (key == kKeys[3]) return config.garbage_collection_threshold > 0;
  if (key == kKeys[4]) return config.large_segment_bytes != factory.large_segment_bytes;
  return config.max_non_split_rounding_bytes.has_value();
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
  count += setting.non_split_rounding_mb != 0 ? 1 : 0;
  count += setting.large_segment_mb != 0 ? 1 : 0;
  count += setting.gc_percent != 0 ? 1 : 0;
  if (setting.divisions != Divisions{}) {
    count += static_cast<int>(std::max<std::size_t>(changes(setting.divisions), 1));
  }
  return count;
}

int keys_used(const Setting& setting) noexcept {
  return (setting.max_split_mb != 0 ? 1 : 0) + (setting.large_segment_mb != 0 ? 2 : 0) +
         (setting.gc_percent != 0 ? 4 : 0) + (setting.divisions != Divisions{} ? 8 : 0) +
         (setting.non_split_rounding_mb != 0 ? 16 : 0);
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
      sizes_(programs) {
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (version_ < kSince[i]) leave_out(kKeys[i]);
  }
  leave_out(options.without);
  choose_numbers(programs);
}

void Space::leave_out(std::span<const std::string> keys) {
  left_out_.assign(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) {
      std::string message = "tune: '" + key + "' is not searched; what is:";
      for (const std::string_view one : kKeys) message.append(" ").append(one);
      throw InvalidArgument(message);
    }
    leave_out(key);
  }
}

void Space::leave_out(std::string_view key) {
  has_expandable_ &= key != kKeys[0];
  has_max_split_ &= key != kKeys[1];
  has_divisions_ &= key != kKeys[2];
  has_gc_ &= key != kKeys[3];
  has_large_segment_ &= key != kKeys[4];
  has_non_split_rounding_ &= key != kKeys[5];
}

void Space::choose_numbers(std::span<const Program* const> programs) {
  // Rounding makes it the next power of two at most.
  const std::uint64_t largest = std::min<std::uint64_t>(sizes_.largest_bytes(), 1ULL << 50U);
  largest_mb_ = to_mb(std::bit_ceil(largest));
  splits_ = doubled(largest_mb_);
  splits_.insert(splits_.begin(), version_ < memory::kPyTorch210 ? 21 : 20);
  // Just up to a size, and just past it.
  for (const std::uint64_t size : sizes_.heaviest(memory::kLargeSegmentBytes, kHeaviest)) {
    splits_.push_back(to_mb(size));
    splits_.push_back(to_mb(size) + 1);
  }
  roundings_ = doubled(largest_mb_ / 2);
  std::uint64_t live = 0;
  for (const Program* program : programs) live = std::max(live, program->peak_live_if_served);
  large_segments_ = doubled(to_mb(std::bit_ceil(std::min<std::uint64_t>(live, 1ULL << 50U))));
  // Bytes reserved in vain at the end of the last one count most where they are small.
  large_segments_.insert(large_segments_.begin(), {11, 12, 16, 24, 40, 48});
}

memory::AllocatorConfig Space::config(const Setting& setting) const {
  memory::AllocatorConfig config = rest_;
  config.expandable_segments = setting.is_expandable;
  if (setting.max_split_mb != 0)
    config.max_split_bytes = std::uint64_t{setting.max_split_mb} << 20U;
  if (setting.non_split_rounding_mb != 0) {
    config.max_non_split_rounding_bytes = std::uint64_t{setting.non_split_rounding_mb} << 20U;
  }
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
  if (setting.non_split_rounding_mb != 0)
    append(out, kKeys[5], std::to_string(setting.non_split_rounding_mb));
  const std::string rest = to_string(rest_);
  if (!rest.empty()) out += (out.empty() ? "" : ",") + rest;
  return out;
}

// --- Which are the same, and which are allowed ---------------------------------------------------

Setting Space::normal(Setting setting) const {
  if (!has_expandable_) setting.is_expandable = false;
  if (!has_max_split_) setting.max_split_mb = 0;
  if (!has_gc_) setting.gc_percent = 0;
  // Nothing is as large as that.
  if (setting.max_split_mb > largest_mb_) setting.max_split_mb = 0;
  const bool is_large_used =
      setting.is_expandable || setting.max_split_mb != 0 || sizes_.fills_large_segments();
  if (!has_large_segment_ || setting.large_segment_mb == kFactoryLargeMb || !is_large_used) {
    setting.large_segment_mb = 0;
  }
  if (!has_non_split_rounding_ || setting.max_split_mb == 0 ||
      setting.non_split_rounding_mb == large_mb(setting)) {
    setting.non_split_rounding_mb = 0;
  }
  setting.divisions = has_divisions_ ? sizes_.simplest(setting.divisions) : Divisions{};
  return setting;
}

std::uint32_t Space::large_mb(const Setting& setting) const noexcept {
  return setting.large_segment_mb != 0 ? setting.large_segment_mb : kFactoryLargeMb;
}

Setting Space::setting_of(const memory::AllocatorConfig& config) const {
  Setting setting;
  setting.is_expandable = config.expandable_segments;
  if (config.max_split_bytes != memory::AllocatorConfig::kUnlimited) {
    setting.max_split_mb = to_mb(config.max_split_bytes);
  }
  if (config.max_non_split_rounding_bytes) {
    setting.non_split_rounding_mb = to_mb(*config.max_non_split_rounding_bytes);
  }
  setting.large_segment_mb = to_mb(config.large_segment_bytes);
  setting.gc_percent =
      static_cast<std::uint32_t>(std::lround(config.garbage_collection_threshold * 100));
  for (std::size_t i = 0; i < setting.divisions.size(); ++i) {
    setting.divisions[i] = static_cast<std::uint32_t>(config.roundup_power2_divisions[i]);
  }
  return normal(setting);
}

bool Space::allows(const memory::AllocatorConfig& config) const {
  return std::ranges::none_of(left_out_, [&](const std::string& key) { return uses(config, key); });
}

// As the parser of that version has it.
bool Space::is_valid(const Setting& setting) const noexcept {
  const std::uint32_t large = large_mb(setting);
  const std::uint32_t least = version_ < memory::kPyTorch210 ? large + 1 : large;
  if (setting.max_split_mb != 0 && setting.max_split_mb < least) return false;
  if (setting.non_split_rounding_mb != 0 && setting.non_split_rounding_mb < least) return false;
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
  for (std::size_t k = 0; k < sizes_.last_interval(); ++k) {
    const auto end = static_cast<std::ptrdiff_t>(k) + 1;
    for (const std::uint32_t value : {2U, 4U, 8U}) {
      Setting above = base;
      std::fill(above.divisions.begin() + end, above.divisions.end(), value);
      out.push_back(above);
    }
    Setting below = base;
    std::fill(below.divisions.begin(), below.divisions.begin() + end, 4U);
    out.push_back(below);
    // Less and less, the larger the size.
    below.divisions[k + 1] = 2;
    std::fill(below.divisions.begin() + end + 1, below.divisions.end(), 0U);
    out.push_back(below);
  }
}

std::vector<Setting> Space::coarse(const Setting& base) const {
  std::vector<Setting> out;
  append(out, line(base, &Setting::max_split_mb, splits_));
  append(out, line(base, &Setting::large_segment_mb, large_segments_));
  append(out, line(base, &Setting::non_split_rounding_mb, roundings_));
  append(out, line(base, &Setting::gc_percent, kCollections));
  add_divisions(base, out);
  return checked(out);
}

// Both divisions and the last sizes only: what is large counts most.
std::vector<Setting> Space::few_divisions(const Setting& base) const {
  std::vector<Setting> out;
  const auto add = [&](std::size_t first, std::uint32_t value) {
    Setting setting = base;
    std::fill(setting.divisions.begin() + static_cast<std::ptrdiff_t>(first),
              setting.divisions.end(),
              value);
    out.push_back(setting);
  };
  for (const std::uint32_t value : {2U, 4U, 8U, 16U, 64U}) add(0, value);
  const std::size_t last = sizes_.last_interval();
  for (const std::uint32_t value : {2U, 4U}) {
    add(last - std::min<std::size_t>(last, 1), value);
    add(last - std::min<std::size_t>(last, 2), value);
  }
  return out;
}

// Neither half need help alone: blocks that are not split can be collected whole, or serve what is
// a little smaller; sizes that agree fill large segments.
std::vector<Setting> Space::pairs(const Setting& base) const {
  const std::array bounds{splits_.front(), 64U, 256U, 1024U};
  const std::vector<Setting> splits = line(base, &Setting::max_split_mb, bounds);
  const std::vector<Setting> roundings =
      line(base, &Setting::non_split_rounding_mb, from_end(roundings_, {1, 2, 4}));
  // Small ones, and ones that hold a good part of what is live.
  std::vector<std::uint32_t> sizes = from_end(large_segments_, {1, 2, 4});
  sizes.push_back(12);
  const std::vector<Setting> large = line(base, &Setting::large_segment_mb, sizes);
  const std::array percents{50U, 70U, 90U};
  const std::vector<Setting> collections = line(base, &Setting::gc_percent, percents);
  const std::vector<Setting> divisions = few_divisions(base);

  std::vector<Setting> out;
  add_pairs(base, splits, roundings, out);
  add_pairs(base, splits, collections, out);
  add_pairs(base, divisions, large, out);
  add_pairs(base, splits, large, out);
  add_pairs(base, large, collections, out);
  add_pairs(base, divisions, splits, out);
  return checked(out);
}

void Space::add_near_divisions(const Setting& base, std::vector<Setting>& out) const {
  for (std::size_t k = 0; k <= sizes_.last_interval(); ++k) {
    for (const std::uint32_t value : {0U, 2U, 4U, 8U, 16U}) {
      Setting setting = base;
      setting.divisions[k] = value;
      out.push_back(setting);
    }
  }
}

void Space::add_near_numbers(const Setting& base, std::vector<Setting>& out) const {
  for (const auto field :
       {&Setting::max_split_mb, &Setting::large_segment_mb, &Setting::non_split_rounding_mb}) {
    const std::uint32_t value = base.*field;
    if (value == 0) continue;
    const std::array values{value / 2, value / 4 * 3, value / 4 * 5, value / 2 * 3, value * 2};
    append(out, line(base, field, values));
  }
  if (const std::uint32_t percent = base.gc_percent; percent > 10) {
    const std::array values{percent - 10, percent - 5, percent + 5, percent + 10};
    append(out, line(base, &Setting::gc_percent, values));
  }
}

std::vector<Setting> Space::fine(const Setting& base) const {
  std::vector<Setting> out;
  for (const Field field : kNumbers) {
    Setting less = base;
    less.*field = 0;
    out.push_back(less);
  }
  add_near_numbers(base, out);
  add_near_divisions(base, out);
  return checked(out);
}

}  // namespace headroom::replay::internal

namespace headroom::replay {

std::span<const std::string_view> tunable_keys() noexcept { return internal::kKeys; }

}  // namespace headroom::replay
