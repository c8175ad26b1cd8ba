// The settings that tune() tries: what they are, how they are written, which are near each other.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/replay/program.h"
#include "headroom/replay/tune.h"

namespace headroom::replay::internal {

// The values of the keys that are searched; 0 is the factory's.
struct Setting {
  bool is_expandable = false;
  std::uint32_t max_split_mb = 0;
  std::uint32_t large_segment_mb = 0;
  std::uint32_t gc_percent = 0;
  std::array<std::uint32_t, 16> divisions{};  // as AllocatorConfig::roundup_power2_divisions

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
  friend auto operator<=>(const Setting&, const Setting&) = default;
};

// How many things one has to set: a key each, a list one more for each change after the first.
[[nodiscard]] int parts(const Setting& setting) noexcept;

// Which keys differ from the factory's, but for expandable segments: a bit each.
[[nodiscard]] int keys_used(const Setting& setting) noexcept;

// `4`, or `[16:0,>:2]`: as every version reads it, or shorter where `>` starts behind the last key
// (from 2.10).
[[nodiscard]] std::string divisions_text(const std::array<std::uint32_t, 16>& divisions,
                                         memory::PyTorchVersion version);

class Space {
 public:
  Space(std::span<const Program* const> programs, const TuneOptions& options, bool has_limit);

  [[nodiscard]] memory::PyTorchVersion version() const noexcept { return version_; }
  // The settings with what was recorded for the keys that are not searched.
  [[nodiscard]] memory::AllocatorConfig config(const Setting& setting) const;
  [[nodiscard]] std::string text(const Setting& setting) const;
  [[nodiscard]] bool has_expandable() const noexcept { return has_expandable_; }

  // What is not searched, or makes no difference to this traffic, at its factory value; equal
  // settings for equal effects.
  [[nodiscard]] Setting normal(Setting setting) const;
  [[nodiscard]] Setting setting_of(const memory::AllocatorConfig& config) const;

  // One key at a time, beside the ones of `base`.
  [[nodiscard]] std::vector<Setting> grid(const Setting& base) const;
  // Small changes, one at a time.
  [[nodiscard]] std::vector<Setting> near(const Setting& setting) const;

 private:
  void add_divisions(const Setting& base, std::vector<Setting>& out) const;
  void add_numbers(const Setting& base, std::vector<Setting>& out) const;
  void near_divisions(const Setting& base, std::vector<Setting>& out) const;
  void near_numbers(const Setting& base, std::vector<Setting>& out) const;
  [[nodiscard]] bool is_valid(const Setting& setting) const noexcept;
  [[nodiscard]] std::vector<Setting> checked(const std::vector<Setting>& settings) const;

  memory::PyTorchVersion version_{};
  memory::AllocatorConfig rest_{};  // of the keys that are not searched
  bool has_expandable_ = true;
  bool has_max_split_ = true;
  bool has_divisions_ = true;
  bool has_gc_ = true;
  bool has_large_segment_ = true;
  std::size_t last_interval_ = 0;  // of the largest request, in `divisions`
  std::uint32_t largest_mb_ = 0;
};

}  // namespace headroom::replay::internal
