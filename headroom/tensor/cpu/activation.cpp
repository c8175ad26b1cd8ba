#include <algorithm>
#include <cmath>
#include <type_traits>

#include "headroom/tensor/cpu/internal/element_functions.h"
#include "headroom/tensor/cpu/internal/exponential.h"

namespace headroom::tensor::cpu {
namespace {

template <class C>
C logistic(C x) {
  return C{1} / (C{1} + exponential(-x));
}
// exp(-|x|), which does not overflow.
template <class C>
C falling(C x) {
  return exponential(x < C{0} ? x : -x);
}

// log(1 + y) for y in [0, 1]: 2 atanh(t) with t = y / (2 + y) of at most 1/3, whose series is done
// for f32 after eight terms; without a call, so that loops around it are vectorised.
float log1p_of_part(float y) {
  const float t = y / (2.0F + y);
  const float s = t * t;
  float p = 1.0F / 15.0F;
  for (const float term : {1.0F / 13.0F, 1.0F / 11.0F, 1.0F / 9.0F, 1.0F / 7.0F, 0.2F, 1.0F / 3.0F})
    p = p * s + term;
  return 2.0F * (t + t * (p * s));
}
double log1p_of_part(double y) { return std::log1p(y); }

// 0.5 x (1 + tanh(u)) = x * logistic(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class C>
C gelu_tanh_gate(C x) {
  const C u = static_cast<C>(0.79788456080286535588) * (x + static_cast<C>(0.044715) * x * x * x);
  return logistic(C{2} * u);
}
template <class C>
C gelu_tanh(C x) {
  return x * gelu_tanh_gate(x);
}
template <class C>
C gelu_tanh_backward(C g, C x) {
  const C s = gelu_tanh_gate(x);
  const C slope =
      static_cast<C>(0.79788456080286535588) * (C{1} + C{3} * static_cast<C>(0.044715) * x * x);
  return g * (s + C{2} * x * s * (C{1} - s) * slope);
}

template <class C>
C softplus(C x) {
  return x > C{20} ? x : (x > C{0} ? x : C{0}) + log1p_of_part(falling(x));
}
template <class C>
C softplus_backward(C g, C x) {
  return x > C{20} ? g : g * logistic(x);
}

template <class C>
C hardswish(C x) {
  const C gate = x + C{3};
  return x * (gate < C{0} ? C{0} : (gate > C{6} ? C{6} : gate)) / C{6};
}
template <class C>
C hardswish_backward(C g, C x) {
  return x < C{-3} ? C{0} : (x > C{3} ? g : g * (x / C{3} + C{0.5}));
}

// tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), e = exp(x); 1 long before e overflows.
template <class C>
C mish_gate(C x) {
  const C e = exponential(x > C{20} ? C{20} : x);
  const C n = e * (e + C{2});
  return n / (n + C{2});
}
template <class C>
C mish(C x) {
  return x * mish_gate(x);
}
template <class C>
C mish_backward(C g, C x) {
  const C t = mish_gate(x);
  return g * (t + x * logistic(x) * (C{1} - t * t));
}

template <class C>
C log_sigmoid(C x) {
  return (x < C{0} ? x : C{0}) - log1p_of_part(falling(x));
}
template <class C>
C log_sigmoid_backward(C g, C x) {
  return g * logistic(-x);
}

template <class C>
C leaky_relu(C x, C slope) {
  return x > C{0} ? x : x * slope;
}
template <class C>
C leaky_relu_backward(C g, C y, C slope) {
  return y > C{0} ? g : g * slope;
}
template <class C>
C elu(C x, C alpha) {
  return x > C{0} ? x : alpha * std::expm1(x);
}
template <class C>
C elu_backward(C g, C y, C alpha) {
  return y > C{0} ? g : g * (y + alpha);
}
template <class C>
C inside(C x, C low, C high) {
  return static_cast<C>(x > low && x < high);
}

// --- Losses
// ---------------------------------------------------------------------------------------

template <class C>
C squared_difference(C x, C target) {
  return (x - target) * (x - target);
}
template <class C>
C squared_backward(C g, C x, C target) {
  return C{2} * g * (x - target);
}
template <class C>
C absolute_difference(C x, C target) {
  return std::abs(x - target);
}
template <class C>
C absolute_backward(C g, C x, C target) {
  return x > target ? g : (x < target ? -g : C{0});
}
// max(x, 0) - x * target, which cancel where x is large, in one product.
template <class C>
C logit_loss(C x, C target) {
  return (x > C{0} ? x * (C{1} - target) : -x * target) + log1p_of_part(falling(x));
}
template <class C>
C logit_loss_backward(C g, C x, C target) {
  return g * (logistic(x) - target);
}

template <class C>
ElementFunction<C> activation_backward(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kGeluTanhBackward:
      return loop2<C, gelu_tanh_backward<C>>;
    case kSoftplusBackward:
      return loop2<C, softplus_backward<C>>;
    case kHardswishBackward:
      return loop2<C, hardswish_backward<C>>;
    case kMishBackward:
      return loop2<C, mish_backward<C>>;
    case kLogSigmoidBackward:
      return loop2<C, log_sigmoid_backward<C>>;
    case kInside:
      return loop3<C, inside<C>>;
    case kLeakyReluBackward:
      return loop3<C, leaky_relu_backward<C>>;
    case kEluBackward:
      return loop3<C, elu_backward<C>>;
    case kSquaredBackward:
      return loop3<C, squared_backward<C>>;
    case kAbsoluteBackward:
      return loop3<C, absolute_backward<C>>;
    default:
      return loop3<C, logit_loss_backward<C>>;
  }
}

template <class C>
ElementFunction<C> activation_forward(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kGeluTanh:
      return loop1<C, gelu_tanh<C>>;
    case kSoftplus:
      return loop1<C, softplus<C>>;
    case kHardswish:
      return loop1<C, hardswish<C>>;
    case kMish:
      return loop1<C, mish<C>>;
    case kLogSigmoid:
      return loop1<C, log_sigmoid<C>>;
    case kLeakyRelu:
      return loop2<C, leaky_relu<C>>;
    case kElu:
      return loop2<C, elu<C>>;
    case kSquaredDifference:
      return loop2<C, squared_difference<C>>;
    case kAbsoluteDifference:
      return loop2<C, absolute_difference<C>>;
    default:
      return loop2<C, logit_loss<C>>;
  }
}

}  // namespace

template <class C>
ElementFunction<C> activation_function(ElementOp op) {
  if constexpr (std::is_floating_point_v<C>) {
    return op < ElementOp::kGeluTanhBackward ? activation_forward<C>(op)
                                             : activation_backward<C>(op);
  } else {
    return nullptr;  // integers are computed in f32
  }
}

template ElementFunction<float> activation_function<float>(ElementOp);
template ElementFunction<double> activation_function<double>(ElementOp);
template ElementFunction<std::int64_t> activation_function<std::int64_t>(ElementOp);

}  // namespace headroom::tensor::cpu
