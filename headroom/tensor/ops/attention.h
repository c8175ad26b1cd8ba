// Attention that never holds its probabilities: memory is linear in the number of tokens.
#pragma once

#include "headroom/tensor/tensor.h"

namespace headroom {

struct AttentionOptions {
  bool causal = false;  // query i sees keys 0 to i, as in PyTorch
  double scale = 0;     // 0 for 1 / sqrt(d)
};

// softmax(scale * q k^T + mask) v of q [..., queries, d], k [..., keys, d], v [..., keys, dv] with
// equal leading dimensions (batch, heads). The mask is bool, where true takes part, or of the type
// of q, and is added; it broadcasts to [..., queries, keys], is read as it lies, and has no
// gradient. A query that no key is left for gets 0.
//
// Computed a tile of scores at a time, forward and backward; f16 and bf16 in f32. Operands whose
// rows are in one piece need no copy: [batch, tokens, heads, d] seen through transpose(1, 2) is
// fine. Saved: q, k, v, the mask, the output, and one number a query.
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& q,
                                                  const Tensor& k,
                                                  const Tensor& v,
                                                  const Tensor& mask = {},
                                                  const AttentionOptions& options = {});

}  // namespace headroom
