#include "headroom/tensor/internal/op.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom::tensor {
namespace {

using memory::Category;

Operand operand_of(const ElementOperand& in, const Shape& shape) {
  Operand out;
  if (in.tensor == nullptr) {
    out.is_scalar = true;
    out.floating = in.scalar.to_double();
    out.integer = in.scalar.to_int();
    return out;
  }
  const Tensor& tensor = *in.tensor;
  out.data = pointer(tensor);
  out.dtype = tensor.dtype();
  out.is_bits = in.is_bits;
  const auto use = [&out](const Strides& strides) {
    std::copy(strides.begin(), strides.end(), out.strides.begin());
  };
  if (in.is_bits) {
    use(contiguous_strides(shape));
  } else if (tensor.shape() == shape) {
    use(tensor.strides());
  } else {
    use(broadcast_strides(tensor.shape(), tensor.strides(), shape));
  }
  return out;
}

// Dimensions i and i + 1 are one where every operand runs through both in one stride.
bool can_join(const ElementArgs& args, int i) {
  const auto joins = [&](const Operand& operand) {
    const auto at = static_cast<std::size_t>(i);
    return operand.strides[at] == operand.strides[at + 1] * args.shape[i + 1];
  };
  if (!joins(args.out)) return false;
  return std::all_of(args.in.begin(), args.in.begin() + args.inputs, joins);
}

void erase_dim(ElementArgs& args, int dim) {
  const auto erase = [dim](Operand& operand) {
    std::copy(
        operand.strides.begin() + dim + 1, operand.strides.end(), operand.strides.begin() + dim);
  };
  args.shape.erase(dim);
  erase(args.out);
  for (Operand& operand : args.in) erase(operand);
}

void join_dims(ElementArgs& args) {
  for (int i = args.shape.size() - 1; i >= 0; --i) {
    if (args.shape[i] == 1) erase_dim(args, i);
  }
  for (int i = args.shape.size() - 2; i >= 0; --i) {
    if (!can_join(args, i)) continue;
    args.shape[i + 1] *= args.shape[i];
    erase_dim(args, i);
  }
}

void run_over(ElementOp op,
              DType compute,
              const ElementOperand& out,
              const Shape& shape,
              std::int64_t numel,
              std::initializer_list<ElementOperand> operands) {
  if (numel == 0) return;
  ElementArgs args;
  args.op = op;
  args.compute = compute_type(compute);
  args.inputs = static_cast<int>(operands.size());
  args.numel = numel;
  args.shape = shape;
  args.out = operand_of(out, shape);
  std::transform(operands.begin(), operands.end(), args.in.begin(), [&](const ElementOperand& in) {
    return operand_of(in, shape);
  });
  join_dims(args);
  launch(to_string(op), *out.tensor, &Kernels::element, args);
}

// The bytes from the first to past the last element.
std::pair<device::DeviceAddress, device::DeviceAddress> extent(const Tensor& tensor) {
  std::uint64_t last = 0;
  for (int i = 0; i < tensor.dim(); ++i) {
    last += static_cast<std::uint64_t>((tensor.shape()[i] - 1) * tensor.strides()[i]);
  }
  const std::uint64_t size = headroom::size_bytes(tensor.dtype());
  return {tensor.address(), tensor.address() + (last + 1) * size};
}

// Two elements in one place: a dimension that was expanded.
bool overlaps_itself(const Tensor& tensor) {
  for (int i = 0; i < tensor.dim(); ++i) {
    if (tensor.shape()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.address() == b.address() && a.shape() == b.shape() && a.strides() == b.strides() &&
         a.dtype() == b.dtype();
}

// As PyTorch: what is not dense is not looked into.
bool lies_across(const Tensor& out, const Tensor& in) {
  if (&out.storage() != &in.storage() || is_same_view(out, in)) return false;
  if (!out.is_contiguous() || !in.is_contiguous() || out.numel() == 0 || in.numel() == 0)
    return false;
  const auto [out_begin, out_end] = extent(out);
  const auto [in_begin, in_end] = extent(in);
  return out_begin < in_end && in_begin < out_end;
}

}  // namespace

Tensor new_tensor(std::string_view op,
                  memory::Allocator& allocator,
                  const Shape& shape,
                  DType dtype,
                  memory::Category category) {
  const std::uint64_t bytes = checked_bytes(op, shape, headroom::size_bytes(dtype));
  const device::StreamId stream = current_stream_id(allocator.device());
  auto impl = std::make_shared<Impl>();
  impl->storage = std::make_shared<Storage>(allocator, bytes, stream, category);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->numel = static_cast<std::int64_t>(bytes / headroom::size_bytes(dtype));
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor new_output(std::string_view op, const Tensor& like, const Shape& shape, DType dtype) {
  return new_tensor(op, like.storage().allocator(), shape, dtype, Category::kActivation);
}

Tensor new_workspace(std::string_view op, const Tensor& like, const Shape& shape, DType dtype) {
  return new_tensor(op, like.storage().allocator(), shape, dtype, Category::kWorkspace);
}

Tensor new_bits(std::string_view op, const Tensor& like, std::int64_t numel) {
  return new_output(op, like, {(numel + 7) / 8}, DType::kU8);
}

Tensor new_view(const Tensor& of, const Shape& shape, const Strides& strides, std::int64_t offset) {
  const Impl& from = of.impl();
  auto impl = std::make_shared<Impl>();
  impl->storage = from.storage;
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  const std::uint64_t each = headroom::size_bytes(from.dtype);
  impl->numel = static_cast<std::int64_t>(checked_bytes("view", shape, each) / each);
  impl->dtype = from.dtype;
  impl->base = from.base ? from.base : of.shared();
  impl->is_untracked = from.is_untracked || !GradMode::is_enabled();
  return Tensor(std::move(impl));
}

void upload(const Tensor& to, std::vector<std::byte> bytes) {
  if (to.is_meta() || bytes.empty()) return;
  device::Device& device = to.device();
  const device::StreamId stream = current_stream_id(device);
  auto held = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  must(device.copy_to_device(to.address(), held->data(), held->size(), stream));
  const device::HostTask drop{
      .run = [](void* data) noexcept { delete static_cast<std::vector<std::byte>*>(data); },
      .data = held.get()};
  must(device.enqueue_host(stream, drop));
  (void)held.release();
}

void check_same_device(std::string_view op, const Tensor& a, const Tensor& b) {
  if (&a.device() == &b.device()) return;
  throw InvalidArgument(std::string(op) + ": operands are on different devices: " +
                        to_string(a.device().id()) + " and " + to_string(b.device().id()));
}

void check_can_hold(std::string_view op, const Tensor& self, DType result, const Shape& shape) {
  const DType own = self.dtype();
  const auto kind = [](DType dtype) {
    if (is_complex(dtype)) return 3;
    return is_floating(dtype) ? 2 : static_cast<int>(is_integral(dtype));
  };
  if (kind(result) > kind(own)) {
    throw InvalidArgument(std::string(op) + ": a result of type " + std::string(to_string(result)) +
                          " cannot be written into a tensor of " + std::string(to_string(own)));
  }
  if (self.shape() != shape) {
    throw InvalidArgument(std::string(op) + ": a result of shape " + to_string(shape) +
                          " cannot be written into " + to_string(self.shape()));
  }
}

void refuse_dtype(std::string_view op, DType dtype) {
  throw InvalidArgument(std::string(op) + ": not defined for " + std::string(to_string(dtype)));
}

void run_element(ElementOp op,
                 DType compute,
                 const Tensor& out,
                 std::initializer_list<ElementOperand> operands) {
  run_over(op, compute, out, out.shape(), out.numel(), operands);
}

void run_element_to_bits(ElementOp op,
                         DType compute,
                         const Tensor& bits,
                         const Shape& shape,
                         std::initializer_list<ElementOperand> operands) {
  run_over(op, compute, ElementOperand::bits(bits), shape, checked_numel("bits", shape), operands);
}

void check_overlap(std::string_view op,
                   const Tensor& out,
                   std::initializer_list<ElementOperand> operands) {
  if (overlaps_itself(out)) {
    throw InvalidArgument(std::string(op) + ": several elements of " + to_string(out.shape()) +
                          " are in one place (it was expanded); clone it before writing");
  }
  for (const ElementOperand& in : operands) {
    if (in.tensor == nullptr || !lies_across(out, *in.tensor)) continue;
    throw InvalidArgument(
        std::string(op) + ": what is written overlaps what is read: " + to_string(out.shape()) +
        " and " + to_string(in.tensor->shape()) + " of one storage; clone one of them");
  }
}

Tensor sum_to(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const int shift = grad.dim() - shape.size();
  Dims dims;
  for (int i = 0; i < grad.dim(); ++i) {
    if (i < shift || (shape[i - shift] == 1 && grad.shape()[i] != 1)) dims.push_back(i);
  }
  const Tensor summed = dims.empty() ? grad : sum(grad, dims, /*keepdim=*/true);
  return summed.view(shape);
}

}  // namespace headroom::tensor
