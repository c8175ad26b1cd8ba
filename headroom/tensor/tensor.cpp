#include "headroom/tensor/tensor.h"

#include <algorithm>
#include <cstddef>

#include "headroom/base/error.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

using tensor::must;
using tensor::tape;

void refuse_meta(const char* op, const Tensor& tensor) {
  if (!tensor.is_meta()) return;
  throw InvalidArgument(std::string(op) + ": a tensor on " + to_string(tensor.device().id()) +
                        " has no values");
}

tensor::Operand operand_at(void* data, const Tensor& tensor) {
  tensor::Operand out{.data = data, .dtype = tensor.dtype()};
  std::copy(tensor.strides().begin(), tensor.strides().end(), out.strides.begin());
  return out;
}

// The bytes of a tensor the processor cannot reach, in row-major order.
std::vector<std::byte> fetched(const Tensor& from) {
  const GradModeScope no_grad(false);
  const Tensor dense = from.contiguous();
  std::vector<std::byte> out(dense.size_bytes());
  const device::StreamId stream = current_stream_id(from.device());
  if (!out.empty()) {
    must(from.device().copy_to_host(out.data(), dense.address(), out.size(), stream));
  }
  must(from.device().synchronize_stream(stream));
  return out;
}

template <class T>
std::vector<T> converted(const tensor::Operand& from, const Shape& shape, std::int64_t numel) {
  std::vector<T> out(static_cast<std::size_t>(numel));
  for (std::int64_t at = 0; at < numel; at += tensor::cpu::kBlock) {
    const std::int64_t count = std::min(tensor::cpu::kBlock, numel - at);
    tensor::cpu::load(from, shape, at, count, out.data() + at);
  }
  return out;
}

// The elements in row-major order on the host, after the current stream. Takes no device memory
// where the processor can read the device's.
template <class T>
std::vector<T> values_of(const char* op, const Tensor& from) {
  refuse_meta(op, from);
  device::Device& device = from.device();
  if (device.properties().host_accessible) {
    must(device.synchronize_stream(current_stream_id(device)));
    return converted<T>(operand_at(tensor::pointer(from), from), from.shape(), from.numel());
  }
  std::vector<std::byte> bytes = fetched(from);
  const Shape flat{from.numel()};
  const tensor::Operand dense{.data = bytes.data(), .dtype = from.dtype(), .strides = {1}};
  return converted<T>(dense, flat, from.numel());
}

void refuse_complex(const char* op, const Tensor& tensor) {
  if (!is_complex(tensor.dtype())) return;
  throw InvalidArgument(std::string(op) + ": the elements are c64; ask to_complex, or real(x)");
}

}  // namespace

namespace tensor {

void refuse_undefined() { throw InvalidArgument("an undefined tensor was used"); }

}  // namespace tensor

std::int64_t Tensor::size(int dim) const {
  return shape()[normalize_dim("size", shape().empty() ? kMaxDims : dim, shape())];
}
std::uint64_t Tensor::size_bytes() const {
  return static_cast<std::uint64_t>(numel()) * headroom::size_bytes(dtype());
}
bool Tensor::is_contiguous() const { return headroom::is_contiguous(shape(), strides()); }
bool Tensor::is_meta() const { return device().id().kind == device::DeviceKind::kMeta; }

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
  refuse_complex("item", *this);
  if (dtype() == DType::kBool) return to_integers()[0] != 0;
  if (!is_floating(dtype())) return to_integers()[0];
  return to_doubles()[0];
}

std::vector<double> Tensor::to_doubles() const {
  refuse_complex("to_doubles", *this);
  return values_of<double>("to_doubles", *this);
}

std::vector<Complex64> Tensor::to_complex() const {
  return values_of<Complex64>("to_complex", *this);
}

std::vector<std::int64_t> Tensor::to_integers() const {
  refuse_complex("to_integers", *this);
  return values_of<std::int64_t>("to_integers", *this);
}

bool Tensor::requires_grad() const noexcept {
  if (impl_ == nullptr) return false;
  if (impl_->grad_state != nullptr) return impl_->grad_state->requires_grad();
  // A view of something that got a history after the view was made: a write to it, say.
  return impl_->base != nullptr && impl_->base->grad_state != nullptr && !impl_->is_untracked &&
         impl_->base->grad_state->requires_grad();
}

const Tensor& Tensor::requires_grad_(bool wanted) const {
  if (wanted && !is_differentiable(dtype())) {
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
