// Sums of a block: sixteen side by side, which the compiler keeps in vector registers, then one in
// f64. Where the cuts are depends on the count alone, so the bits do too.
#pragma once

#include <cstdint>
#include <type_traits>

namespace headroom::tensor::cpu {

// What sums are kept in between blocks; integers wrap, which is defined for unsigned ones only.
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

}  // namespace headroom::tensor::cpu
