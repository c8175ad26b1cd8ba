// The arithmetic of each element-wise op, as a loop over contiguous numbers of a compute type.
#pragma once

#include <cstdint>

#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/kernels.h"

namespace headroom::tensor::cpu {

// `out` may be one of the inputs. Inputs past the op's own are not read.
template <class C>
using ElementFunction = void (*)(C* out, const C* const* in, std::int64_t count);

template <class C>
[[nodiscard]] ElementFunction<C> unary_function(ElementOp op);
template <class C>
[[nodiscard]] ElementFunction<C> binary_function(ElementOp op);
template <class C>
[[nodiscard]] ElementFunction<C> backward_function(ElementOp op);
template <class C>
[[nodiscard]] ElementFunction<C> ternary_function(ElementOp op);
template <class C>
[[nodiscard]] ElementFunction<C> activation_function(ElementOp op);

[[nodiscard]] ElementFunction<Complex64> complex_function(ElementOp op);

// Never null: an op that is not defined for the type is refused before a kernel is launched.
template <class C>
[[nodiscard]] ElementFunction<C> element_function(ElementOp op) {
  if (op < ElementOp::kAdd) return unary_function<C>(op);
  if (op < ElementOp::kReluBackward) return binary_function<C>(op);
  if (op < ElementOp::kWhere) return backward_function<C>(op);
  if (op < ElementOp::kGeluTanh) return ternary_function<C>(op);
  return activation_function<C>(op);
}

// The same index of `out` and of an input may be the same element, never another: no iteration
// depends on one before.
template <class C, C (*F)(C)>
void loop1(C* out, const C* const* in, std::int64_t count) {
  wide([=, a = in[0]] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = F(a[i]);
  });
}

template <class C, C (*F)(C, C)>
void loop2(C* out, const C* const* in, std::int64_t count) {
  wide([=, a = in[0], b = in[1]] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = F(a[i], b[i]);
  });
}

template <class C, C (*F)(C, C, C)>
void loop3(C* out, const C* const* in, std::int64_t count) {
  wide([=, a = in[0], b = in[1], c = in[2]] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = F(a[i], b[i], c[i]);
  });
}

}  // namespace headroom::tensor::cpu
