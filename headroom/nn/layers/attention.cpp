#include "headroom/nn/layers/attention.h"

#include <string>

#include "headroom/base/error.h"
#include "headroom/tensor/ops/attention.h"
#include "headroom/tensor/ops/binary.h"

namespace headroom::nn {
namespace {

std::int64_t checked_width(std::int64_t width, std::int64_t heads) {
  if (heads > 0 && width > 0 && width % heads == 0) return width;
  throw InvalidArgument("MultiHeadAttention: " + std::to_string(heads) +
                        " heads do not divide a width of " + std::to_string(width));
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t width,
                                       std::int64_t heads,
                                       const AttentionConfig& config,
                                       const TensorOptions& options)
    : qkv(checked_width(width, heads), 3 * width, true, options),
      proj(width, width, true, options),
      heads_(heads),
      is_causal_(config.is_causal) {
  add("qkv", qkv);
  add("proj", proj);
}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& mask) {
  if (x.dim() != 3) {
    throw InvalidArgument("MultiHeadAttention: [batch, tokens, width] is wanted, not " +
                          to_string(x.shape()));
  }
  const std::int64_t batch = x.size(0);
  const std::int64_t tokens = x.size(1);
  const std::int64_t width = x.size(2);
  // [batch, tokens, 3, heads, d] as three of [batch, heads, tokens, d]; no elements move.
  const Tensor all = qkv(x).view({batch, tokens, 3, heads_, width / heads_});
  const auto part = [&all](std::int64_t i) { return all.select(2, i).transpose(1, 2); };
  const Tensor y =
      scaled_dot_product_attention(part(0), part(1), part(2), mask, {.causal = is_causal_});
  return proj(y.transpose(1, 2).reshape({batch, tokens, width}));
}

TransformerBlock::TransformerBlock(std::int64_t width,
                                   std::int64_t heads,
                                   const AttentionConfig& config,
                                   const TensorOptions& options)
    : ln1(width, {}, options),
      attn(width, heads, config, options),
      ln2(width, {}, options),
      fc(width, 4 * width, Gelu::kErf, options),
      proj(4 * width, width, true, options),
      drop(config.dropout) {
  add("ln1", ln1);
  add("attn", attn);
  add("ln2", ln2);
  add("fc", fc);
  add("proj", proj);
  add("drop", drop);
}

Tensor TransformerBlock::forward(const Tensor& x) {
  const auto [mid, normed] = ln2.after_residual(x, drop(attn(ln1(x))));
  return mid + drop(proj(fc(normed)));
}

}  // namespace headroom::nn
