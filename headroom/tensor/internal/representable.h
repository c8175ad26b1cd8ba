// Which numbers a floating type has: what one becomes when it is stored, and its neighbours.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "headroom/tensor/dtype.h"

namespace headroom::tensor {

// Calls f with the type that elements are stored as; c64 stands for its parts.
template <class F>
[[nodiscard]] auto with_floating_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double{});
    case DType::kF16:
      return f(Half{});
    case DType::kBF16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

[[nodiscard]] inline double stored(DType dtype, double value) {
  return with_floating_type(dtype, [value]<class S>(S) {
    if constexpr (std::is_floating_point_v<S>)
      return static_cast<double>(static_cast<S>(value));
    else
      return static_cast<double>(static_cast<float>(S(value)));
  });
}

namespace internal {

// The bits of 16-bit numbers of one sign are in their order.
template <class S>
[[nodiscard]] double below_16_bits(S value) {
  constexpr unsigned kSign = 0x8000U;
  const unsigned magnitude = value.bits & (kSign - 1);
  const bool falls = magnitude == 0 || (value.bits & kSign) != 0;
  value.bits = static_cast<std::uint16_t>(falls ? (kSign | (magnitude + 1)) : magnitude - 1);
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace internal

// The largest of the type that is less than `value`, which is one of its numbers and finite.
[[nodiscard]] inline double number_below(DType dtype, double value) {
  return with_floating_type(dtype, [value]<class S>(S) {
    if constexpr (std::is_floating_point_v<S>) {
      return static_cast<double>(
          std::nextafter(static_cast<S>(value), -std::numeric_limits<S>::infinity()));
    } else {
      return internal::below_16_bits(S(value));
    }
  });
}

[[nodiscard]] inline double number_above(DType dtype, double value) {
  return -number_below(dtype, -value);
}

}  // namespace headroom::tensor
