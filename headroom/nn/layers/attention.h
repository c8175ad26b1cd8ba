// Attention over several heads, and the block that transformers are stacks of.
#pragma once

#include <cstdint>

#include "headroom/nn/layers/linear.h"
#include "headroom/nn/layers/norm.h"
#include "headroom/nn/layers/simple.h"
#include "headroom/nn/module.h"

namespace headroom::nn {

struct AttentionConfig {
  bool is_causal = false;  // a token sees itself and those before
  double dropout = 0;      // of what a block adds
};

// Of x [batch, tokens, width] with itself; queries, keys and values by one product, as GPT-2.
class MultiHeadAttention : public Module {
 public:
  // Throws InvalidArgument where the heads do not divide the width.
  MultiHeadAttention(std::int64_t width,
                     std::int64_t heads,
                     const AttentionConfig& config = {},
                     const TensorOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  // With a mask as scaled_dot_product_attention takes it.
  Tensor forward(const Tensor& x, const Tensor& mask);

  Linear qkv;   // width to 3 width
  Linear proj;  // width to width

 private:
  std::int64_t heads_;
  bool is_causal_;
};

// GPT-2's, norms in front: x + attn(ln1(x)), then x + proj(gelu(fc(ln2(x)))).
class TransformerBlock : public Module {
 public:
  TransformerBlock(std::int64_t width,
                   std::int64_t heads,
                   const AttentionConfig& config = {},
                   const TensorOptions& options = {});
  Tensor forward(const Tensor& x) override;

  LayerNorm ln1;
  MultiHeadAttention attn;
  LayerNorm ln2;
  LinearGelu fc;  // width to 4 width
  Linear proj;    // and back
  Dropout drop;
};

}  // namespace headroom::nn
