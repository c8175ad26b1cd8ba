#include "headroom/replay/internal/request_sizes.h"

#include <algorithm>
#include <bit>

#include "headroom/base/bytes.h"
#include "headroom/memory/config.h"

namespace headroom::replay::internal {

namespace {

std::size_t interval_of(std::uint64_t size_bytes) {
  const auto log = static_cast<std::size_t>(std::bit_width(std::max<std::uint64_t>(size_bytes, 1)));
  return log <= 21 ? 0 : std::min<std::size_t>(log - 21, 15);
}

std::size_t bit_of(std::uint32_t value) {
  return static_cast<std::size_t>(std::bit_width(std::max(value, 1U)) - 1);
}

std::uint32_t value_of(std::size_t bit) { return bit == 0 ? 0 : 1U << bit; }

}  // namespace

RequestSizes::RequestSizes(std::span<const Program* const> programs) {
  collect(programs);
  last_interval_ = interval_of(largest_bytes());
  fills_large_segments_ = std::ranges::any_of(sizes_, [](const Size& one) {
    return one.size_bytes > memory::kSmallBytes && one.size_bytes < memory::kOwnSegmentBytes;
  });
  compare_roundings();
}

void RequestSizes::collect(std::span<const Program* const> programs) {
  std::vector<std::uint64_t> all;
  for (const Program* program : programs) {
    for (const Op& op : program->ops) {
      if (is_request(op)) all.push_back(op.size_bytes);
    }
  }
  std::ranges::sort(all);
  for (const std::uint64_t size : all) {
    if (sizes_.empty() || sizes_.back().size_bytes != size) sizes_.push_back({.size_bytes = size});
    ++sizes_.back().count;
  }
}

// Two values are alike where they give one sum of what they add to each size: the finer one never
// adds more to any.
void RequestSizes::compare_roundings() {
  std::array<std::array<std::uint64_t, kValues>, 16> added{};
  for (std::size_t bit = 0; bit < kValues; ++bit) {
    memory::AllocatorConfig config;
    config.roundup_power2_divisions.fill(value_of(bit));
    for (const Size& one : sizes_) {
      added[interval_of(one.size_bytes)][bit] +=
          memory::rounded_size(one.size_bytes, config) - one.size_bytes;
    }
  }
  for (std::size_t k = 0; k < alike_.size(); ++k) {
    for (std::size_t a = 0; a < kValues; ++a) {
      for (std::size_t b = 0; b < kValues; ++b) {
        if (added[k][a] == added[k][b]) alike_[k][a] |= Values{1} << b;
      }
    }
  }
}

RequestSizes::Values RequestSizes::like(std::size_t interval, std::uint32_t value) const {
  const std::size_t bit = bit_of(value);
  return bit < kValues ? alike_[interval][bit] : Values{1};
}

Divisions RequestSizes::simplest(const Divisions& divisions) const {
  Divisions out{};
  std::size_t first = 0;  // of the run of intervals that one value can serve
  Values common = like(0, divisions[0]);
  const auto end_run = [&](std::size_t end) {
    const std::uint32_t value = value_of(static_cast<std::size_t>(std::countr_zero(common)));
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(first),
              out.begin() + static_cast<std::ptrdiff_t>(end),
              value);
    first = end;
  };
  for (std::size_t k = 1; k < out.size(); ++k) {
    const Values values = like(k, divisions[k]);
    if ((common & values) == 0) {
      end_run(k);
      common = values;
    } else {
      common &= values;
    }
  }
  end_run(out.size());
  return out;
}

std::vector<std::uint64_t> RequestSizes::heaviest(std::uint64_t least_bytes,
                                                  std::size_t count) const {
  std::vector<Size> large;
  for (const Size& one : sizes_) {
    if (one.size_bytes > least_bytes) large.push_back(one);
  }
  std::ranges::stable_sort(large, [](const Size& a, const Size& b) {
    return static_cast<double>(a.size_bytes) * static_cast<double>(a.count) >
           static_cast<double>(b.size_bytes) * static_cast<double>(b.count);
  });
  std::vector<std::uint64_t> out;
  for (const Size& one : large) {
    if (out.size() == count) break;
    out.push_back(one.size_bytes);
  }
  return out;
}

}  // namespace headroom::replay::internal
