// Arithmetic of complex numbers. Written out: the library's product looks for infinities in every
// element, which keeps the loop from being vectorised.
#include <cmath>
#include <complex>

#include "headroom/tensor/cpu/internal/element_functions.h"

namespace headroom::tensor::cpu {
namespace {

using C64 = Complex64;

C64 c_copy(C64 a) { return a; }
C64 c_neg(C64 a) { return -a; }
C64 c_conj(C64 a) { return {a.real(), -a.imag()}; }
C64 c_real(C64 a) { return {a.real(), 0}; }
C64 c_imag(C64 a) { return {a.imag(), 0}; }
// In double precision squares neither overflow nor vanish.
double c_norm(C64 a) {
  const double re = a.real();
  const double im = a.imag();
  return re * re + im * im;
}
C64 c_abs(C64 a) { return {static_cast<float>(std::sqrt(c_norm(a))), 0}; }
C64 c_is_nan(C64 a) {
  return {static_cast<float>(std::isnan(a.real()) || std::isnan(a.imag())), 0};
}

C64 c_add(C64 a, C64 b) { return {a.real() + b.real(), a.imag() + b.imag()}; }
C64 c_sub(C64 a, C64 b) { return {a.real() - b.real(), a.imag() - b.imag()}; }
C64 c_mul(C64 a, C64 b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
C64 c_div(C64 a, C64 b) {
  const double scale = 1 / c_norm(b);
  const double re =
      static_cast<double>(a.real()) * b.real() + static_cast<double>(a.imag()) * b.imag();
  const double im =
      static_cast<double>(a.imag()) * b.real() - static_cast<double>(a.real()) * b.imag();
  return {static_cast<float>(re * scale), static_cast<float>(im * scale)};
}
C64 c_square(C64 a) { return c_mul(a, a); }
C64 c_reciprocal(C64 a) { return c_div({1, 0}, a); }
C64 c_eq(C64 a, C64 b) { return {static_cast<float>(a == b), 0}; }
C64 c_ne(C64 a, C64 b) { return {static_cast<float>(a != b), 0}; }
C64 c_complex(C64 re, C64 im) { return {re.real(), im.real()}; }

// Towards growing |x|; 0 at 0, as PyTorch.
C64 c_abs_backward(C64 g, C64 x) {
  const double size = std::sqrt(c_norm(x));
  if (size == 0) return {};
  return {static_cast<float>(g.real() * (x.real() / size)),
          static_cast<float>(g.real() * (x.imag() / size))};
}
C64 c_square_backward(C64 g, C64 x) { return c_mul(c_add(g, g), c_conj(x)); }
C64 c_reciprocal_backward(C64 g, C64 y) { return -c_mul(g, c_conj(c_mul(y, y))); }

C64 c_where(C64 condition, C64 value, C64 other) { return condition.real() != 0 ? value : other; }
C64 c_add_scaled(C64 a, C64 b, C64 scale) { return c_add(a, c_mul(scale, b)); }
C64 c_div_backward(C64 g, C64 a, C64 b) { return -c_mul(g, c_conj(c_div(c_div(a, b), b))); }

ElementFunction<C64> c_unary(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kNeg:
      return loop1<C64, c_neg>;
    case kConj:
      return loop1<C64, c_conj>;
    case kReal:
      return loop1<C64, c_real>;
    case kImag:
      return loop1<C64, c_imag>;
    case kAbs:
      return loop1<C64, c_abs>;
    case kIsNan:
      return loop1<C64, c_is_nan>;
    case kSquare:
      return loop1<C64, c_square>;
    case kReciprocal:
      return loop1<C64, c_reciprocal>;
    default:
      return loop1<C64, c_copy>;
  }
}

ElementFunction<C64> c_binary(ElementOp op) {
  using enum ElementOp;
  switch (op) {
    case kAdd:
      return loop2<C64, c_add>;
    case kSub:
      return loop2<C64, c_sub>;
    case kMul:
      return loop2<C64, c_mul>;
    case kDiv:
      return loop2<C64, c_div>;
    case kEq:
      return loop2<C64, c_eq>;
    case kNe:
      return loop2<C64, c_ne>;
    case kAbsBackward:
      return loop2<C64, c_abs_backward>;
    case kSquareBackward:
      return loop2<C64, c_square_backward>;
    case kReciprocalBackward:
      return loop2<C64, c_reciprocal_backward>;
    default:
      return loop2<C64, c_complex>;
  }
}

}  // namespace

ElementFunction<Complex64> complex_function(ElementOp op) {
  using enum ElementOp;
  if (op < kAdd) return c_unary(op);
  if (op < kWhere) return c_binary(op);
  if (op == kWhere) return loop3<C64, c_where>;
  return op == kDivBackward ? loop3<C64, c_div_backward> : loop3<C64, c_add_scaled>;
}

}  // namespace headroom::tensor::cpu
