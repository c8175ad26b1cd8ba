#include "headroom/tensor/ops/conditional.h"

#include <limits>

#include "headroom/tensor/internal/binary.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

void check_condition(const char* name, const Tensor& condition) {
  if (condition.dtype() == DType::kBool) return;
  throw InvalidArgument(std::string(name) + ": the condition must be bool, not " +
                        std::string(to_string(condition.dtype())));
}

// One bit an element of `shape`.
Tensor pack(const char* name,
            ElementOp op,
            DType compute,
            const Tensor& like,
            const Shape& shape,
            std::initializer_list<ElementOperand> in) {
  Tensor bits = new_bits(name, like, checked_numel(name, shape));
  run_element_to_bits(op, compute, bits, shape, in);
  return bits;
}

// The gradient where the bits say so, and 0 elsewhere; or the other way round.
Tensor masked(const char* name, const Tensor& grad, const Tensor& bits, bool where_set) {
  refuse_second_derivative(name, {&grad});
  Tensor out = new_output(name, grad, grad.shape(), grad.dtype());
  const ElementOperand zero(Scalar(0));
  run_element(kWhere,
              grad.dtype(),
              out,
              {ElementOperand::bits(bits),
               where_set ? ElementOperand(grad) : zero,
               where_set ? zero : ElementOperand(grad)});
  return out;
}

// A place for the gradient of what may be a number.
struct Side {
  explicit Side(const ElementOperand& in)
      : is_tensor(in.tensor != nullptr),
        shape(is_tensor ? in.tensor->shape() : Shape()),
        dtype(is_tensor ? in.tensor->dtype() : DType::kF32) {}
  [[nodiscard]] Tensor take(const Tensor& grad) const {
    return gradient_as(sum_to(grad, shape), dtype);
  }

  bool is_tensor;
  Shape shape;
  DType dtype;
};

// Saved: the bits of what was chosen.
auto choice_backward(const char* name, const ElementOperand& a, const ElementOperand& b) {
  return [name, a = Side(a), b = Side(b)](BackwardArgs& args) {
    const Tensor bits = args.saved(0);
    if (args.needs(0)) args.set_grad(0, a.take(masked(name, args.grad(), bits, true)));
    if (args.needs(1)) args.set_grad(1, b.take(masked(name, args.grad(), bits, false)));
  };
}

Tensor select(const Tensor& condition,
              const ElementOperand& a,
              const ElementOperand& b,
              ResultSpec to) {
  check_condition("where", condition);
  to.shape = broadcast_shapes("where", condition.shape(), to.shape);
  const Tensor y = new_output("where", condition, to.shape, to.dtype);
  run_element(kWhere, to.dtype, y, {condition, a, b});
  const Tensor none;
  const Tensor& left = a.tensor != nullptr ? *a.tensor : none;
  const Tensor& right = b.tensor != nullptr ? *b.tensor : none;
  Tensor bits;
  if (any_needs_grad({&left, &right})) {
    bits = pack("where", kCopy, DType::kBool, condition, to.shape, {condition});
  }
  return record({"where", kEachOutput},
                {&left, &right},
                y,
                {save_output(bits, bits.defined())},
                choice_backward("where", a, b));
}

ResultSpec join_number(const char* name, const Tensor& condition, const Tensor& x, Scalar number) {
  check_same_device(name, condition, x);
  return {.shape = x.shape(), .dtype = promote_types(x.dtype(), number)};
}

Tensor extreme(
    const char* name, ElementOp op, ElementOp chooses_a, const Tensor& a, const Tensor& b) {
  const ResultSpec to = join(name, a, b);
  refuse_complex(name, to.dtype);
  const Tensor y = new_output(name, a, to.shape, to.dtype);
  run_element(op, to.dtype, y, {a, b});
  Tensor bits;
  if (any_needs_grad({&a, &b})) bits = pack(name, chooses_a, to.dtype, a, to.shape, {a, b});
  return record({name, kEachOutput},
                {&a, &b},
                y,
                {save_output(bits, bits.defined())},
                choice_backward(name, a, b));
}

struct Bounds {
  Scalar low;
  Scalar high;
};

// A bound that is left out is as far as the type goes.
Bounds bounds_for(const char* name,
                  const Tensor& x,
                  std::optional<Scalar> low,
                  std::optional<Scalar> high) {
  refuse_complex(name, x.dtype());
  if (!low && !high) throw InvalidArgument(std::string(name) + ": at least one bound is needed");
  if (is_floating(x.dtype())) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {low.value_or(-kInfinity), high.value_or(kInfinity)};
  }
  return {low.value_or(std::numeric_limits<std::int64_t>::min()),
          high.value_or(std::numeric_limits<std::int64_t>::max())};
}

DType clamped_type(const Tensor& x, const Bounds& bounds) {
  return promote_types(promote_types(x.dtype(), bounds.low), bounds.high);
}

auto clamp_backward() {
  return [](BackwardArgs& b) { b.set_grad(0, masked("clamp", b.grad(), b.saved(0), true)); };
}

Tensor clamp_bits(const Tensor& x, DType compute, const Bounds& bounds) {
  if (!needs_grad(x)) return {};
  return pack("clamp", kBetween, compute, x, x.shape(), {x, bounds.low, bounds.high});
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_same_device("where", condition, a);
  return select(condition, a, b, join("where", a, b));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return select(condition, a, b, join_number("where", condition, b, a));
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return select(condition, a, b, join_number("where", condition, a, b));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  check_condition("masked_fill", mask);
  // The value takes the type of the tensor, not the other way round.
  const ResultSpec to{.shape = x.shape(), .dtype = x.dtype()};
  check_same_device("masked_fill", x, mask);
  return select(mask, value, x, to);
}

Tensor maximum(const Tensor& a, const Tensor& b) { return extreme("maximum", kMaximum, kGe, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return extreme("minimum", kMinimum, kLe, a, b); }

Tensor clamp(const Tensor& x, std::optional<Scalar> low, std::optional<Scalar> high) {
  const Bounds bounds = bounds_for("clamp", x, low, high);
  const DType dtype = clamped_type(x, bounds);
  const Tensor y = new_output("clamp", x, x.shape(), dtype);
  run_element(kClamp, dtype, y, {x, bounds.low, bounds.high});
  const Tensor bits = clamp_bits(x, dtype, bounds);
  return record(
      {"clamp", kEachOutput}, {&x}, y, {save_output(bits, bits.defined())}, clamp_backward());
}

const Tensor& Tensor::clamp_(std::optional<Scalar> low, std::optional<Scalar> high) const {
  const Bounds bounds = bounds_for("clamp_", *this, low, high);
  check_can_hold("clamp_", *this, clamped_type(*this, bounds), shape());
  check_in_place("clamp_", *this);
  check_overlap("clamp_", *this, {});
  const Tensor bits = clamp_bits(*this, dtype(), bounds);
  run_element(kClamp, dtype(), *this, {*this, bounds.low, bounds.high});
  storage().bump_version();
  record_in_place({"clamp_", kEachOutput},
                  {this},
                  *this,
                  {save_output(bits, bits.defined())},
                  clamp_backward());
  return *this;
}

const Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  check_condition("masked_fill_", mask);
  check_same_device("masked_fill_", *this, mask);
  check_can_hold(
      "masked_fill_", *this, dtype(), broadcast_shapes("masked_fill_", shape(), mask.shape()));
  check_in_place("masked_fill_", *this);
  check_overlap("masked_fill_", *this, {mask});
  Tensor bits;
  if (needs_grad(*this)) bits = pack("masked_fill_", kCopy, DType::kBool, *this, shape(), {mask});
  run_element(kWhere, dtype(), *this, {mask, value, *this});
  storage().bump_version();
  record_in_place(
      {"masked_fill_", kEachOutput},
      {this},
      *this,
      {save_output(bits, bits.defined())},
      [](BackwardArgs& b) { b.set_grad(0, masked("masked_fill_", b.grad(), b.saved(0), false)); });
  return *this;
}

}  // namespace headroom
