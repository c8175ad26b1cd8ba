// Copies: between types, strides and devices.
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// Of equal bytes in the same order: one contiguous run to another, in the order of the stream of
// whichever side is a GPU, else of the target.
device::DeviceResult<void> transfer(const Tensor& to, const Tensor& from) {
  device::Device& target = to.device();
  device::Device& source = from.device();
  const std::uint64_t bytes = to.size_bytes();
  const device::StreamId stream = current_stream_id(target);
  const bool source_is_host = source.properties().host_accessible;
  if (source.id().kind == target.id().kind) {
    return target.copy_peer(to.address(), source, from.address(), bytes, stream);
  }
  if (source_is_host) return target.copy_to_device(to.address(), pointer(from), bytes, stream);
  return source.copy_to_host(pointer(to), from.address(), bytes, current_stream_id(source));
}

void wait_for(device::Device& device) {
  must(device.synchronize_stream(current_stream_id(device)));
}

// The source's allocator does not know of the target's stream, so the storage itself waits there.
void keep_until_passed(const Tensor& held, const Tensor& to) {
  using Holder = std::shared_ptr<Storage>;
  auto holder = std::make_unique<Holder>(held.impl().storage);
  const device::HostTask task{.run = [](void* data) noexcept { delete static_cast<Holder*>(data); },
                              .data = holder.get()};
  must(to.device().enqueue_host(current_stream_id(to.device()), task));
  (void)holder.release();
}

// Between devices. The types are equal and both sides contiguous.
void copy_across(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (from.is_meta()) {
    throw InvalidArgument("copy_: a tensor on " + to_string(from.device().id()) +
                          " has no values to copy to " + to_string(to.device().id()));
  }
  if (to.is_meta() || to.numel() == 0) return;
  // The source may still be computed on its own stream.
  wait_for(from.device());
  must(transfer(to, from));
  non_blocking ? keep_until_passed(from, to) : wait_for(to.device());
}

// A contiguous tensor with from's values, of to's type, on from's device.
Tensor staged(const Tensor& from, DType dtype) { return from.to(dtype).contiguous(); }

void copy_values(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (&to.device() == &from.device()) {
    run_element(ElementOp::kCopy, promote_types(to.dtype(), from.dtype()), to, {from});
    return;
  }
  const Tensor dense = staged(from.expand(to.shape()), to.dtype());
  if (to.is_contiguous()) {
    copy_across(to, dense, non_blocking);
    return;
  }
  const Tensor landed = new_workspace("copy_", to, to.shape(), to.dtype());
  copy_across(landed, dense, non_blocking);
  run_element(ElementOp::kCopy, to.dtype(), to, {landed});
}

void refuse_to_drop(const char* op, DType from, DType to) {
  if (!is_complex(from) || is_complex(to)) return;
  throw InvalidArgument(std::string(op) + ": " + std::string(to_string(from)) + " to " +
                        std::string(to_string(to)) +
                        " would drop the imaginary part; take real(x) or abs(x)");
}

Tensor cast(const Tensor& x, DType dtype) {
  refuse_to_drop("to", x.dtype(), dtype);
  const Tensor y = new_output("to", x, x.shape(), dtype);
  run_element(ElementOp::kCopy, promote_types(dtype, x.dtype()), y, {x});
  return record({"to", kNoWork}, {&x}, y, {}, [own = x.dtype()](BackwardArgs& b) {
    b.set_grad(0, gradient_as(b.grad(), own));
  });
}

}  // namespace

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  const Tensor y = new_output("clone", *this, shape(), dtype());
  run_element(ElementOp::kCopy, dtype(), y, {*this});
  return record(
      {"clone", kNoWork}, {this}, y, {}, [](BackwardArgs& b) { b.set_grad(0, b.grad()); });
}

Tensor Tensor::detach() const {
  auto copy = std::make_shared<Impl>(impl());
  copy->grad_state = nullptr;
  copy->base = nullptr;
  copy->is_untracked = false;
  return Tensor(std::move(copy));
}

Tensor Tensor::to(DType wanted) const { return wanted == dtype() ? *this : cast(*this, wanted); }

Tensor Tensor::to(const Place& place, bool non_blocking) const {
  memory::Allocator& target = place.resolve();
  if (&target.device() == &device()) return *this;
  if (is_meta()) {
    throw InvalidArgument("to: a tensor on " + to_string(device().id()) +
                          " has no values to copy to " + to_string(target.device().id()));
  }
  const Tensor y = new_tensor("to", target, shape(), dtype(), storage().category());
  {
    const GradModeScope no_grad(false);
    copy_values(y, *this, non_blocking);
  }
  return record({"to", kNoWork}, {this}, y, {}, [back = &storage().allocator()](BackwardArgs& b) {
    b.set_grad(0, b.grad().to(*back));
  });
}

const Tensor& Tensor::copy_(const Tensor& from, bool non_blocking) const {
  if (broadcast_shapes("copy_", shape(), from.shape()) != shape()) {
    throw InvalidArgument("copy_: " + to_string(from.shape()) + " does not fit into " +
                          to_string(shape()));
  }
  refuse_to_drop("copy_", from.dtype(), dtype());
  check_in_place("copy_", *this);
  check_overlap("copy_", *this, {from});
  {
    const GradModeScope no_grad(false);
    copy_values(*this, from, non_blocking);
  }
  storage().bump_version();
  record_in_place({"copy_", kNoWork},
                  {this, &from},
                  *this,
                  {},
                  [shape = from.shape(), own = from.dtype(), back = &from.storage().allocator()](
                      BackwardArgs& b) {
                    if (b.needs(0)) b.set_grad(0, zeros_like(b.grad()));
                    if (b.needs(1))
                      b.set_grad(1, gradient_as(sum_to(b.grad(), shape), own).to(*back));
                  });
  return *this;
}

const Tensor& Tensor::fill_(Scalar value) const {
  check_in_place("fill_", *this);
  check_overlap("fill_", *this, {});
  run_element(ElementOp::kCopy, dtype(), *this, {value});
  storage().bump_version();
  record_in_place({"fill_", kNoWork}, {this}, *this, {}, [](BackwardArgs& b) {
    b.set_grad(0, zeros_like(b.grad()));
  });
  return *this;
}

}  // namespace headroom
