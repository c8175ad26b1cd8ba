// What the arguments of each kernel point to, and how the kernel uses it: for whoever moves,
// checks or poisons operands. Says nothing of null pointers: `use` is called for them too, with the
// extent that the operand would have.
//
//   visit_operands(args, [](auto*& pointer, const Extent& extent) { ... });
#pragma once

#include <cstdint>

#include "headroom/tensor/kernels.h"

#include "tests/support/operand_extent.h"

namespace headroom::testing {

// --- One for each family ------------------------------------------------------------------------

template <class F>
void visit_operands(tensor::ElementArgs& a, F&& use) {
  namespace in = internal;
  Extent out = in::over(a.out, a.shape, Use::kWritten);
  for (int i = 0; i < a.inputs; ++i) {
    tensor::Operand& operand = a.in[static_cast<std::size_t>(i)];
    if (operand.is_scalar) continue;
    const Extent read = in::over(operand, a.shape, Use::kRead);
    // An op in place.
    if (in::overlap(operand.data, read.bytes(), a.out.data, out.bytes())) out.use = Use::kUpdated;
  }
  for (int i = 0; i < a.inputs; ++i) {
    tensor::Operand& operand = a.in[static_cast<std::size_t>(i)];
    if (!operand.is_scalar) use(operand.data, in::read());
  }
  use(a.out.data, out);
}

template <class F>
void visit_operands(tensor::GenerateArgs& a, F&& use) {
  use(a.random.state, internal::read());
  use(a.out.data, internal::over(a.out, a.shape, Use::kWritten));
}

template <class F>
void visit_operands(tensor::ReduceArgs& a, F&& use) {
  namespace in = internal;
  const std::int64_t count = in::product(a.kept);
  use(a.in.data, in::read());
  use(a.out, in::written(a.out_dtype, count));
  use(a.index_out, in::written(DType::kI64, count));
}

template <class F>
void visit_operands(tensor::MatmulArgs& a, F&& use) {
  namespace in = internal;
  const std::int64_t count = in::product(a.batch) * a.m * a.n;
  use(a.a.data, in::read());
  use(a.b.data, in::read());
  use(a.bias, in::read());
  use(a.out, in::elements(a.adds ? Use::kUpdated : Use::kWritten, a.dtype, count));
  use(a.kept, a.is_backward ? in::read() : in::written(a.dtype, count));
  use(a.row_sums, in::written(a.dtype, a.m));
  use(a.column_sums, in::written(a.dtype, a.n));
}

template <class F>
void visit_operands(tensor::SolveArgs& a, F&& use) {
  namespace in = internal;
  use(a.factor, in::updated(a.dtype, a.batch * a.n * a.n));
  use(a.out, in::updated(a.dtype, a.batch * a.n * a.columns));
}

template <class F>
void visit_operands(tensor::SoftmaxArgs& a, F&& use) {
  namespace in = internal;
  use(a.in, in::read());
  use(a.grad, in::read());
  use(a.out, in::written(a.dtype, a.rows.outer * a.rows.classes * a.rows.inner));
}

template <class F>
void visit_operands(tensor::CrossEntropyArgs& a, F&& use) {
  namespace in = internal;
  const std::int64_t rows = a.rows.outer * a.rows.inner;
  const DType wide = in::wide(a.dtype);
  use(a.logits, in::read());
  use(a.target, in::read());
  use(a.kept, a.is_backward ? in::read() : in::written(wide, rows));
  use(a.losses, in::written(wide, rows));
  use(a.out, in::written(a.dtype, a.is_backward ? rows * a.rows.classes : 1));
  use(a.grad, in::read());
}

// Gathers write every element; scatters where an index says.
template <class F>
void visit_operands(tensor::IndexArgs& a, bool is_gather, F&& use) {
  namespace in = internal;
  use(a.index, in::read());
  use(a.from, in::read());
  use(a.to,
      is_gather ? Extent{.use = Use::kWritten,
                         .element_bytes = headroom::size_bytes(a.dtype),
                         .shape = a.shape,
                         .strides = a.to_strides}
                : in::updated(a.dtype, 1));
}

template <class F>
void visit_operands(tensor::Conv2dArgs& a, F&& use) {
  namespace in = internal;
  using enum tensor::ConvPass;
  const auto operand = [&](tensor::ConvPass pass, std::int64_t count) {
    return a.pass == pass ? in::written(a.dtype, count) : in::read();
  };
  use(a.x, operand(kInput, a.batch * a.groups * a.in * in::area(a.in_size)));
  use(a.weight, operand(kWeight, a.groups * a.out * tensor::window_size(a)));
  use(a.y, operand(kForward, a.batch * a.groups * a.out * in::area(a.out_size)));
  use(a.bias, in::read());
}

template <class F>
void visit_operands(tensor::Pool2dArgs& a, F&& use) {
  namespace in = internal;
  const std::int64_t outputs = a.planes * in::area(a.out_size);
  use(a.in, in::read());
  use(a.out, in::written(a.dtype, a.is_backward ? a.planes * in::area(a.in_size) : outputs));
  use(a.index, a.is_backward ? in::read() : in::written(a.index_dtype, outputs));
}

template <class F>
void visit_operands(tensor::LayerNormArgs& a, F&& use) {
  namespace in = internal;
  const DType wide = in::wide(a.dtype);
  use(a.x, in::read());
  use(a.weight, in::read());
  use(a.bias, in::read());
  use(a.residual, in::read());
  use(a.grad, in::read());
  use(a.mean, a.is_backward ? in::read() : in::written(wide, a.rows));
  use(a.rstd, a.is_backward ? in::read() : in::written(wide, a.rows));
  use(a.y, in::written(a.dtype, a.rows * a.width));
  use(a.sum, in::written(a.dtype, a.rows * a.width));
  const Use x_grad_use = a.adds_x_grad ? Use::kUpdated : Use::kWritten;
  use(a.x_grad, in::elements(x_grad_use, a.dtype, a.rows * a.width));
  use(a.weight_grad, in::written(a.parameter_dtype, a.width));
  use(a.bias_grad, in::written(a.parameter_dtype, a.width));
}

template <class F>
void visit_operands(tensor::BatchNormArgs& a, F&& use) {
  namespace in = internal;
  const DType wide = in::wide(a.dtype);
  const std::int64_t count = a.batch * a.channels * a.inner;
  use(a.x, in::read());
  use(a.weight, in::read());
  use(a.bias, in::read());
  use(a.grad, in::read());
  use(a.mean, a.is_backward ? in::read() : in::written(wide, a.channels));
  use(a.rstd, a.is_backward ? in::read() : in::written(wide, a.channels));
  use(a.running_mean, in::updated(a.running_dtype, 1));
  use(a.running_var, in::updated(a.running_dtype, 1));
  use(a.y, in::written(a.dtype, count));
  use(a.x_grad, in::written(a.dtype, count));
  use(a.weight_grad, in::written(a.parameter_dtype, a.channels));
  use(a.bias_grad, in::written(a.parameter_dtype, a.channels));
}

template <class F>
void visit_operands(tensor::DropoutArgs& a, F&& use) {
  namespace in = internal;
  use(a.random.state, in::read());
  use(a.in, in::read());
  use(a.out, in::written(a.dtype, a.numel));
  use(a.bits, a.is_backward ? in::read() : in::written(DType::kU8, (a.numel + 7) / 8));
}

template <class F>
void visit_operands(tensor::AttentionArgs& a, F&& use) {
  namespace in = internal;
  const std::int64_t rows = a.heads * a.queries;
  const auto kept = [&](DType dtype, std::int64_t count) {
    return a.is_backward ? in::read() : in::written(dtype, count);
  };
  for (tensor::AttentionOperand* operand : {&a.q, &a.k, &a.v, &a.grad}) {
    use(operand->data, in::read());
  }
  use(a.mask.data, in::read());
  use(a.y, kept(a.dtype, rows * a.value_width));
  use(a.log_sum_exp, kept(in::wide(a.dtype), rows));
  use(a.q_grad, in::written(a.dtype, rows * a.width));
  use(a.k_grad, in::written(a.dtype, a.heads * a.keys * a.width));
  use(a.v_grad, in::written(a.dtype, a.heads * a.keys * a.value_width));
}

// The table itself; what its rows point to is known when the device has it.
template <class F>
void visit_operands(tensor::MultiTensorArgs& a, F&& use) {
  namespace in = internal;
  for (const double** number : {&a.skip, &a.lr, &a.factor}) use(*number, in::read());
  use(a.entries,
      Extent{
          .element_bytes = sizeof(tensor::MultiTensorEntry), .shape = {a.count}, .strides = {1}});
  use(a.found, in::updated(DType::kF64, 1));
  use(a.partial, in::written(DType::kF64, a.pieces));
}

template <class F>
void visit_operands(tensor::MultiTensorEntry& entry, F&& use) {
  namespace in = internal;
  for (void** pointer : {&entry.param, &entry.grad, &entry.first, &entry.second}) {
    use(*pointer, in::updated(entry.dtype, entry.numel));
  }
  use(entry.step, in::updated(DType::kI64, 1));
}

template <class F>
void visit_operands(tensor::StepNumberArgs& a, F&& use) {
  namespace in = internal;
  use(a.partial, Extent{.element_bytes = sizeof(double), .shape = {a.count}, .strides = {1}});
  use(a.norm, in::written(DType::kF64, 1));
  use(a.factor, in::written(DType::kF64, 1));
  for (double** number : {&a.scale, &a.found, &a.good_steps}) {
    use(*number, in::updated(DType::kF64, 1));
  }
}

}  // namespace headroom::testing
