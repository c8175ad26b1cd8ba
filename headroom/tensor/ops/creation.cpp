#include "headroom/tensor/ops/creation.h"

#include <cmath>

#include "headroom/tensor/generator.h"
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

Tensor create(const char* op, const Shape& shape, const TensorOptions& options) {
  return new_tensor(op, options.device.resolve(), shape, options.dtype, memory::Category::kData);
}

const Tensor& finish(const Tensor& made, const TensorOptions& options) {
  if (options.requires_grad) made.requires_grad_();
  return made;
}

GenerateArgs generate_args(GenerateOp op, const Tensor& out) {
  GenerateArgs args;
  args.op = op;
  args.numel = out.numel();
  args.shape = out.shape();
  args.out = {.data = pointer(out), .dtype = out.dtype()};
  std::copy(out.strides().begin(), out.strides().end(), args.out.strides.begin());
  return args;
}

// How many counters an op uses is a rule of its shape and type: meta advances alike.
void draw(GenerateArgs args, const Tensor& out) {
  const bool makes_two = args.op == GenerateOp::kInteger || out.dtype() == DType::kF64;
  const auto numel = static_cast<std::uint64_t>(out.numel());
  const std::uint64_t each = makes_two ? 2 : 4;
  const Generator::State state = default_generator(out.device()).take((numel + each - 1) / each);
  if (numel == 0) return;
  args.seed = state.seed;
  args.offset = state.offset;
  launch(launch_on(out), &Kernels::generate, args);
}

// The parts of a complex number are drawn as two; normal ones share the variance.
void draw_real(GenerateOp op, const Tensor& out, double low, double high) {
  if (is_complex(out.dtype())) {
    const bool is_normal = op == GenerateOp::kNormal;
    const Tensor parts = parts_of(out);
    return draw_real(op, parts, low, is_normal ? high / std::sqrt(2.0) : high);
  }
  GenerateArgs args = generate_args(op, out);
  args.low = low;
  args.high = high;
  draw(args, out);
}

Tensor draw_new(const char* name, GenerateOp op, const Shape& shape, const TensorOptions& options) {
  if (!is_differentiable(options.dtype)) refuse_dtype(name, options.dtype);
  const Tensor out = create(name, shape, options);
  draw_real(op, out, 0, 1);
  return finish(out, options);
}

const Tensor& draw_into(
    const char* name, GenerateOp op, const Tensor& self, double low, double high) {
  if (!is_differentiable(self.dtype())) refuse_dtype(name, self.dtype());
  check_in_place(name, self);
  check_overlap(name, self, {});
  draw_real(op, self, low, high);
  self.storage().bump_version();
  record_in_place(
      name, {&self}, self, {}, [](BackwardArgs& b) { b.set_grad(0, zeros_like(b.grad())); });
  return self;
}

template <class T>
Tensor from_host(std::span<const T> values, const Shape& shape, const TensorOptions& options) {
  const std::int64_t numel = checked_numel("from", shape);
  if (numel != static_cast<std::int64_t>(values.size())) {
    throw InvalidArgument("from: " + std::to_string(values.size()) + " values for a tensor of " +
                          to_string(shape));
  }
  TensorOptions raw = options;
  raw.dtype = kDTypeOf<T>;
  const Tensor out = create("from", shape, raw);
  if (numel > 0) {
    device::Device& device = out.device();
    const device::StreamId stream = current_stream_id(device);
    must(device.copy_to_device(out.address(), values.data(), values.size_bytes(), stream));
    must(device.synchronize_stream(stream));  // the values may go away now
  }
  if (raw.dtype == options.dtype) return finish(out, options);
  const memory::CategoryScope scope(out.storage().category());
  return finish(out.to(options.dtype), options);
}

std::int64_t arange_count(double start, double end, double step) {
  if (step == 0 || std::isnan(start) || std::isnan(end) || std::isnan(step)) {
    throw InvalidArgument("arange: the step is " + std::to_string(step));
  }
  const double count = std::ceil((end - start) / step);
  if (count < 0) {
    throw InvalidArgument("arange: no steps of " + to_string(Scalar(step)) + " lead from " +
                          to_string(Scalar(start)) + " to " + to_string(Scalar(end)));
  }
  if (count > 9e18) throw InvalidArgument("arange: more elements than 64 bits can count");
  return static_cast<std::int64_t>(count);
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return finish(create("empty", shape, options), options);
}

Tensor full(const Shape& shape, Scalar value, const TensorOptions& options) {
  const Tensor out = create("full", shape, options);
  run_element(ElementOp::kCopy, options.dtype, out, {value});
  return finish(out, options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor empty_like(const Tensor& like) {
  return new_output("empty_like", like, like.shape(), like.dtype());
}

Tensor zeros_like(const Tensor& like) {
  Tensor out = new_output("zeros_like", like, like.shape(), like.dtype());
  run_element(ElementOp::kCopy, out.dtype(), out, {Scalar(0)});
  return out;
}

Tensor ones_like(const Tensor& like) {
  Tensor out = new_output("ones_like", like, like.shape(), like.dtype());
  run_element(ElementOp::kCopy, out.dtype(), out, {Scalar(1)});
  return out;
}

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options) {
  const std::int64_t count = arange_count(start.to_double(), end.to_double(), step.to_double());
  if (options.dtype == DType::kBool || is_complex(options.dtype)) {
    refuse_dtype("arange", options.dtype);
  }
  const Tensor out = create("arange", {count}, options);
  GenerateArgs args = generate_args(GenerateOp::kArange, out);
  args.low = start.to_double();
  args.high = step.to_double();
  args.integer_low = start.to_int();
  args.integer_range = static_cast<std::uint64_t>(step.to_int());
  if (count > 0) launch(launch_on(out), &Kernels::generate, args);
  return finish(out, options);
}

Tensor arange(std::int64_t end, TensorOptions options) { return arange(0, end, 1, options); }

Tensor rand(const Shape& shape, const TensorOptions& options) {
  return draw_new("rand", GenerateOp::kUniform, shape, options);
}

Tensor randn(const Shape& shape, const TensorOptions& options) {
  return draw_new("randn", GenerateOp::kNormal, shape, options);
}

Tensor randint(std::int64_t low,
               std::int64_t high,
               const Shape& shape,
               const TensorOptions& options) {
  if (high <= low) {
    throw InvalidArgument("randint: no integers in [" + std::to_string(low) + ", " +
                          std::to_string(high) + ")");
  }
  const Tensor out = create("randint", shape, options);
  GenerateArgs args = generate_args(GenerateOp::kInteger, out);
  args.integer_low = low;
  args.integer_range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  draw(args, out);
  return finish(out, options);
}

Tensor from(std::span<const double> values, const Shape& shape, const TensorOptions& options) {
  return from_host(values, shape, options);
}

Tensor from(std::span<const std::int64_t> values,
            const Shape& shape,
            const TensorOptions& options) {
  return from_host(values, shape, options);
}

Tensor from(std::span<const Complex64> values, const Shape& shape, const TensorOptions& options) {
  return from_host(values, shape, options);
}

Tensor scalar_tensor(Scalar value, const TensorOptions& options) {
  return full({}, value, options);
}

const Tensor& Tensor::uniform_(double low, double high) const {
  return draw_into("uniform_", GenerateOp::kUniform, *this, low, high);
}

const Tensor& Tensor::normal_(double mean, double deviation) const {
  return draw_into("normal_", GenerateOp::kNormal, *this, mean, deviation);
}

}  // namespace headroom
