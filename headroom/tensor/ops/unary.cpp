#include "headroom/tensor/ops/unary.h"

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// The operands of the backward beside the gradient.
enum class Keep : std::uint8_t { kNothing, kInput, kOutput };

// An op in a line: the gradient is `backward(g, what is kept)`; kCopy stands for zero.
struct Rule {
  const char* name;
  const char* name_in_place;
  ElementOp forward;
  ElementOp backward;
  Keep keep;
  bool makes_floating = true;
  bool takes_complex = false;
  bool wants_f32 = false;  // under autocast
};

using enum ElementOp;
constexpr Rule kNegRule{"neg", "neg_", kNeg, kNeg, Keep::kNothing, false, true};
constexpr Rule kAbsRule{"abs", "abs_", kAbs, kAbsBackward, Keep::kInput, false, true};
constexpr Rule kSignRule{"sign", "sign_", kSign, kCopy, Keep::kNothing, false};
constexpr Rule kSquareRule{
    "square", "square_", kSquare, kSquareBackward, Keep::kInput, false, true};
constexpr Rule kFloorRule{"floor", "floor_", kFloor, kCopy, Keep::kNothing, false};
constexpr Rule kCeilRule{"ceil", "ceil_", kCeil, kCopy, Keep::kNothing, false};
constexpr Rule kRoundRule{"round", "round_", kRound, kCopy, Keep::kNothing, false};
constexpr Rule kTruncRule{"trunc", "trunc_", kTrunc, kCopy, Keep::kNothing, false};
constexpr Rule kExpRule{"exp", "exp_", kExp, kMul, Keep::kOutput, true, false, true};
constexpr Rule kExpm1Rule{
    "expm1", "expm1_", kExpm1, kExpm1Backward, Keep::kOutput, true, false, true};
constexpr Rule kLogRule{"log", "log_", kLog, kDiv, Keep::kInput, true, false, true};
constexpr Rule kLog1pRule{
    "log1p", "log1p_", kLog1p, kLog1pBackward, Keep::kInput, true, false, true};
constexpr Rule kLog2Rule{"log2", "log2_", kLog2, kLog2Backward, Keep::kInput, true, false, true};
constexpr Rule kSqrtRule{"sqrt", "sqrt_", kSqrt, kSqrtBackward, Keep::kOutput};
constexpr Rule kRsqrtRule{
    "rsqrt", "rsqrt_", kRsqrt, kRsqrtBackward, Keep::kOutput, true, false, true};
constexpr Rule kReciprocalRule{
    "reciprocal", "reciprocal_", kReciprocal, kReciprocalBackward, Keep::kOutput, true, true, true};
constexpr Rule kSinRule{"sin", "sin_", kSin, kSinBackward, Keep::kInput};
constexpr Rule kCosRule{"cos", "cos_", kCos, kCosBackward, Keep::kInput};
constexpr Rule kTanhRule{"tanh", "tanh_", kTanh, kTanhBackward, Keep::kOutput};
constexpr Rule kSigmoidRule{"sigmoid", "sigmoid_", kSigmoid, kSigmoidBackward, Keep::kOutput};
constexpr Rule kErfRule{"erf", "erf_", kErf, kErfBackward, Keep::kInput};
constexpr Rule kReluRule{"relu", "relu_", kRelu, kReluBackward, Keep::kOutput, false};
constexpr Rule kGeluRule{"gelu", "gelu_", kGelu, kGeluBackward, Keep::kInput};
constexpr Rule kSiluRule{"silu", "silu_", kSilu, kSiluBackward, Keep::kInput};
constexpr Rule kGeluTanhRule{"gelu_tanh", "", kGeluTanh, kGeluTanhBackward, Keep::kInput};
constexpr Rule kSoftplusRule{
    "softplus", "", kSoftplus, kSoftplusBackward, Keep::kInput, true, false, true};
constexpr Rule kHardswishRule{"hardswish", "", kHardswish, kHardswishBackward, Keep::kInput};
constexpr Rule kMishRule{"mish", "", kMish, kMishBackward, Keep::kInput};
constexpr Rule kLogSigmoidRule{"log_sigmoid", "", kLogSigmoid, kLogSigmoidBackward, Keep::kInput};

Tensor gradient(const Rule& rule, const Tensor& grad, const Tensor& kept) {
  if (rule.backward == kCopy) return zeros_like(grad);
  const DType dtype = kept.defined() ? promote_types(grad.dtype(), kept.dtype()) : grad.dtype();
  Tensor out = new_output(rule.name, grad, grad.shape(), is_complex(dtype) ? dtype : grad.dtype());
  if (rule.keep == Keep::kNothing) {
    refuse_second_derivative(rule.name, {&grad});
    run_element(rule.backward, out.dtype(), out, {grad});
  } else {
    refuse_second_derivative(rule.name, {&grad, &kept});
    run_element(rule.backward, out.dtype(), out, {grad, kept});
  }
  return out;
}

auto backward_of(const Rule& rule) {
  return [&rule](BackwardArgs& b) { b.set_grad(0, gradient(rule, b.grad(), b.saved(0))); };
}

DType result_type(const Rule& rule, const Tensor& x) {
  if (x.dtype() == DType::kBool && rule.forward == kNeg) refuse_dtype(rule.name, x.dtype());
  if (!rule.takes_complex) refuse_complex(rule.name, x.dtype());
  if (is_complex(x.dtype())) return rule.forward == kAbs ? DType::kF32 : x.dtype();
  return rule.makes_floating && !is_floating(x.dtype()) ? DType::kF32 : x.dtype();
}

Tensor apply(const Rule& rule, const Tensor& x) {
  if (rule.wants_f32 && Autocast::is_enabled()) {
    return in_f32([&rule](auto&& t) { return apply(rule, t); }, x);
  }
  const DType dtype = result_type(rule, x);
  const Tensor y = new_output(rule.name, x, x.shape(), dtype);
  run_element(rule.forward, promote_types(dtype, x.dtype()), y, {x});
  return record(
      {rule.name, kEachOutput},
      {&x},
      y,
      {rule.keep == Keep::kOutput ? save_output(y) : save_input(x, rule.keep == Keep::kInput)},
      backward_of(rule));
}

const Tensor& apply_in_place(const Rule& rule, const Tensor& self) {
  if (rule.forward == kAbs) refuse_complex(rule.name_in_place, self.dtype());
  check_can_hold(rule.name_in_place, self, result_type(rule, self), self.shape());
  check_in_place(rule.name_in_place, self);
  check_overlap(rule.name_in_place, self, {});
  // The part of the input that the backward needs is about to be overwritten.
  const bool keeps_input = rule.keep == Keep::kInput && needs_grad(self);
  const Tensor before = keeps_input ? self.detach().clone() : Tensor();
  run_element(rule.forward, self.dtype(), self, {self});
  self.storage().bump_version();
  record_in_place(
      {rule.name_in_place, kEachOutput},
      {&self},
      self,
      {rule.keep == Keep::kOutput ? save_output(self) : save_output(before, keeps_input)},
      backward_of(rule));
  return self;
}

}  // namespace

#define HEADROOM_UNARY(name, rule) \
  Tensor name(const Tensor& x) { return apply(rule, x); }
#define HEADROOM_UNARY_IN_PLACE(name, rule) \
  const Tensor& Tensor::name() const { return apply_in_place(rule, *this); }

HEADROOM_UNARY(neg, kNegRule)
HEADROOM_UNARY(abs, kAbsRule)
HEADROOM_UNARY(sign, kSignRule)
HEADROOM_UNARY(square, kSquareRule)
HEADROOM_UNARY(floor, kFloorRule)
HEADROOM_UNARY(ceil, kCeilRule)
HEADROOM_UNARY(round, kRoundRule)
HEADROOM_UNARY(trunc, kTruncRule)
HEADROOM_UNARY(exp, kExpRule)
HEADROOM_UNARY(expm1, kExpm1Rule)
HEADROOM_UNARY(log, kLogRule)
HEADROOM_UNARY(log1p, kLog1pRule)
HEADROOM_UNARY(log2, kLog2Rule)
HEADROOM_UNARY(sqrt, kSqrtRule)
HEADROOM_UNARY(rsqrt, kRsqrtRule)
HEADROOM_UNARY(reciprocal, kReciprocalRule)
HEADROOM_UNARY(sin, kSinRule)
HEADROOM_UNARY(cos, kCosRule)
HEADROOM_UNARY(tanh, kTanhRule)
HEADROOM_UNARY(sigmoid, kSigmoidRule)
HEADROOM_UNARY(erf, kErfRule)
HEADROOM_UNARY(relu, kReluRule)
HEADROOM_UNARY(gelu, kGeluRule)
HEADROOM_UNARY(silu, kSiluRule)
HEADROOM_UNARY(gelu_tanh, kGeluTanhRule)
HEADROOM_UNARY(softplus, kSoftplusRule)
HEADROOM_UNARY(hardswish, kHardswishRule)
HEADROOM_UNARY(mish, kMishRule)
HEADROOM_UNARY(log_sigmoid, kLogSigmoidRule)

HEADROOM_UNARY_IN_PLACE(neg_, kNegRule)
HEADROOM_UNARY_IN_PLACE(abs_, kAbsRule)
HEADROOM_UNARY_IN_PLACE(square_, kSquareRule)
HEADROOM_UNARY_IN_PLACE(floor_, kFloorRule)
HEADROOM_UNARY_IN_PLACE(ceil_, kCeilRule)
HEADROOM_UNARY_IN_PLACE(round_, kRoundRule)
HEADROOM_UNARY_IN_PLACE(trunc_, kTruncRule)
HEADROOM_UNARY_IN_PLACE(exp_, kExpRule)
HEADROOM_UNARY_IN_PLACE(log_, kLogRule)
HEADROOM_UNARY_IN_PLACE(sqrt_, kSqrtRule)
HEADROOM_UNARY_IN_PLACE(rsqrt_, kRsqrtRule)
HEADROOM_UNARY_IN_PLACE(reciprocal_, kReciprocalRule)
HEADROOM_UNARY_IN_PLACE(sin_, kSinRule)
HEADROOM_UNARY_IN_PLACE(cos_, kCosRule)
HEADROOM_UNARY_IN_PLACE(tanh_, kTanhRule)
HEADROOM_UNARY_IN_PLACE(sigmoid_, kSigmoidRule)
HEADROOM_UNARY_IN_PLACE(relu_, kReluRule)

#undef HEADROOM_UNARY
#undef HEADROOM_UNARY_IN_PLACE

}  // namespace headroom
