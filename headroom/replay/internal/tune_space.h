// The settings that tune() tries: what they are, how they are written, which are near each other.
//
// A line of a setting is all values of one key, the others as they are. The lines of the factory
// settings are settings of one key, their lines pairs, and on.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/replay/internal/request_sizes.h"
#include "headroom/replay/program.h"
#include "headroom/replay/tune.h"

namespace headroom::replay::internal {

// The values of the keys that are searched; 0 is the factory's.
struct Setting {
  bool is_expandable = false;
  std::uint32_t max_split_mb = 0;
  std::uint32_t non_split_rounding_mb = 0;
  std::uint32_t large_segment_mb = 0;
  std::uint32_t gc_percent = 0;
  Divisions divisions{};

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
  friend auto operator<=>(const Setting&, const Setting&) = default;
};

// How many things one has to set: a key each, a list one more for each change after the first.
[[nodiscard]] int parts(const Setting& setting) noexcept;

// Which keys differ from the factory's, but for expandable segments: a bit each.
[[nodiscard]] int keys_used(const Setting& setting) noexcept;

// `4`, or `[16:0,>:2]`: as every version reads it, or shorter where `>` starts behind the last key
// (from 2.10).
[[nodiscard]] std::string divisions_text(const Divisions& divisions,
                                         memory::PyTorchVersion version);

class Space {
 public:
  Space(std::span<const Program* const> programs, const TuneOptions& options, bool has_limit);

  [[nodiscard]] memory::PyTorchVersion version() const noexcept { return version_; }
  // The settings with what was recorded for the keys that are not searched.
  [[nodiscard]] memory::AllocatorConfig config(const Setting& setting) const;
  [[nodiscard]] std::string text(const Setting& setting) const;
  [[nodiscard]] bool has_expandable() const noexcept { return has_expandable_; }
  [[nodiscard]] bool has_large_segments() const noexcept { return has_large_segment_; }

  // A setting that is not searched, or makes no difference to this traffic, at its factory value;
  // equal settings for equal effects.
  [[nodiscard]] Setting normal(Setting setting) const;
  [[nodiscard]] Setting setting_of(const memory::AllocatorConfig& config) const;

  // Whether these settings use no key that is left out.
  [[nodiscard]] bool allows(const memory::AllocatorConfig& config) const;

  // The lines of a setting: every key with a few values over its whole range.
  [[nodiscard]] std::vector<Setting> coarse(const Setting& base) const;
  // A few values of two keys at once, where a line of either alone may not lead there.
  [[nodiscard]] std::vector<Setting> pairs(const Setting& base) const;
  // The neighbours: each number a little more or less, each range of sizes rounded otherwise, and
  // each key left out.
  [[nodiscard]] std::vector<Setting> fine(const Setting& base) const;

 private:
  void add_divisions(const Setting& base, std::vector<Setting>& out) const;
  [[nodiscard]] std::vector<Setting> few_divisions(const Setting& base) const;
  void add_near_divisions(const Setting& base, std::vector<Setting>& out) const;
  void add_near_numbers(const Setting& base, std::vector<Setting>& out) const;
  void leave_out(std::span<const std::string> keys);
  void leave_out(std::string_view key);
  void choose_numbers(std::span<const Program* const> programs);
  [[nodiscard]] std::uint32_t large_mb(const Setting& setting) const noexcept;
  [[nodiscard]] bool is_valid(const Setting& setting) const noexcept;
  [[nodiscard]] std::vector<Setting> checked(const std::vector<Setting>& settings) const;

  memory::PyTorchVersion version_{};
  memory::AllocatorConfig rest_{};  // of the keys that are not searched
  std::vector<std::string> left_out_{};
  bool has_expandable_ = true;
  bool has_max_split_ = true;
  bool has_non_split_rounding_ = true;
  bool has_divisions_ = true;
  bool has_gc_ = true;
  bool has_large_segment_ = true;
  RequestSizes sizes_;
  std::uint32_t largest_mb_ = 0;  // that a request may become
  // The values of a coarse line.
  std::vector<std::uint32_t> splits_{};
  std::vector<std::uint32_t> roundings_{};
  std::vector<std::uint32_t> large_segments_{};
};

}  // namespace headroom::replay::internal
