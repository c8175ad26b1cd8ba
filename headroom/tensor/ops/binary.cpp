#include "headroom/tensor/ops/binary.h"

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/binary.h"
#include "headroom/tensor/ops/complex.h"
#include "headroom/tensor/ops/unary.h"

namespace headroom {
namespace tensor {

DType result_type(const Tensor& a, const Tensor& b) {
  if ((a.dim() == 0) == (b.dim() == 0)) return promote_types(a.dtype(), b.dtype());
  const DType wide = a.dim() == 0 ? b.dtype() : a.dtype();
  const DType number = a.dim() == 0 ? a.dtype() : b.dtype();
  if (is_complex(wide) || (is_floating(wide) && !is_complex(number)) ||
      (is_integral(wide) && !is_differentiable(number)))
    return wide;
  return promote_types(wide, number);
}

ResultSpec join(std::string_view op, const Tensor& a, const Tensor& b) {
  check_same_device(op, a, b);
  return {.shape = broadcast_shapes(op, a.shape(), b.shape()), .dtype = result_type(a, b)};
}

}  // namespace tensor

namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

DType divided(DType dtype) { return is_differentiable(dtype) ? dtype : DType::kF32; }

// Of two tensors; a third operand may be a number.
Tensor compute(const char* name,
               ElementOp op,
               const ResultSpec& to,
               std::initializer_list<ElementOperand> in) {
  const Tensor& like = *(in.begin()->tensor != nullptr ? in.begin() : in.begin() + 1)->tensor;
  Tensor out = new_output(name, like, to.shape, to.dtype);
  run_element(op, to.dtype, out, in);
  return out;
}

void compute_in_place(const char* name,
                      ElementOp op,
                      const Tensor& self,
                      const ResultSpec& to,
                      std::initializer_list<ElementOperand> in) {
  check_can_hold(name, self, to.dtype, to.shape);
  check_in_place(name, self);
  check_overlap(name, self, in);
  run_element(op, to.dtype, self, in);
  self.storage().bump_version();
}

ResultSpec joined_with(const Tensor& a, Scalar b) {
  return {.shape = a.shape(), .dtype = promote_types(a.dtype(), b)};
}

ResultSpec join_divided(const char* name, const Tensor& a, const Tensor& b) {
  ResultSpec out = join(name, a, b);
  out.dtype = divided(out.dtype);
  return out;
}

ResultSpec join_divided(const Tensor& a, Scalar b) {
  ResultSpec out = joined_with(a, b);
  out.dtype = divided(out.dtype);
  return out;
}

ResultSpec join_real(const char* name, const Tensor& a, const Tensor& b) {
  const ResultSpec out = join(name, a, b);
  refuse_complex(name, out.dtype);
  return out;
}

bool is_one(Scalar value) { return value.to_double() == 1.0; }

auto add_backward(const Tensor& a, const Tensor& b, Scalar alpha) {
  return [a = GradientTarget(a), b = GradientTarget(b), alpha](BackwardArgs& args) {
    if (args.needs(0)) args.set_grad(0, a.take(args.grad()));
    if (!args.needs(1)) return;
    const Tensor grad = b.take(args.grad());
    args.set_grad(1, is_one(alpha) ? grad : mul(grad, alpha));
  };
}

// Saved: a, where b wants a gradient, and the other way round.
auto mul_backward(const Tensor& a, const Tensor& b) {
  return [a = GradientTarget(a), b = GradientTarget(b)](BackwardArgs& args) {
    if (args.needs(0)) args.set_grad(0, a.take(mul(args.grad(), conj(args.saved(1)))));
    if (args.needs(1)) args.set_grad(1, b.take(mul(args.grad(), conj(args.saved(0)))));
  };
}

// Saved: a, where b wants a gradient, and b.
auto div_backward(const Tensor& a, const Tensor& b) {
  return [a = GradientTarget(a), b = GradientTarget(b)](BackwardArgs& args) {
    const Tensor divisor = args.saved(1);
    if (args.needs(0)) args.set_grad(0, a.take(div(args.grad(), conj(divisor))));
    if (!args.needs(1)) return;
    const Tensor dividend = args.saved(0);
    refuse_second_derivative("div", {&args.grad(), &dividend, &divisor});
    const ResultSpec to{.shape = args.grad().shape(), .dtype = args.grad().dtype()};
    args.set_grad(1, b.take(compute("div", kDivBackward, to, {args.grad(), dividend, divisor})));
  };
}

auto scale_backward(DType own, Scalar scale, ElementOp op) {
  return [own, scale, op](BackwardArgs& args) {
    const Tensor grad = op == kMul ? mul(args.grad(), scale) : div(args.grad(), scale);
    args.set_grad(0, gradient_as(grad, own));
  };
}

// Saved: the base.
auto pow_backward(DType own, Scalar power) {
  return [own, power](BackwardArgs& args) {
    const Tensor base = args.saved(0);
    refuse_second_derivative("pow", {&args.grad(), &base});
    const ResultSpec to{.shape = args.grad().shape(), .dtype = args.grad().dtype()};
    args.set_grad(0, compute("pow", kPowBackward, to, {args.grad(), base, power}).to(own));
  };
}

auto pass_on(DType own) {
  return [own](BackwardArgs& args) { args.set_grad(0, gradient_as(args.grad(), own)); };
}

// The part of a tensor that a backward needs, and that is about to be overwritten.
Tensor before_write(const Tensor& self, bool wanted) {
  return wanted ? self.detach().clone() : Tensor();
}

Tensor add_named(const char* name, const Tensor& a, const Tensor& b, Scalar alpha) {
  const ResultSpec to = join(name, a, b);
  const Tensor y = is_one(alpha) ? compute(name, kAdd, to, {a, b})
                                 : compute(name, kAddScaled, to, {a, b, alpha});
  return record({name, kEachOutput}, {&a, &b}, y, {}, add_backward(a, b, alpha));
}

const Tensor& add_named_in_place(const char* name,
                                 const Tensor& self,
                                 const Tensor& b,
                                 Scalar alpha) {
  const ResultSpec to = join(name, self, b);
  is_one(alpha) ? compute_in_place(name, kAdd, self, to, {self, b})
                : compute_in_place(name, kAddScaled, self, to, {self, b, alpha});
  record_in_place({name, kEachOutput}, {&self, &b}, self, {}, add_backward(self, b, alpha));
  return self;
}

// Of the least integer itself, as integers wrap.
Scalar opposite(Scalar value) {
  if (value.is_floating()) return {-value.to_double()};
  return {static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value.to_int()))};
}

Tensor shift(const char* name, const Tensor& a, Scalar by) {
  const Tensor y = compute(name, kAdd, joined_with(a, by), {a, by});
  return record({name, kEachOutput}, {&a}, y, {}, pass_on(a.dtype()));
}

const Tensor& shift_in_place(const char* name, const Tensor& self, Scalar by) {
  compute_in_place(name, kAdd, self, joined_with(self, by), {self, by});
  record_in_place({name, kEachOutput}, {&self}, self, {}, pass_on(self.dtype()));
  return self;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) { return add_named("add", a, b, alpha); }

Tensor add(const Tensor& a, Scalar b) { return shift("add", a, b); }

Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) {
  return add_named("sub", a, b, opposite(alpha));
}

Tensor sub(const Tensor& a, Scalar b) { return shift("sub", a, opposite(b)); }

Tensor sub(Scalar a, const Tensor& b) {
  const Tensor y = compute("sub", kSub, joined_with(b, a), {a, b});
  return record({"sub", kEachOutput}, {&b}, y, {}, [own = b.dtype()](BackwardArgs& args) {
    args.set_grad(0, neg(args.grad()).to(own));
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = compute("mul", kMul, join("mul", a, b), {a, b});
  return record({"mul", kEachOutput},
                {&a, &b},
                y,
                {save_input(a, needs_grad(b)), save_input(b, needs_grad(a))},
                mul_backward(a, b));
}

Tensor mul(const Tensor& a, Scalar b) {
  const Tensor y = compute("mul", kMul, joined_with(a, b), {a, b});
  return record({"mul", kEachOutput}, {&a}, y, {}, scale_backward(a.dtype(), b, kMul));
}

Tensor div(const Tensor& a, const Tensor& b) {
  const Tensor y = compute("div", kDiv, join_divided("div", a, b), {a, b});
  return record({"div", kEachOutput},
                {&a, &b},
                y,
                {save_input(a, needs_grad(b)), save_input(b)},
                div_backward(a, b));
}

Tensor div(const Tensor& a, Scalar b) {
  const Tensor y = compute("div", kDiv, join_divided(a, b), {a, b});
  return record({"div", kEachOutput}, {&a}, y, {}, scale_backward(a.dtype(), b, kDiv));
}

// The output serves where the number does not matter: -g * (s / b) / b is -g * y / b.
Tensor div(Scalar a, const Tensor& b) {
  const ResultSpec to = join_divided(b, a);
  const Tensor y = compute("div", kDiv, to, {a, b});
  return record(
      {"div", kEachOutput}, {&b}, y, {save_input(b)}, [a, own = b.dtype()](BackwardArgs& args) {
        const Tensor divisor = args.saved(0);
        refuse_second_derivative("div", {&args.grad(), &divisor});
        const ResultSpec like{.shape = args.grad().shape(), .dtype = args.grad().dtype()};
        args.set_grad(0, compute("div", kDivBackward, like, {args.grad(), a, divisor}).to(own));
      });
}

Tensor pow(const Tensor& base, Scalar power) {
  refuse_complex("pow", base.dtype());
  if (Autocast::is_enabled()) return in_f32([power](auto&& x) { return pow(x, power); }, base);
  const Tensor y = compute("pow", kPow, joined_with(base, power), {base, power});
  return record(
      {"pow", kEachOutput}, {&base}, y, {save_input(base)}, pow_backward(base.dtype(), power));
}

Tensor pow(const Tensor& base, const Tensor& power) {
  if (Autocast::is_enabled()) return in_f32([](auto&&... x) { return pow(x...); }, base, power);
  const ResultSpec to = join_real("pow", base, power);
  const Tensor y = compute("pow", kPow, to, {base, power});
  return record(
      {"pow", kEachOutput},
      {&base, &power},
      y,
      {save_input(base), save_input(power, needs_grad(base)), save_output(y, needs_grad(power))},
      [a = GradientTarget(base), b = GradientTarget(power)](BackwardArgs& args) {
        const Tensor x = args.saved(0);
        refuse_second_derivative("pow", {&args.grad(), &x});
        const ResultSpec like{.shape = args.grad().shape(), .dtype = args.grad().dtype()};
        if (args.needs(0)) {
          args.set_grad(
              0, a.take(compute("pow", kPowBackward, like, {args.grad(), x, args.saved(1)})));
        }
        if (args.needs(1)) {
          args.set_grad(
              1, b.take(compute("pow", kPowBackwardPower, like, {args.grad(), x, args.saved(2)})));
        }
      });
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return compute("floor_divide", kFloorDivide, join_real("floor_divide", a, b), {a, b});
}

Tensor remainder(const Tensor& a, const Tensor& b) {
  return compute("remainder", kRemainder, join_real("remainder", a, b), {a, b});
}

// --- In place ------------------------------------------------------------------------------------

const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  return add_named_in_place("add_", *this, other, alpha);
}

const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  return add_named_in_place("sub_", *this, other, opposite(alpha));
}

const Tensor& Tensor::add_(Scalar other) const { return shift_in_place("add_", *this, other); }

const Tensor& Tensor::sub_(Scalar other) const {
  return shift_in_place("sub_", *this, opposite(other));
}

const Tensor& Tensor::mul_(const Tensor& other) const {
  const ResultSpec to = join("mul_", *this, other);
  const Tensor before = before_write(*this, needs_grad(other));
  compute_in_place("mul_", kMul, *this, to, {*this, other});
  record_in_place({"mul_", kEachOutput},
                  {this, &other},
                  *this,
                  {save_output(before, before.defined()), save_input(other, needs_grad(*this))},
                  mul_backward(*this, other));
  return *this;
}

const Tensor& Tensor::mul_(Scalar other) const {
  compute_in_place("mul_", kMul, *this, joined_with(*this, other), {*this, other});
  record_in_place({"mul_", kEachOutput}, {this}, *this, {}, scale_backward(dtype(), other, kMul));
  return *this;
}

const Tensor& Tensor::div_(const Tensor& other) const {
  const ResultSpec to = join_divided("div_", *this, other);
  const Tensor before = before_write(*this, needs_grad(other));
  compute_in_place("div_", kDiv, *this, to, {*this, other});
  record_in_place({"div_", kEachOutput},
                  {this, &other},
                  *this,
                  {save_output(before, before.defined()), save_input(other)},
                  div_backward(*this, other));
  return *this;
}

const Tensor& Tensor::div_(Scalar other) const {
  compute_in_place("div_", kDiv, *this, join_divided(*this, other), {*this, other});
  record_in_place({"div_", kEachOutput}, {this}, *this, {}, scale_backward(dtype(), other, kDiv));
  return *this;
}

const Tensor& Tensor::pow_(Scalar exponent) const {
  refuse_complex("pow_", dtype());
  const Tensor before = before_write(*this, needs_grad(*this));
  compute_in_place("pow_", kPow, *this, joined_with(*this, exponent), {*this, exponent});
  record_in_place({"pow_", kEachOutput},
                  {this},
                  *this,
                  {save_output(before, before.defined())},
                  pow_backward(dtype(), exponent));
  return *this;
}

}  // namespace headroom
