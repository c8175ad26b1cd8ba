// Helpers of every op: fresh outputs, workspaces, checks, and launches of element-wise
// kernels.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/tensor/internal/launch.h"
#include "headroom/tensor/tape.h"
#include "headroom/tensor/tensor.h"

namespace headroom::tensor {

// A contiguous tensor on the device of `like`, its elements not set: category activation, unless
// a scope says otherwise.
[[nodiscard]] Tensor new_output(std::string_view op,
                                const Tensor& like,
                                const Shape& shape,
                                DType dtype);
// Bytes of category workspace, for as long as the kernel needs them.
[[nodiscard]] Tensor new_workspace(std::string_view op,
                                   const Tensor& like,
                                   const Shape& shape,
                                   DType dtype);
// Room for a bit of each of `numel` elements.
[[nodiscard]] Tensor new_bits(std::string_view op, const Tensor& like, std::int64_t numel);
[[nodiscard]] Tensor new_tensor(std::string_view op,
                                memory::Allocator& allocator,
                                const Shape& shape,
                                DType dtype,
                                memory::Category category);
// A tensor over the storage of `of`. Checked by the caller to lie inside it.
[[nodiscard]] Tensor new_view(const Tensor& of,
                              const Shape& shape,
                              const Strides& strides,
                              std::int64_t offset);

// "add: operands are on different devices: cpu:0 and meta:0".
void check_same_device(std::string_view op, const Tensor& a, const Tensor& b);
// "tanh_: ..." unless the values of `result` can be kept in `self`.
void check_can_hold(std::string_view op, const Tensor& self, DType result, const Shape& shape);
// "sin: not defined for bool".
[[noreturn]] void refuse_dtype(std::string_view op, DType dtype);
inline void check_floating(std::string_view op, const Tensor& x) {
  if (!is_floating(x.dtype())) refuse_dtype(op, x.dtype());
}
inline void refuse_complex(std::string_view op, DType dtype) {
  if (is_complex(dtype)) refuse_dtype(op, dtype);
}

// The f32 parts of a c64 tensor, real and imaginary, as a last dimension of 2. No history.
[[nodiscard]] Tensor parts_of(const Tensor& x);
// A gradient in the type of what it belongs to. That of something real, from a complex op, is its
// real part.
[[nodiscard]] Tensor gradient_as(const Tensor& grad, DType own);

// Copies bytes of the host to a contiguous tensor, in the order of the current stream, and keeps
// them until it has passed. Nothing on meta.
void upload(const Tensor& to, std::vector<std::byte> bytes);

[[nodiscard]] inline void* pointer(const Tensor& tensor) {
  return reinterpret_cast<void*>(tensor.address());
}
// Runs a kernel on the current stream of like's device, with the workspace that its backend asks
// for from like's allocator.
template <class Args>
void launch(const char* op, const Tensor& like, Kernel<Args> Kernels::*family, const Args& args) {
  launch(op, like.storage().allocator(), family, args);
}

// --- Element-wise kernels -----------------------------------------------------------------------

// An operand: a tensor, bits over the whole output, or a number.
struct ElementOperand {
  // NOLINTBEGIN(google-explicit-constructor): operands are listed
  ElementOperand(const Tensor& operand) : tensor(&operand) {}
  ElementOperand(Scalar value) : scalar(value) {}
  // NOLINTEND(google-explicit-constructor)
  [[nodiscard]] static ElementOperand bits(const Tensor& packed) {
    ElementOperand out(packed);
    out.is_bits = true;
    return out;
  }

  const Tensor* tensor = nullptr;
  Scalar scalar{};
  bool is_bits = false;
};

// out = op(operands), each broadcast to the shape of `out`.
void run_element(ElementOp op,
                 DType compute,
                 const Tensor& out,
                 std::initializer_list<ElementOperand> operands);
// The same with the results, taken as true or false, packed into bits.
void run_element_to_bits(ElementOp op,
                         DType compute,
                         const Tensor& bits,
                         const Shape& shape,
                         std::initializer_list<ElementOperand> operands);

// Refuses a write to `out` that would change what is still to be read: two elements of out in one
// place, or an operand that lies across it. The very same view is fine.
void check_overlap(std::string_view op,
                   const Tensor& out,
                   std::initializer_list<ElementOperand> operands);

// The gradient of something broadcast from `shape`: summed back to it. Itself where nothing was.
[[nodiscard]] Tensor sum_to(const Tensor& grad, const Shape& shape);

}  // namespace headroom::tensor
