#include "headroom/tensor/ops/creation.h"

#include <cmath>
#include <limits>
#include <optional>

#include "headroom/tensor/device_random.h"
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/internal/representable.h"
#include "headroom/tensor/internal/sizes.h"

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
void draw(const char* op, GenerateArgs args, const Tensor& out) {
  const bool makes_two = args.op == GenerateOp::kInteger || out.dtype() == DType::kF64;
  const auto numel = static_cast<std::uint64_t>(out.numel());
  const std::uint64_t each = makes_two ? 2 : 4;
  const Generator::State state = default_generator(out.device()).take((numel + each - 1) / each);
  if (numel == 0) return;
  args.random = DeviceRandomScope::source_of(state, out.device());
  launch(op, out, &Kernels::generate, args);
}

std::string half_open(const std::string& low, const std::string& high) {
  return "[" + low + ", " + high + ")";
}

void check_uniform(DType dtype, double low, double high) {
  const bool is_finite = std::isfinite(stored(dtype, low)) && std::isfinite(stored(dtype, high));
  if (low <= high && is_finite && std::isfinite(high - low)) return;
  throw InvalidArgument("uniform_: no " + std::string(to_string(dtype)) + " to draw from " +
                        half_open(to_string(Scalar(low)), to_string(Scalar(high))));
}

void check_normal(double deviation) {
  if (deviation >= 0) return;
  throw InvalidArgument("normal_: a deviation of at least 0 is wanted, not " +
                        to_string(Scalar(deviation)));
}

// The last number of the type in [low, high), or low where that is the only one.
double last_before(DType dtype, double low, double high) {
  const double first = stored(dtype, low);
  const double end = stored(dtype, high);
  return end > first ? number_below(dtype, end) : first;
}

// The parts of a complex number are drawn as two; normal ones share the variance.
void draw_real(const char* name, GenerateOp op, const Tensor& out, double low, double high) {
  if (is_complex(out.dtype())) {
    const bool is_normal = op == GenerateOp::kNormal;
    const Tensor parts = parts_of(out);
    return draw_real(name, op, parts, low, is_normal ? high / std::sqrt(2.0) : high);
  }
  GenerateArgs args = generate_args(op, out);
  args.low = low;
  args.high = high;
  if (op == GenerateOp::kUniform) args.most = last_before(out.dtype(), low, high);
  draw(name, args, out);
}

Tensor draw_new(const char* name, GenerateOp op, const Shape& shape, const TensorOptions& options) {
  if (!is_differentiable(options.dtype)) refuse_dtype(name, options.dtype);
  const Tensor out = create(name, shape, options);
  draw_real(name, op, out, 0, 1);
  return finish(out, options);
}

const Tensor& draw_into(
    const char* name, GenerateOp op, const Tensor& self, double low, double high) {
  if (!is_differentiable(self.dtype())) refuse_dtype(name, self.dtype());
  check_in_place(name, self);
  check_overlap(name, self, {});
  draw_real(name, op, self, low, high);
  self.storage().bump_version();
  record_in_place({name, kEachOutput}, {&self}, self, {}, [](BackwardArgs& b) {
    b.set_grad(0, zeros_like(b.grad()));
  });
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

[[noreturn]] void refuse_range(const std::string& steps, Scalar start, Scalar end) {
  throw InvalidArgument("arange: " + steps + " lead from " + to_string(start) + " to " +
                        to_string(end));
}

// Nothing where there are too many. Whole numbers may be more apart than 63 bits can count.
std::optional<std::int64_t> count_of_integers(std::int64_t start,
                                              std::int64_t end,
                                              std::int64_t step) {
  const auto positive = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  const std::uint64_t distance = step > 0 ? positive(start, end) : positive(end, start);
  const std::uint64_t each = step > 0 ? positive(0, step) : positive(step, 0);
  return as_size(distance / each + static_cast<std::uint64_t>(distance % each > 0));
}

std::optional<std::int64_t> count_of_reals(double start, double end, double step) {
  const double count = std::ceil((end - start) / step);
  if (!(count < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

std::int64_t arange_count(Scalar start, Scalar end, Scalar step) {
  const bool is_real = start.is_floating() || end.is_floating() || step.is_floating();
  const double by = step.to_double();
  if (!(by > 0 || by < 0)) throw InvalidArgument("arange: the step is " + to_string(step));
  // False where one of them is not a number.
  const auto is_in_order = [is_real](Scalar a, Scalar b) {
    return is_real ? a.to_double() <= b.to_double() : a.to_int() <= b.to_int();
  };
  if (!(by > 0 ? is_in_order(start, end) : is_in_order(end, start))) {
    refuse_range("no steps of " + to_string(step), start, end);
  }
  const auto count = is_real ? count_of_reals(start.to_double(), end.to_double(), by)
                             : count_of_integers(start.to_int(), end.to_int(), step.to_int());
  if (!count) {
    refuse_range("more steps of " + to_string(step) + " than 64 bits can count", start, end);
  }
  return *count;
}

// --- Whole numbers at random ---------------------------------------------------------------------

struct Integers {
  std::int64_t first;
  std::int64_t last;
};

// Those of an integer type, or of bool.
Integers integers_of(DType dtype) {
  switch (dtype) {
    case DType::kI32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::kU8:
      return {0, std::numeric_limits<std::uint8_t>::max()};
    case DType::kBool:
      return {0, 1};
    default:
      return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
}

// Whether a whole number of a floating type is above one that may need more digits than it has.
bool is_above(double value, std::int64_t than) {
  return value >= 0x1p63 || (value >= -0x1p63 && static_cast<std::int64_t>(value) > than);
}

// The first and last of [low, high) that a floating type has: what is drawn between them is rounded
// to nothing outside. Nothing where it has none, or where the ends are past its range.
std::optional<Integers> integers_between(DType dtype, std::int64_t low, std::int64_t high) {
  double first = stored(dtype, static_cast<double>(low));
  double last = stored(dtype, static_cast<double>(high - 1));
  if (!std::isfinite(first) || !std::isfinite(last)) return std::nullopt;
  if (low > std::numeric_limits<std::int64_t>::min() && !is_above(first, low - 1)) {
    first = number_above(dtype, first);
  }
  if (is_above(last, high - 1)) last = number_below(dtype, last);
  if (first > last) return std::nullopt;
  return Integers{static_cast<std::int64_t>(first), static_cast<std::int64_t>(last)};
}

Integers integers_to_draw(DType dtype, std::int64_t low, std::int64_t high) {
  const std::string range = half_open(std::to_string(low), std::to_string(high));
  if (high <= low) throw InvalidArgument("randint: no integers in " + range);
  const Integers all = integers_of(dtype);
  std::optional<Integers> out = Integers{low, high - 1};
  if (is_differentiable(dtype)) {
    out = integers_between(dtype, low, high);
  } else if (low < all.first || high - 1 > all.last) {
    out.reset();
  }
  if (out) return *out;
  throw InvalidArgument("randint: " + std::string(to_string(dtype)) +
                        " cannot hold the integers of " + range);
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
  const std::int64_t count = arange_count(start, end, step);
  if (options.dtype == DType::kBool || is_complex(options.dtype)) {
    refuse_dtype("arange", options.dtype);
  }
  const Tensor out = create("arange", {count}, options);
  GenerateArgs args = generate_args(GenerateOp::kArange, out);
  args.low = start.to_double();
  args.high = step.to_double();
  args.integer_low = start.to_int();
  args.integer_range = static_cast<std::uint64_t>(step.to_int());
  if (count > 0) launch("arange", out, &Kernels::generate, args);
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
  const Integers range = integers_to_draw(options.dtype, low, high);
  const Tensor out = create("randint", shape, options);
  GenerateArgs args = generate_args(GenerateOp::kInteger, out);
  args.integer_low = range.first;
  args.integer_range =
      static_cast<std::uint64_t>(range.last) - static_cast<std::uint64_t>(range.first) + 1;
  draw("randint", args, out);
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
  check_uniform(dtype(), low, high);
  return draw_into("uniform_", GenerateOp::kUniform, *this, low, high);
}

const Tensor& Tensor::normal_(double mean, double deviation) const {
  check_normal(deviation);
  return draw_into("normal_", GenerateOp::kNormal, *this, mean, deviation);
}

}  // namespace headroom
