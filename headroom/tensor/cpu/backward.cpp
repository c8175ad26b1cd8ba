#include <cmath>
#include <type_traits>

#include "headroom/tensor/cpu/internal/element_functions.h"
#include "headroom/tensor/cpu/internal/exponential.h"

namespace headroom::tensor::cpu {
namespace {

template <class C>
C relu(C g, C y) {
  return y > C{0} ? g : C{0};
}
template <class C>
C sqrt_of(C g, C y) {
  return g / (C{2} * y);
}
template <class C>
C rsqrt(C g, C y) {
  return C{-0.5} * g * y * y * y;
}
template <class C>
C reciprocal(C g, C y) {
  return -g * y * y;
}
template <class C>
C tanh_of(C g, C y) {
  return g * (C{1} - y * y);
}
template <class C>
C sigmoid(C g, C y) {
  return g * y * (C{1} - y);
}
template <class C>
C expm1_of(C g, C y) {
  return g * (y + C{1});
}
template <class C>
C abs_of(C g, C x) {
  return x > C{0} ? g : (x < C{0} ? -g : C{0});
}
template <class C>
C square(C g, C x) {
  return C{2} * g * x;
}
template <class C>
C log1p_of(C g, C x) {
  return g / (C{1} + x);
}
template <class C>
C log2_of(C g, C x) {
  return g / (x * static_cast<C>(0.69314718055994530942));
}
template <class C>
C sin_of(C g, C x) {
  return g * std::cos(x);
}
template <class C>
C cos_of(C g, C x) {
  return -g * std::sin(x);
}
template <class C>
C erf_of(C g, C x) {
  return g * static_cast<C>(1.12837916709551257390) * exponential(-x * x);  // 2 / sqrt(pi)
}
template <class C>
C gelu(C g, C x) {
  const C below = C{0.5} * (C{1} + std::erf(x * static_cast<C>(0.70710678118654752440)));
  const C density =
      static_cast<C>(0.39894228040143267794) * exponential(C{-0.5} * x * x);  // 1 / sqrt(2 pi)
  return g * (below + x * density);
}
template <class C>
C silu(C g, C x) {
  const C s = C{1} / (C{1} + exponential(-x));
  return g * s * (C{1} + x * (C{1} - s));
}

template <class C>
ElementFunction<C> by_input(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kAbsBackward:
      return loop2<C, abs_of<C>>;
    case kSquareBackward:
      return loop2<C, square<C>>;
    case kLog1pBackward:
      return loop2<C, log1p_of<C>>;
    case kLog2Backward:
      return loop2<C, log2_of<C>>;
    case kSinBackward:
      return loop2<C, sin_of<C>>;
    case kCosBackward:
      return loop2<C, cos_of<C>>;
    case kErfBackward:
      return loop2<C, erf_of<C>>;
    case kGeluBackward:
      return loop2<C, gelu<C>>;
    default:
      return loop2<C, silu<C>>;
  }
}

}  // namespace

template <class C>
ElementFunction<C> backward_function(ElementOp op) {
  using enum ElementOp;
  if constexpr (std::is_floating_point_v<C>) {
    switch (op) {
      case kReluBackward:
        return loop2<C, relu<C>>;
      case kSqrtBackward:
        return loop2<C, sqrt_of<C>>;
      case kRsqrtBackward:
        return loop2<C, rsqrt<C>>;
      case kReciprocalBackward:
        return loop2<C, reciprocal<C>>;
      case kTanhBackward:
        return loop2<C, tanh_of<C>>;
      case kSigmoidBackward:
        return loop2<C, sigmoid<C>>;
      case kExpm1Backward:
        return loop2<C, expm1_of<C>>;
      default:
        return by_input<C>(op);
    }
  } else {
    return nullptr;  // integers have no gradients
  }
}

template ElementFunction<float> backward_function<float>(ElementOp);
template ElementFunction<double> backward_function<double>(ElementOp);
template ElementFunction<std::int64_t> backward_function<std::int64_t>(ElementOp);

}  // namespace headroom::tensor::cpu
