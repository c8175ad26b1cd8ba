#include "headroom/tensor/tensor.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

using tensor::tape;

void must(const device::DeviceResult<void>& result) {
  if (!result) throw Error(to_string(result.error()));
}

void refuse_meta(const char* op, const Tensor& tensor) {
  if (!tensor.is_meta()) return;
  throw InvalidArgument(std::string(op) + ": a tensor on " + to_string(tensor.device().id()) +
                        " has no values");
}

// The elements in row-major order on the host, after the current stream.
template <class T>
std::vector<T> values_of(const char* op, const Tensor& from, DType dtype) {
  refuse_meta(op, from);
  const GradModeScope no_grad(false);
  const Tensor dense = from.to(dtype).contiguous();
  std::vector<T> out(static_cast<std::size_t>(from.numel()));
  device::Device& device = from.device();
  const device::StreamId stream = current_stream_id(device);
  if (!out.empty()) {
    must(device.copy_to_host(out.data(), dense.address(), dense.size_bytes(), stream));
  }
  must(device.synchronize_stream(stream));
  return out;
}

}  // namespace

tensor::Impl& Tensor::impl() const {
  if (impl_ == nullptr) throw InvalidArgument("an undefined tensor was used");
  return *impl_;
}

const Shape& Tensor::shape() const { return impl().shape; }
const Strides& Tensor::strides() const { return impl().strides; }
std::int64_t Tensor::size(int dim) const {
  return shape()[normalize_dim("size", shape().empty() ? kMaxDims : dim, shape())];
}
std::int64_t Tensor::numel() const { return impl().numel; }
DType Tensor::dtype() const { return impl().dtype; }
std::uint64_t Tensor::size_bytes() const {
  return static_cast<std::uint64_t>(numel()) * headroom::size_bytes(dtype());
}
bool Tensor::is_contiguous() const { return headroom::is_contiguous(shape(), strides()); }
device::Device& Tensor::device() const { return impl().storage->device(); }
bool Tensor::is_meta() const { return device().id().kind == device::DeviceKind::kMeta; }
tensor::Storage& Tensor::storage() const { return *impl().storage; }
std::int64_t Tensor::offset() const { return impl().offset; }

device::DeviceAddress Tensor::address() const {
  const tensor::Impl& own = impl();
  return own.storage->address() +
         static_cast<std::uint64_t>(own.offset) * headroom::size_bytes(own.dtype);
}

void* Tensor::host_data(DType wanted) const {
  if (wanted != dtype()) {
    throw InvalidArgument("data: the elements are " + std::string(to_string(dtype())) + ", not " +
                          std::string(to_string(wanted)));
  }
  refuse_meta("data", *this);
  if (!device().properties().host_accessible) {
    throw InvalidArgument("data: the processor cannot read " + to_string(device().id()) +
                          "; copy it to cpu");
  }
  return tensor::pointer(*this);
}

Scalar Tensor::item() const {
  refuse_meta("item", *this);
  if (numel() != 1) {
    throw InvalidArgument("item: " + to_string(shape()) + " has " + std::to_string(numel()) +
                          " elements, not one");
  }
  if (dtype() == DType::kBool) return to_integers()[0] != 0;
  if (!is_floating(dtype())) return to_integers()[0];
  return to_doubles()[0];
}

std::vector<double> Tensor::to_doubles() const {
  return values_of<double>("to_doubles", *this, DType::kF64);
}

std::vector<std::int64_t> Tensor::to_integers() const {
  return values_of<std::int64_t>("to_integers", *this, DType::kI64);
}

bool Tensor::requires_grad() const noexcept {
  if (impl_ == nullptr) return false;
  if (impl_->grad_state != nullptr) return impl_->grad_state->requires_grad();
  // A view of something that got a history after the view was made: a write to it, say.
  return impl_->base != nullptr && impl_->base->grad_state != nullptr && !impl_->is_untracked &&
         impl_->base->grad_state->requires_grad();
}

const Tensor& Tensor::requires_grad_(bool wanted) const {
  if (wanted && !is_floating(dtype())) {
    throw InvalidArgument("requires_grad_: only floating tensors have gradients, not " +
                          std::string(to_string(dtype())));
  }
  tape().require_grad(*this, wanted);
  return *this;
}

bool Tensor::is_leaf() const { return tape().is_leaf(*this); }
Tensor Tensor::grad() const { return tape().grad(*this); }
void Tensor::set_grad(const Tensor& gradient) const { tape().set_grad(*this, gradient); }
void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  tape().backward(*this, gradient, retain_graph);
}

}  // namespace headroom
