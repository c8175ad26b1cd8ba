// The sizes that programs ask for, and which lists of divisions round them alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headroom/replay/program.h"

namespace headroom::replay::internal {

// As AllocatorConfig::roundup_power2_divisions: an entry per power of two.
using Divisions = std::array<std::uint32_t, 16>;

[[nodiscard]] constexpr bool is_request(const Op& op) noexcept {
  return op.kind == OpKind::kAllocate || op.kind == OpKind::kFailed;
}

class RequestSizes {
 public:
  explicit RequestSizes(std::span<const Program* const> programs);

  [[nodiscard]] std::uint64_t largest_bytes() const noexcept {
    return sizes_.empty() ? 0 : sizes_.back().size_bytes;
  }
  // The entry of the largest.
  [[nodiscard]] std::size_t last_interval() const noexcept { return last_interval_; }
  // Something is served by the segments that large_segment_size_mb speaks of.
  [[nodiscard]] bool fills_large_segments() const noexcept { return fills_large_segments_; }

  // At most `count` sizes above `least_bytes`, those first of which most bytes were asked for.
  [[nodiscard]] std::vector<std::uint64_t> heaviest(std::uint64_t least_bytes,
                                                    std::size_t count) const;

  // The list with the fewest changes that rounds every size as this one does. Equal for equal
  // effects.
  [[nodiscard]] Divisions simplest(const Divisions& divisions) const;

 private:
  struct Size {
    std::uint64_t size_bytes = 0;
    std::uint64_t count = 0;
  };
  // Bit i stands for 2^i divisions, bit 0 for none.
  using Values = std::uint32_t;
  static constexpr std::size_t kValues = 17;

  void collect(std::span<const Program* const> programs);
  void compare_roundings();
  [[nodiscard]] Values like(std::size_t interval, std::uint32_t value) const;

  std::vector<Size> sizes_{};  // ascending
  std::size_t last_interval_ = 0;
  bool fills_large_segments_ = false;
  // By interval and value: the values that round every size of the interval alike.
  std::array<std::array<Values, kValues>, 16> alike_{};
};

}  // namespace headroom::replay::internal
