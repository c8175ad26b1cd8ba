// Sums of a block, and its largest: sixteen side by side, which the compiler keeps in vector
// registers, then one in f64. Where the cuts are depends on the count alone, so the bits do too.
#pragma once

#include <cstdint>
#include <type_traits>

namespace headroom::tensor::cpu {

// The type of sums between blocks; integers wrap, which is defined for unsigned ones only.
template <class C>
using Wide = std::conditional_t<std::is_floating_point_v<C>, double, std::uint64_t>;

// The sum of value(i), each a C, for i below `count`.
template <class C, class Value>
[[nodiscard]] Wide<C> add_up(std::int64_t count, Value&& value) {
  constexpr std::int64_t kLanes = 16;
  using Lane = std::conditional_t<std::is_floating_point_v<C>, C, std::uint64_t>;
  Lane lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<Lane>(value(i + j));
  }
  Wide<C> total{};
  for (; i < count; ++i) total += static_cast<Wide<C>>(value(i));
  for (const Lane lane : lanes) total += static_cast<Wide<C>>(lane);
  return total;
}

// The largest of `count` values and `than`; NaN where there is one.
template <class C>
[[nodiscard]] C largest(const C* values, std::int64_t count, C than) {
  constexpr std::int64_t kLanes = 32;
  const auto larger = [](C a, C b) { return a > b || a != a ? a : b; };
  C lanes[kLanes];
  for (C& lane : lanes) lane = than;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = larger(values[i + j], lanes[j]);
  }
  for (; i < count; ++i) than = larger(values[i], than);
  for (const C lane : lanes) than = larger(lane, than);
  return than;
}

}  // namespace headroom::tensor::cpu
