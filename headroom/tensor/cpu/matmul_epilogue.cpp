// The epilogues of a product, with the processor's own kernels: so the bits are those
// of the ops one after the other.
#include <numeric>

#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

std::int64_t outputs(const MatmulArgs& args) {
  return std::accumulate(
      args.batch.begin(), args.batch.end(), args.m * args.n, std::multiplies<>());
}

// Of a contiguous run.
Operand row_of(void* data, DType dtype) { return {.data = data, .dtype = dtype, .strides = {1}}; }

ElementOp function_of(const MatmulArgs& args) {
  if (args.activation == Activation::kGelu) {
    return args.is_backward ? ElementOp::kGeluBackward : ElementOp::kGelu;
  }
  return args.is_backward ? ElementOp::kGeluTanhBackward : ElementOp::kGeluTanh;
}

void activate(const MatmulArgs& args, const Launch& launch) {
  const Operand out = row_of(args.out, args.dtype);
  const Operand kept = row_of(args.kept, args.dtype);
  ElementArgs element{.op = function_of(args),
                      .compute = compute_type(args.dtype),
                      .numel = outputs(args),
                      .shape = {outputs(args)},
                      .out = out};
  if (args.is_backward) {
    element.inputs = 2;
    element.in = {out, kept};
  } else {
    element.in[0] = args.kept != nullptr ? kept : out;
  }
  cpu::element(element, launch);
}

struct Matrix {
  const void* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t down;   // elements between rows
  std::int64_t right;  // and between columns
};

void add_columns_up(const Matrix& x, DType dtype, void* out, const Launch& launch) {
  ReduceArgs sum{.op = ReduceOp::kSum,
                 .compute = compute_type(dtype),
                 .in = {.data = const_cast<void*>(x.data), .dtype = dtype},
                 .kept = {x.columns},
                 .reduced = {x.rows},
                 .out = out,
                 .out_dtype = dtype};
  sum.in.strides = {x.right, x.down};
  reduce(sum, launch);
}

}  // namespace

void finish_product(const MatmulArgs& args, const Launch& launch) {
  if (args.activation != Activation::kNone) activate(args, launch);
  if (args.column_sums != nullptr) {
    add_columns_up({args.out, args.m, args.n, args.n, 1}, args.dtype, args.column_sums, launch);
  }
  if (args.row_sums == nullptr) return;
  // The rows of a are the columns of what it is the transpose of.
  const std::int64_t down = args.a.is_transposed ? 1 : args.a.leading;
  const std::int64_t right = args.a.is_transposed ? args.a.leading : 1;
  add_columns_up({args.a.data, args.k, args.m, right, down}, args.dtype, args.row_sums, launch);
}

bool accepts_product(const MatmulArgs& args, const device::Properties&) {
  if (has_epilogue(args) && !is_floating(args.dtype)) return false;
  if (args.adds) return args.bias == nullptr && args.activation == Activation::kNone;
  return args.batch.empty() || (args.row_sums == nullptr && args.column_sums == nullptr);
}

}  // namespace headroom::tensor::cpu
