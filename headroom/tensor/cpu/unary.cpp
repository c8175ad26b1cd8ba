#include <cmath>
#include <type_traits>

#include "headroom/tensor/cpu/internal/element_functions.h"
#include "headroom/tensor/cpu/internal/exponential.h"

namespace headroom::tensor::cpu {
namespace {

template <class C>
C copy(C x) {
  return x;
}
template <class C>
C neg(C x) {
  // Through unsigned: the least integer is its own opposite.
  if constexpr (std::is_integral_v<C>) return static_cast<C>(0U - static_cast<std::uint64_t>(x));
  return -x;
}
template <class C>
C abs_of(C x) {
  if constexpr (std::is_integral_v<C>) return x < 0 ? neg(x) : x;
  return std::abs(x);
}
template <class C>
C sign(C x) {
  return static_cast<C>(static_cast<int>(x > C{0}) - static_cast<int>(x < C{0}));
}
template <class C>
C square(C x) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(x));
  }
  return x * x;
}
template <class C>
C relu(C x) {
  return x < C{0} ? C{0} : x;  // NaN stays
}
template <class C>
C logical_not(C x) {
  return static_cast<C>(x == C{0});
}
template <class C>
C is_nan(C x) {
  return static_cast<C>(x != x);
}
template <class C>
C floor_of(C x) {
  return std::floor(x);
}
template <class C>
C ceil_of(C x) {
  return std::ceil(x);
}
template <class C>
C round_of(C x) {
  return std::nearbyint(x);
}
template <class C>
C trunc_of(C x) {
  return std::trunc(x);
}
template <class C>
C exp_of(C x) {
  return exponential(x);
}
template <class C>
C expm1_of(C x) {
  return std::expm1(x);
}
template <class C>
C log_of(C x) {
  return std::log(x);
}
template <class C>
C log1p_of(C x) {
  return std::log1p(x);
}
template <class C>
C log2_of(C x) {
  return std::log2(x);
}
template <class C>
C sqrt_of(C x) {
  return std::sqrt(x);
}
template <class C>
C rsqrt(C x) {
  return C{1} / std::sqrt(x);
}
template <class C>
C reciprocal(C x) {
  return C{1} / x;
}
template <class C>
C sin_of(C x) {
  return std::sin(x);
}
template <class C>
C cos_of(C x) {
  return std::cos(x);
}
template <class C>
C tanh_of(C x) {
  return std::tanh(x);
}
template <class C>
C sigmoid(C x) {
  return C{1} / (C{1} + exponential(-x));
}
template <class C>
C erf_of(C x) {
  return std::erf(x);
}
template <class C>
C gelu(C x) {
  return C{0.5} * x * (C{1} + std::erf(x * static_cast<C>(0.70710678118654752440)));
}
template <class C>
C silu(C x) {
  return x / (C{1} + exponential(-x));
}

template <class C>
ElementFunction<C> floating_function(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kFloor:
      return loop1<C, floor_of<C>>;
    case kCeil:
      return loop1<C, ceil_of<C>>;
    case kRound:
      return loop1<C, round_of<C>>;
    case kTrunc:
      return loop1<C, trunc_of<C>>;
    case kExp:
      return loop1<C, exp_of<C>>;
    case kExpm1:
      return loop1<C, expm1_of<C>>;
    case kLog:
      return loop1<C, log_of<C>>;
    case kLog1p:
      return loop1<C, log1p_of<C>>;
    case kLog2:
      return loop1<C, log2_of<C>>;
    case kSqrt:
      return loop1<C, sqrt_of<C>>;
    case kRsqrt:
      return loop1<C, rsqrt<C>>;
    case kReciprocal:
      return loop1<C, reciprocal<C>>;
    case kSin:
      return loop1<C, sin_of<C>>;
    case kCos:
      return loop1<C, cos_of<C>>;
    case kTanh:
      return loop1<C, tanh_of<C>>;
    case kSigmoid:
      return loop1<C, sigmoid<C>>;
    case kErf:
      return loop1<C, erf_of<C>>;
    case kGelu:
      return loop1<C, gelu<C>>;
    case kSilu:
      return loop1<C, silu<C>>;
    default:
      return loop1<C, copy<C>>;
  }
}

}  // namespace

template <class C>
ElementFunction<C> unary_function(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kCopy:
      return loop1<C, copy<C>>;
    case kNeg:
      return loop1<C, neg<C>>;
    case kAbs:
      return loop1<C, abs_of<C>>;
    case kSign:
      return loop1<C, sign<C>>;
    case kSquare:
      return loop1<C, square<C>>;
    case kRelu:
      return loop1<C, relu<C>>;
    case kLogicalNot:
      return loop1<C, logical_not<C>>;
    case kIsNan:
      return loop1<C, is_nan<C>>;
    default:
      break;
  }
  // Rounding leaves integers as they are; the rest never meets them.
  if constexpr (std::is_floating_point_v<C>) return floating_function<C>(op);
  return loop1<C, copy<C>>;
}

template ElementFunction<float> unary_function<float>(ElementOp);
template ElementFunction<double> unary_function<double>(ElementOp);
template ElementFunction<std::int64_t> unary_function<std::int64_t>(ElementOp);

}  // namespace headroom::tensor::cpu
