#include "headroom/tensor/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headroom/tensor/autocast.h"
#include "headroom/tensor/internal/op.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

constexpr const char* kAttention = "scaled_dot_product_attention";

[[noreturn]] void refuse_attention(const std::string& what) {
  throw InvalidArgument(std::string(kAttention) + ": " + what);
}

Shape leading(const Tensor& x) {
  Shape out = x.shape();
  out.erase(out.size() - 1);
  out.erase(out.size() - 1);
  return out;
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_floating(kAttention, q);
  for (const Tensor* other : {&k, &v}) {
    check_same_device(kAttention, q, *other);
    if (other->dtype() != q.dtype()) {
      refuse_attention("types differ: " + std::string(to_string(q.dtype())) + " and " +
                       std::string(to_string(other->dtype())));
    }
  }
  const auto shapes = [&] {
    return to_string(q.shape()) + ", " + to_string(k.shape()) + ", " + to_string(v.shape());
  };
  if (q.dim() < 2 || k.dim() != q.dim() || v.dim() != q.dim()) {
    refuse_attention("q, k and v of equally many dimensions are wanted, not " + shapes());
  }
  if (leading(q) != leading(k) || leading(q) != leading(v)) {
    refuse_attention("heads differ: " + shapes());
  }
  if (q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2)) {
    refuse_attention("q, k and v do not go together: " + shapes());
  }
  if (q.size(-1) == 0) refuse_attention("rows of nothing: " + to_string(q.shape()));
}

void check_mask(const Tensor& q, const Tensor& mask, const Shape& scores) {
  if (!mask.defined()) return;
  check_same_device(kAttention, q, mask);
  if (mask.dtype() != DType::kBool && mask.dtype() != q.dtype()) {
    refuse_attention("a mask is bool or " + std::string(to_string(q.dtype())) + ", not " +
                     std::string(to_string(mask.dtype())));
  }
  if (needs_grad(mask)) refuse_attention("a mask has no gradient; detach it");
  bool fits = mask.dim() <= scores.size();
  for (int i = 1; fits && i <= mask.dim(); ++i) {
    const std::int64_t own = mask.shape()[mask.dim() - i];
    fits = own == 1 || own == scores[scores.size() - i];
  }
  if (fits) return;
  refuse_attention("a mask of " + to_string(mask.shape()) + " does not broadcast to " +
                   to_string(scores));
}

AttentionArgs attention_args(const Tensor& q,
                             const Tensor& k,
                             const Tensor& v,
                             const AttentionOptions& options) {
  AttentionArgs args{.is_causal = options.causal,
                     .dtype = q.dtype(),
                     .scale = options.scale,
                     .batch = leading(q),
                     .queries = q.size(-2),
                     .keys = k.size(-2),
                     .width = q.size(-1),
                     .value_width = v.size(-1)};
  args.heads = checked_numel(kAttention, args.batch);
  if (options.scale == 0) args.scale = 1 / std::sqrt(static_cast<double>(args.width));
  for (const std::int64_t size : {args.width, args.value_width}) {
    if (size > std::numeric_limits<std::int32_t>::max()) {
      refuse_attention("a row of " + std::to_string(size) + " is more than 32 bits can count");
    }
  }
  return args;
}

// Whether each row is in one piece, with its neighbour behind it.
bool has_rows(const Tensor& x) {
  const std::int64_t width = x.size(-1);
  const std::int64_t stride = x.strides()[x.dim() - 2];
  return (x.strides().back() == 1 || width == 1) &&
         ((stride >= width && stride <= std::numeric_limits<std::int32_t>::max()) ||
          x.size(-2) == 1);
}

// `copy` holds the rows where they had to be laid out.
AttentionOperand rows_of_heads(const Tensor& x, Tensor& copy) {
  const GradModeScope no_grad(false);
  copy = has_rows(x) ? x : x.clone();
  AttentionOperand out{.data = pointer(copy)};
  const int rows = copy.dim() - 2;
  // The stride of one row may be anything, and is not used.
  out.stride = copy.size(-2) == 1 ? copy.size(-1) : copy.strides()[rows];
  out.stride = std::max(out.stride, copy.size(-1));
  std::copy_n(copy.strides().begin(), rows, out.batch_strides.begin());
  return out;
}

AttentionMask mask_of(const Tensor& mask, Shape scores) {
  AttentionMask out;
  if (!mask.defined()) return out;
  const Strides strides = broadcast_strides(mask.shape(), mask.strides(), scores);
  const int rows = scores.size() - 2;
  out.data = pointer(mask);
  out.dtype = mask.dtype();
  out.row_stride = strides[rows];
  out.column_stride = strides[rows + 1];
  std::copy_n(strides.begin(), rows, out.batch_strides.begin());
  return out;
}

Shape scores_shape(const AttentionArgs& args) {
  Shape out = args.batch;
  out.push_back(args.queries);
  out.push_back(args.keys);
  return out;
}

DType attention_wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Saved: q, k, v, mask, output, log-sum-exp.
void attention_backward(AttentionArgs args, BackwardArgs& b) {
  const Tensor q = b.saved(0);
  const Tensor k = b.saved(1);
  const Tensor v = b.saved(2);
  const Tensor mask = b.saved(3);
  const Tensor y = b.saved(4);
  const Tensor lse = b.saved(5);
  refuse_second_derivative(kAttention, {&b.grad(), &q, &k, &v});
  Tensor rows[4];
  args.is_backward = true;
  args.q = rows_of_heads(q, rows[0]);
  args.k = rows_of_heads(k, rows[1]);
  args.v = rows_of_heads(v, rows[2]);
  args.grad = rows_of_heads(b.grad(), rows[3]);
  args.mask = mask_of(mask, scores_shape(args));
  args.y = pointer(y);
  args.log_sum_exp = pointer(lse);
  Tensor gradients[3];
  void** const places[] = {&args.q_grad, &args.k_grad, &args.v_grad};
  const Tensor* const of[] = {&q, &k, &v};
  for (const std::size_t i : {0U, 1U, 2U}) {
    if (!b.needs(i)) continue;
    gradients[i] = new_output(kAttention, y, of[i]->shape(), args.dtype);
    *places[i] = pointer(gradients[i]);
  }
  if (args.heads > 0) launch(kAttention, y, &Kernels::attention, args);
  for (const std::size_t i : {0U, 1U, 2U}) {
    if (gradients[i].defined()) b.set_grad(i, gradients[i]);
  }
}

// Scores, and values by them: a multiplication and an addition each.
double attention_work(const AttentionArgs& args) {
  return 2 * static_cast<double>(args.heads * args.queries) *
         static_cast<double>(args.keys * (args.width + args.value_width));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q,
                                    const Tensor& k,
                                    const Tensor& v,
                                    const Tensor& mask,
                                    const AttentionOptions& options) {
  if (Autocast::is_enabled()) {
    const auto run = [&](auto&&... t) { return scaled_dot_product_attention(t..., options); };
    return in_lower_type(run, q, k, v, mask);
  }
  check_operands(q, k, v);
  const AttentionArgs args = attention_args(q, k, v, options);
  check_mask(q, mask, scores_shape(args));
  Shape shape = args.batch;
  shape.push_back(args.queries);
  const Tensor lse = any_needs_grad({&q, &k, &v})
                         ? new_output(kAttention, q, shape, attention_wide(args.dtype))
                         : Tensor();
  shape.push_back(args.value_width);
  const Tensor y = new_output(kAttention, q, shape, args.dtype);
  if (args.heads * args.queries > 0) {
    AttentionArgs forward = args;
    Tensor rows[3];
    forward.q = rows_of_heads(q, rows[0]);
    forward.k = rows_of_heads(k, rows[1]);
    forward.v = rows_of_heads(v, rows[2]);
    forward.mask = mask_of(mask, scores_shape(args));
    forward.y = pointer(y);
    if (lse.defined()) forward.log_sum_exp = pointer(lse);
    launch(kAttention, y, &Kernels::attention, forward);
  }
  return record({kAttention, counted(attention_work(args))},
                {&q, &k, &v},
                y,
                {save_input(q),
                 save_input(k),
                 save_input(v),
                 save_input(mask, mask.defined()),
                 save_output(y),
                 save_output(lse, lse.defined())},
                [args](BackwardArgs& b) { attention_backward(args, b); });
}

}  // namespace headroom
