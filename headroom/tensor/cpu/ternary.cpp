#include <cmath>
#include <type_traits>

#include "headroom/tensor/cpu/internal/element_functions.h"

namespace headroom::tensor::cpu {
namespace {

template <class C>
C where(C condition, C value, C other) {
  return condition != C{0} ? value : other;
}
template <class C>
C clamp(C x, C low, C high) {
  const C raised = x < low ? low : x;
  return raised > high ? high : raised;
}
template <class C>
C between(C x, C low, C high) {
  return static_cast<C>(x >= low && x <= high);
}
template <class C>
C add_scaled(C a, C b, C scale) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<std::uint64_t>(a) +
                          static_cast<std::uint64_t>(scale) * static_cast<std::uint64_t>(b));
  } else {
    return a + scale * b;
  }
}
template <class C>
C div_backward(C g, C a, C b) {
  return -g * (a / b) / b;
}
template <class C>
C pow_backward(C g, C x, C e) {
  return e == C{0} ? C{0} : g * e * std::pow(x, e - C{1});
}
// 0 to any power from 0 on is flat in it, the step at 0 itself included, as in PyTorch; y is then 0
// or 1, and infinite below.
template <class C>
C pow_backward_power(C g, C x, C y) {
  return x == C{0} && std::isfinite(y) ? C{0} : g * (y * std::log(x));
}

}  // namespace

template <class C>
ElementFunction<C> ternary_function(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kWhere:
      return loop3<C, where<C>>;
    case kClamp:
      return loop3<C, clamp<C>>;
    case kBetween:
      return loop3<C, between<C>>;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    if (op == kDivBackward) return loop3<C, div_backward<C>>;
    if (op == kPowBackward) return loop3<C, pow_backward<C>>;
    if (op == kPowBackwardPower) return loop3<C, pow_backward_power<C>>;
  }
  return loop3<C, add_scaled<C>>;
}

template ElementFunction<float> ternary_function<float>(ElementOp);
template ElementFunction<double> ternary_function<double>(ElementOp);
template ElementFunction<std::int64_t> ternary_function<std::int64_t>(ElementOp);

}  // namespace headroom::tensor::cpu
