#include <cmath>
#include <type_traits>

#include "headroom/tensor/cpu/internal/element_functions.h"

namespace headroom::tensor::cpu {
namespace {

// Integers wrap, as in PyTorch, and wrapping is defined for unsigned ones only.
template <class C>
using Wrapping = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;

template <class C>
C add(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) + static_cast<Wrapping<C>>(b));
}
template <class C>
C sub(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) - static_cast<Wrapping<C>>(b));
}
template <class C>
C mul(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) * static_cast<Wrapping<C>>(b));
}
template <class C>
C divide(C a, C b) {
  return a / b;
}
// Of integers by 0 there is no right answer; 0 is one that does not end the process.
template <class C>
C floor_divide(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b == 0) return 0;
    if (b == -1) return sub(C{0}, a);
    const C quotient = a / b;
    return quotient - static_cast<C>(a % b != 0 && (a % b < 0) != (b < 0));
  } else {
    return std::floor(a / b);
  }
}
template <class C>
C remainder_of(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b == 0 || b == -1) return 0;
    const C rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    const C rest = std::fmod(a, b);
    return rest != C{0} && (rest < C{0}) != (b < C{0}) ? rest + b : rest;
  }
}
template <class C>
C power(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b < 0) return static_cast<C>(a == 1 ? 1 : (a == -1 ? (b % 2 == 0 ? 1 : -1) : 0));
    std::uint64_t result = 1;
    for (auto base = static_cast<std::uint64_t>(a); b > 0; b /= 2, base *= base) {
      if (b % 2 == 1) result *= base;
    }
    return static_cast<C>(result);
  } else {
    return std::pow(a, b);
  }
}
template <class C>
C maximum(C a, C b) {
  return a != a || a > b ? a : b;  // a NaN in b fails the comparison and is taken
}
template <class C>
C minimum(C a, C b) {
  return a != a || a < b ? a : b;
}
template <class C>
C equal(C a, C b) {
  return static_cast<C>(a == b);
}
template <class C>
C not_equal(C a, C b) {
  return static_cast<C>(a != b);
}
template <class C>
C less(C a, C b) {
  return static_cast<C>(a < b);
}
template <class C>
C less_equal(C a, C b) {
  return static_cast<C>(a <= b);
}
template <class C>
C greater(C a, C b) {
  return static_cast<C>(a > b);
}
template <class C>
C greater_equal(C a, C b) {
  return static_cast<C>(a >= b);
}
template <class C>
C logical_and(C a, C b) {
  return static_cast<C>(a != C{0} && b != C{0});
}
template <class C>
C logical_or(C a, C b) {
  return static_cast<C>(a != C{0} || b != C{0});
}
template <class C>
C logical_xor(C a, C b) {
  return static_cast<C>((a != C{0}) != (b != C{0}));
}

template <class C>
ElementFunction<C> comparison(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kEq:
      return loop2<C, equal<C>>;
    case kNe:
      return loop2<C, not_equal<C>>;
    case kLt:
      return loop2<C, less<C>>;
    case kLe:
      return loop2<C, less_equal<C>>;
    case kGt:
      return loop2<C, greater<C>>;
    case kGe:
      return loop2<C, greater_equal<C>>;
    case kAnd:
      return loop2<C, logical_and<C>>;
    case kOr:
      return loop2<C, logical_or<C>>;
    default:
      return loop2<C, logical_xor<C>>;
  }
}

}  // namespace

template <class C>
ElementFunction<C> binary_function(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kAdd:
      return loop2<C, add<C>>;
    case kSub:
      return loop2<C, sub<C>>;
    case kMul:
      return loop2<C, mul<C>>;
    case kDiv:
      // Integers are divided in f32.
      if constexpr (std::is_floating_point_v<C>) return loop2<C, divide<C>>;
      [[fallthrough]];
    case kFloorDivide:
      return loop2<C, floor_divide<C>>;
    case kRemainder:
      return loop2<C, remainder_of<C>>;
    case kPow:
      return loop2<C, power<C>>;
    case kMaximum:
      return loop2<C, maximum<C>>;
    case kMinimum:
      return loop2<C, minimum<C>>;
    default:
      return comparison<C>(op);
  }
}

template ElementFunction<float> binary_function<float>(ElementOp);
template ElementFunction<double> binary_function<double>(ElementOp);
template ElementFunction<std::int64_t> binary_function<std::int64_t>(ElementOp);

}  // namespace headroom::tensor::cpu
