// Tensor: a handle to elements on a device, as in PyTorch. Copies of a handle are the same tensor;
// views are other tensors over the same storage; `clone` copies the elements.
//
//   Tensor x = randn({32, 64}, {.device = "cpu"});
//   Tensor y = relu(matmul(x, w)) + b;
//   y.transpose(0, 1).select(0, 3).fill_(0);      // writes into y
//   std::cout << y.sum() << '\n';
//
// On a `meta` device the same code runs without elements: shapes and allocations are real, values
// are not there, and asking for one is an error. Ops throw InvalidArgument before they allocate.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/tensor/dtype.h"
#include "headroom/tensor/place.h"
#include "headroom/tensor/scalar.h"
#include "headroom/tensor/shape.h"
#include "headroom/tensor/storage.h"
#include "headroom/tensor/stream.h"

namespace headroom {

namespace tensor {
class GradState;
struct Impl;
}  // namespace tensor

class Tensor {
 public:
  // No tensor at all; only defined() may be asked.
  Tensor() = default;
  explicit Tensor(std::shared_ptr<tensor::Impl> impl) noexcept : impl_(std::move(impl)) {}

  // --- What it is -----------------------------------------------------------------------------

  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }
  // Whether two handles are one tensor.
  [[nodiscard]] bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }
  [[nodiscard]] const Shape& shape() const;
  [[nodiscard]] const Strides& strides() const;
  [[nodiscard]] int dim() const { return shape().size(); }
  [[nodiscard]] std::int64_t size(int dim) const;
  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] DType dtype() const;
  // Of the elements, not of the storage behind them.
  [[nodiscard]] std::uint64_t size_bytes() const;
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] device::Device& device() const;
  [[nodiscard]] bool is_meta() const;
  [[nodiscard]] tensor::Storage& storage() const;
  // In elements from the start of the storage.
  [[nodiscard]] std::int64_t offset() const;
  // Where the first element is.
  [[nodiscard]] device::DeviceAddress address() const;
  // Writes to the storage so far.
  [[nodiscard]] std::uint64_t version() const { return storage().version(); }
  // The elements, for the host. Throws InvalidArgument where the processor cannot follow the
  // address, or for another type.
  template <class T>
  [[nodiscard]] T* data() const {
    return static_cast<T*>(host_data(kDTypeOf<T>));
  }

  // --- Values ---------------------------------------------------------------------------------

  // The value of a tensor of one element; waits for the current stream. Throws InvalidArgument for
  // more elements, and on meta.
  [[nodiscard]] Scalar item() const;
  template <class T>
  [[nodiscard]] T item() const {
    const Scalar value = item();
    if constexpr (std::is_integral_v<T>) return static_cast<T>(value.to_int());
    return static_cast<T>(value.to_double());
  }
  // All of them in order, converted; waits for the current stream.
  [[nodiscard]] std::vector<double> to_doubles() const;
  [[nodiscard]] std::vector<std::int64_t> to_integers() const;
  [[nodiscard]] std::vector<Complex64> to_complex() const;  // the other two refuse c64

  // --- Views: no elements move ----------------------------------------------------------------

  // One size may be -1. Throws when the strides do not allow it; reshape copies then.
  [[nodiscard]] Tensor view(Shape shape) const;
  [[nodiscard]] Tensor reshape(const Shape& shape) const;
  [[nodiscard]] Tensor transpose(int a, int b) const;
  [[nodiscard]] Tensor t() const;  // of a matrix
  [[nodiscard]] Tensor permute(const Dims& order) const;
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const;
  [[nodiscard]] Tensor operator[](std::int64_t index) const { return select(0, index); }
  [[nodiscard]] Tensor slice(int dim,
                             std::int64_t start,
                             std::int64_t end = INT64_MAX,
                             std::int64_t step = 1) const;
  [[nodiscard]] Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  [[nodiscard]] Tensor unsqueeze(int dim) const;
  [[nodiscard]] Tensor squeeze() const;
  [[nodiscard]] Tensor squeeze(int dim) const;
  // A size of -1 stays as it is.
  [[nodiscard]] Tensor expand(const Shape& shape) const;
  [[nodiscard]] Tensor flatten(int start = 0, int end = -1) const;
  [[nodiscard]] std::vector<Tensor> split(std::int64_t size, int dim = 0) const;
  [[nodiscard]] std::vector<Tensor> chunk(std::int64_t count, int dim = 0) const;
  // The same elements without their history.
  [[nodiscard]] Tensor detach() const;

  // --- Copies ---------------------------------------------------------------------------------

  [[nodiscard]] Tensor contiguous() const;  // itself where it is
  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor to(DType dtype) const;  // itself where it is of that type
  // Itself where it is there. Without `non_blocking`, waits for copies between devices.
  [[nodiscard]] Tensor to(const Place& place, bool non_blocking = false) const;

  // --- In place: names end in _ ---------------------------------------------------------------

  // NOLINTBEGIN(modernize-use-nodiscard): they are called for what they write
  // Without `non_blocking`, waits for a copy between devices.
  const Tensor& copy_(const Tensor& from, bool non_blocking = false) const;
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const { return fill_(0); }
  const Tensor& add_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& add_(Scalar other) const;
  const Tensor& sub_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& sub_(Scalar other) const;
  const Tensor& mul_(const Tensor& other) const;
  const Tensor& mul_(Scalar other) const;
  const Tensor& div_(const Tensor& other) const;
  const Tensor& div_(Scalar other) const;
  const Tensor& pow_(Scalar exponent) const;
  const Tensor& neg_() const;
  const Tensor& abs_() const;
  const Tensor& exp_() const;
  const Tensor& log_() const;
  const Tensor& sqrt_() const;
  const Tensor& rsqrt_() const;
  const Tensor& reciprocal_() const;
  const Tensor& square_() const;
  const Tensor& sin_() const;
  const Tensor& cos_() const;
  const Tensor& tanh_() const;
  const Tensor& sigmoid_() const;
  const Tensor& relu_() const;
  const Tensor& floor_() const;
  const Tensor& ceil_() const;
  const Tensor& round_() const;
  const Tensor& trunc_() const;
  const Tensor& clamp_(std::optional<Scalar> low, std::optional<Scalar> high = std::nullopt) const;
  const Tensor& masked_fill_(const Tensor& mask, Scalar value) const;
  const Tensor& scatter_(int dim, const Tensor& index, const Tensor& source) const;
  const Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source) const;
  const Tensor& uniform_(double low = 0, double high = 1) const;
  const Tensor& normal_(double mean = 0, double deviation = 1) const;
  const Tensor& operator+=(const Tensor& other) const { return add_(other); }
  const Tensor& operator-=(const Tensor& other) const { return sub_(other); }
  const Tensor& operator*=(const Tensor& other) const { return mul_(other); }
  const Tensor& operator/=(const Tensor& other) const { return div_(other); }
  const Tensor& operator+=(Scalar other) const { return add_(other); }
  const Tensor& operator-=(Scalar other) const { return sub_(other); }
  const Tensor& operator*=(Scalar other) const { return mul_(other); }
  const Tensor& operator/=(Scalar other) const { return div_(other); }
  // NOLINTEND(modernize-use-nodiscard)

  // --- The most used reductions; the rest are functions (ops/reduce.h) --------------------------

  [[nodiscard]] Tensor sum() const;
  [[nodiscard]] Tensor sum(const Dims& dims, bool keepdim = false) const;
  [[nodiscard]] Tensor mean() const;
  [[nodiscard]] Tensor mean(const Dims& dims, bool keepdim = false) const;

  // --- Gradients: answered by the tape (headroom/autograd) --------------------------------------

  [[nodiscard]] bool requires_grad() const noexcept;
  // NOLINTNEXTLINE(modernize-use-nodiscard): as above
  const Tensor& requires_grad_(bool wanted = true) const;
  [[nodiscard]] bool is_leaf() const;
  // Undefined until a backward has reached this leaf.
  [[nodiscard]] Tensor grad() const;
  void set_grad(const Tensor& gradient) const;
  // Without a gradient, this is one element and its gradient is 1.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;

  // --- Streams --------------------------------------------------------------------------------

  // The memory is in use by `stream` too: once dropped, it is not reused before what is queued
  // there by then has run.
  void record_stream(const Stream& stream) const { storage().record_stream(stream.id()); }

  // For ops and the tape. Throws InvalidArgument for an undefined tensor.
  [[nodiscard]] tensor::Impl& impl() const;
  [[nodiscard]] const std::shared_ptr<tensor::Impl>& shared() const noexcept { return impl_; }

 private:
  [[nodiscard]] void* host_data(DType wanted) const;

  std::shared_ptr<tensor::Impl> impl_;
};

namespace tensor {

[[noreturn]] void refuse_undefined();

// The object that a handle points to.
struct Impl {
  std::shared_ptr<Storage> storage;
  Shape shape{};
  Strides strides{};
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  DType dtype = DType::kF32;
  // The tensor that was viewed to make this one, never itself a view: a write to either is a write
  // to both, and the tape must see it. Null for what is not a view.
  std::shared_ptr<Impl> base{};
  // A view made while nothing was recorded: it has no part in base's history.
  bool is_untracked = false;
  std::shared_ptr<GradState> grad_state{};
};

}  // namespace tensor

// Inline: every op asks these of its operands.
inline tensor::Impl& Tensor::impl() const {
  if (impl_ == nullptr) tensor::refuse_undefined();
  return *impl_;
}
inline const Shape& Tensor::shape() const { return impl().shape; }
inline const Strides& Tensor::strides() const { return impl().strides; }
inline std::int64_t Tensor::numel() const { return impl().numel; }
inline DType Tensor::dtype() const { return impl().dtype; }
inline device::Device& Tensor::device() const { return impl().storage->device(); }
inline tensor::Storage& Tensor::storage() const { return *impl().storage; }
inline std::int64_t Tensor::offset() const { return impl().offset; }
inline device::DeviceAddress Tensor::address() const {
  const tensor::Impl& own = impl();
  return own.storage->address() +
         static_cast<std::uint64_t>(own.offset) * headroom::size_bytes(own.dtype);
}

// As PyTorch prints them.
[[nodiscard]] std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace headroom
