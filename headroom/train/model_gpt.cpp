// GPT-2, and one that a processor can train while somebody watches.
#include <cmath>
#include <string>

#include "headroom/autograd/grad_mode.h"
#include "headroom/base/error.h"
#include "headroom/nn/containers.h"
#include "headroom/nn/layers/attention.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/matmul.h"
#include "headroom/tensor/ops/softmax.h"
#include "headroom/train/internal/model_parts.h"

namespace headroom::train::internal {
namespace {

struct GptSizes {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t head_width = 64;
  std::int64_t positions = 1024;
  std::int64_t vocabulary = 50257;
  std::int64_t seq = 1024;
};

// GPT-2's values: N(0, 0.02) and no bias; what adds to the residual stream less, so that its
// variance does not grow with the depth.
void start_linear(const nn::Linear& linear, double deviation) {
  const NoGradScope no_grad;
  linear.weight.normal_(0, deviation);
  linear.bias.zero_();
}

class GptBlock : public nn::Module {
 public:
  GptBlock(const GptSizes& sizes, const TensorOptions& options)
      : ln_1_(sizes.width, {}, options),
        attn_(sizes.width, sizes.width / sizes.head_width, {.is_causal = true}, options),
        ln_2_(sizes.width, {}, options),
        fc_(sizes.width, 4 * sizes.width, nn::Gelu::kTanh, options),
        proj_(4 * sizes.width, sizes.width, true, options) {
    add("ln_1", ln_1_);
    add("attn", attn_);
    add("ln_2", ln_2_);
    add("fc", fc_);
    add("proj", proj_);
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(sizes.layers));
    start_linear(attn_.qkv, 0.02);
    start_linear(attn_.proj, residual);
    start_linear(fc_, 0.02);
    start_linear(proj_, residual);
  }
  Tensor forward(const Tensor& x) override {
    const auto [mid, normed] = ln_2_.after_residual(x, attn_(ln_1_(x)));
    return mid + proj_(fc_(normed));
  }

 private:
  nn::LayerNorm ln_1_;
  nn::MultiHeadAttention attn_;
  nn::LayerNorm ln_2_;
  nn::LinearGelu fc_;
  nn::Linear proj_;
};

class Gpt : public Model {
 public:
  Gpt(const GptSizes& sizes, const TensorOptions& options)
      : Model({.task = ExampleShape::Task::kTokens,
               .input = {sizes.seq},
               .classes = sizes.vocabulary}),
        wte_(sizes.vocabulary, sizes.width, options),
        wpe_(sizes.positions, sizes.width, options),
        ln_f_(sizes.width, {}, options) {
    add("wte", wte_);
    add("wpe", wpe_);
    for (std::int64_t i = 0; i < sizes.layers; ++i) h_.emplace<GptBlock>(sizes, options);
    add("h", h_);
    add("ln_f", ln_f_);
    const NoGradScope no_grad;
    wte_.weight.normal_(0, 0.02);
    wpe_.weight.normal_(0, 0.02);
  }

  Tensor enter(const Tensor& tokens) override {
    return wte_(tokens) + wpe_.weight.slice(0, 0, tokens.size(1));
  }
  // The head has the weights of the embedding.
  Tensor leave(const Tensor& x) override { return linear(ln_f_(x), wte_.weight, {}); }
  std::vector<nn::Module*> blocks() override {
    std::vector<nn::Module*> out;
    for (const auto& block : h_) out.push_back(block.get());
    return out;
  }
  Tensor loss(const Tensor& output, const Tensor& target) override {
    return cross_entropy(output.view({-1, output.size(2)}), target.view({-1}));
  }

 private:
  nn::Embedding wte_;
  nn::Embedding wpe_;
  nn::ModuleList h_;
  nn::LayerNorm ln_f_;
};

std::unique_ptr<Model> make_gpt(const char* name, GptSizes sizes, const TensorOptions& options) {
  if (sizes.width % sizes.head_width != 0) {
    throw InvalidArgument(std::string(name) + ": a width of " + std::to_string(sizes.width) +
                          " is not a multiple of " + std::to_string(sizes.head_width) +
                          ", the size of a head");
  }
  if (sizes.seq > sizes.positions) {
    throw InvalidArgument(std::string(name) + ": " + std::to_string(sizes.seq) +
                          " tokens are more than its " + std::to_string(sizes.positions) +
                          " positions");
  }
  return std::make_unique<Gpt>(sizes, options);
}

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelSizes& sizes, const TensorOptions& options) {
  return make_gpt("gpt2", {.layers = sizes.depth, .width = sizes.width, .seq = sizes.seq}, options);
}
std::unique_ptr<Model> make_gpt2_tiny(const ModelSizes& sizes, const TensorOptions& options) {
  return make_gpt("gpt2-tiny",
                  {.layers = sizes.depth,
                   .width = sizes.width,
                   .head_width = 32,
                   .positions = 256,
                   .vocabulary = 256,
                   .seq = sizes.seq},
                  options);
}

}  // namespace headroom::train::internal
