#include "headroom/tensor/ops/complex.h"

#include "headroom/tensor/internal/binary.h"

namespace headroom {
namespace tensor {

Tensor parts_of(const Tensor& x) {
  const GradModeScope no_grad(false);
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (int i = 0; i < strides.size(); ++i) strides[i] *= 2;
  shape.push_back(2);
  strides.push_back(1);
  Tensor out = new_view(x, shape, strides, x.offset() * 2);
  out.impl().dtype = DType::kF32;
  return out;
}

Tensor gradient_as(const Tensor& grad, DType own) {
  return is_complex(grad.dtype()) && !is_complex(own) ? real(grad).to(own) : grad.to(own);
}

}  // namespace tensor

namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

void check_part(const Tensor& part) {
  if (part.dtype() == DType::kF32) return;
  throw InvalidArgument("complex: parts must be f32, not " + std::string(to_string(part.dtype())));
}

Tensor part(const char* name, ElementOp op, const Tensor& x) {
  Tensor y = new_output(name, x, x.shape(), DType::kF32);
  run_element(op, DType::kC64, y, {x});
  return y;
}

// i times something real.
Tensor times_i(const Tensor& x) {
  refuse_second_derivative("imag", {&x});
  Tensor y = new_output("imag", x, x.shape(), DType::kC64);
  run_element(kComplex, DType::kC64, y, {Scalar(0), x});
  return y;
}

}  // namespace

Tensor complex(const Tensor& re, const Tensor& im) {
  const ResultSpec to = join("complex", re, im);
  check_part(re);
  check_part(im);
  const Tensor y = new_output("complex", re, to.shape, DType::kC64);
  run_element(kComplex, DType::kC64, y, {re, im});
  return record({"complex", kNoWork},
                {&re, &im},
                y,
                {},
                [a = GradientTarget(re), b = GradientTarget(im)](BackwardArgs& args) {
                  if (args.needs(0)) args.set_grad(0, a.take(real(args.grad())));
                  if (args.needs(1)) args.set_grad(1, b.take(imag(args.grad())));
                });
}

Tensor real(const Tensor& x) {
  if (!is_complex(x.dtype())) return x;
  return record({"real", kNoWork}, {&x}, part("real", kReal, x), {}, [](BackwardArgs& b) {
    b.set_grad(0, b.grad().to(DType::kC64));
  });
}

Tensor imag(const Tensor& x) {
  if (!is_complex(x.dtype())) refuse_dtype("imag", x.dtype());
  return record({"imag", kNoWork}, {&x}, part("imag", kImag, x), {}, [](BackwardArgs& b) {
    b.set_grad(0, times_i(b.grad()));
  });
}

Tensor conj(const Tensor& x) {
  if (!is_complex(x.dtype())) return x;
  const Tensor y = new_output("conj", x, x.shape(), x.dtype());
  run_element(kConj, x.dtype(), y, {x});
  return record(
      {"conj", kNoWork}, {&x}, y, {}, [](BackwardArgs& b) { b.set_grad(0, conj(b.grad())); });
}

Tensor adjoint(const Tensor& x) { return conj(x.transpose(-2, -1)); }

}  // namespace headroom
