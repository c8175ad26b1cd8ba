#include "benchmarks/train/bench_train_plain.h"

#include <cblas.h>

namespace headroom::cli::plain {
namespace {

Numbers numbers(int rows, int columns) {
  return Numbers(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), 0.01F);
}

// A matrix as it is stored: elements between rows, and whether it is meant transposed.
struct Matrix {
  const float* data;
  int leading;
  bool is_transposed = false;
};

struct Sides {
  int m;
  int n;
  int k;
};

// c [m, n] = a b over k.
void multiply(const Sides& s, const Matrix& a, const Matrix& b, float* c, int leading) {
  cblas_sgemm(CblasRowMajor,
              a.is_transposed ? CblasTrans : CblasNoTrans,
              b.is_transposed ? CblasTrans : CblasNoTrans,
              s.m,
              s.n,
              s.k,
              1,
              a.data,
              a.leading,
              b.data,
              b.leading,
              0,
              c,
              leading);
}

}  // namespace

// --- Linear layers ------------------------------------------------------------------------------

Linear::Linear(int rows, int in, int out)
    : rows_(rows), in_(in), out_(out), weight_(numbers(out, in)), gradient_(numbers(out, in)) {}

void Linear::forward(const float* x, float* y) const {
  multiply({rows_, out_, in_}, {x, in_}, {weight_.data(), in_, true}, y, out_);
}

void Linear::backward(const float* x, const float* y_grad, float* x_grad) {
  multiply({out_, in_, rows_}, {y_grad, out_, true}, {x, in_}, gradient_.data(), in_);
  if (x_grad == nullptr) return;
  multiply({rows_, in_, out_}, {y_grad, out_}, {weight_.data(), in_}, x_grad, in_);
}

void Linear::update() {
  // So small a rate that the numbers stay what they are, however many steps are taken.
  constexpr float kRate = -1e-12F;
  const auto count = static_cast<int>(weight_.size());
  cblas_saxpy(count, kRate, gradient_.data(), 1, weight_.data(), 1);
}

// --- DeepNet ------------------------------------------------------------------------------------

DeepNetStep::DeepNetStep(int depth, int width, int batch)
    : activations_(static_cast<std::size_t>(2 * depth) + 1, numbers(batch, width)),
      grad_(numbers(batch, width)),
      next_(numbers(batch, width)) {
  for (int i = 0; i < 2 * depth; ++i) layers_.emplace_back(batch, width, width);
}

void DeepNetStep::run() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].forward(activations_[i].data(), activations_[i + 1].data());
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i].backward(activations_[i].data(), grad_.data(), i > 0 ? next_.data() : nullptr);
    grad_.swap(next_);
  }
  for (Linear& layer : layers_) layer.update();
}

double DeepNetStep::operations() const {
  double out = -layers_.front().operations();  // nobody wants the input's gradient
  for (const Linear& layer : layers_) out += 3 * layer.operations();
  return out;
}

// --- GPT-2 --------------------------------------------------------------------------------------

GptStep::GptStep(const GptSizes& sizes)
    : sizes_(sizes),
      head_(rows(), sizes.width, sizes.vocabulary),
      last_(numbers(rows(), sizes.width)),
      logits_(numbers(rows(), sizes.vocabulary)),
      grad_(numbers(rows(), sizes.width)),
      next_(numbers(rows(), sizes.width)),
      heads_grad_(numbers(rows(), 3 * sizes.width)),
      wide_grad_(numbers(rows(), 4 * sizes.width)),
      scores_grad_(numbers(sizes.seq, sizes.seq)) {
  const int width = sizes.width;
  for (int i = 0; i < sizes.depth; ++i) {
    blocks_.push_back({.qkv = {rows(), width, 3 * width},
                       .out = {rows(), width, width},
                       .up = {rows(), width, 4 * width},
                       .down = {rows(), 4 * width, width},
                       .x = numbers(rows(), width),
                       .heads = numbers(rows(), 3 * width),
                       .mixed = numbers(rows(), width),
                       .wide = numbers(rows(), 4 * width),
                       .scores = numbers(sizes.batch * computed_heads() * sizes.seq, sizes.seq)});
  }
}

template <class F>
void GptStep::for_heads(const F& f) const {
  const std::int64_t area = std::int64_t{sizes_.seq} * sizes_.seq;
  const std::int64_t heads = computed_heads();
  for (std::int64_t i = 0; i < sizes_.batch * heads; ++i) {
    // Where the head's first number is in a row of `width`, and in one of queries, keys and values.
    const std::int64_t row = i / heads * sizes_.seq;
    const std::int64_t column = i % heads * (sizes_.width / sizes_.heads);
    f(row * sizes_.width + column, row * 3 * sizes_.width + column, i * area);
  }
}

void GptStep::attend(Block& block) {
  const int width = sizes_.width;
  const int head = width / sizes_.heads;
  for_heads([&](std::int64_t at, std::int64_t wide_at, std::int64_t scores_at) {
    const float* q = block.heads.data() + wide_at;
    float* scores = block.scores.data() + scores_at;
    multiply({sizes_.seq, sizes_.seq, head},
             {q, 3 * width},
             {q + width, 3 * width, true},
             scores,
             sizes_.seq);
    multiply({sizes_.seq, head, sizes_.seq},
             {scores, sizes_.seq},
             {q + 2 * std::ptrdiff_t{width}, 3 * width},
             block.mixed.data() + at,
             width);
  });
}

// The scores are kept: at so few tokens one would not compute them again.
void GptStep::attend_back(Block& block, const float* grad, float* heads_grad) {
  const int width = sizes_.width;
  const int seq = sizes_.seq;
  const int head = width / sizes_.heads;
  for_heads([&](std::int64_t at, std::int64_t wide_at, std::int64_t scores_at) {
    const float* q = block.heads.data() + wide_at;
    const float* k = q + width;
    const float* v = k + width;
    float* dq = heads_grad + wide_at;
    float* dk = dq + width;
    float* dv = dk + width;
    const float* scores = block.scores.data() + scores_at;
    float* slopes = scores_grad_.data();
    multiply({seq, head, seq}, {scores, seq, true}, {grad + at, width}, dv, 3 * width);
    multiply({seq, seq, head}, {grad + at, width}, {v, 3 * width, true}, slopes, seq);
    multiply({seq, head, seq}, {slopes, seq}, {k, 3 * width}, dq, 3 * width);
    multiply({seq, head, seq}, {slopes, seq, true}, {q, 3 * width}, dk, 3 * width);
  });
}

void GptStep::forward() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    block.qkv.forward(block.x.data(), block.heads.data());
    attend(block);
    block.out.forward(block.mixed.data(), next_.data());
    block.up.forward(next_.data(), block.wide.data());
    Numbers& y = i + 1 < blocks_.size() ? blocks_[i + 1].x : last_;
    block.down.forward(block.wide.data(), y.data());
  }
  head_.forward(last_.data(), logits_.data());
}

void GptStep::backward() {
  head_.backward(last_.data(), logits_.data(), grad_.data());
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    block.down.backward(block.wide.data(), grad_.data(), wide_grad_.data());
    block.up.backward(block.x.data(), wide_grad_.data(), next_.data());
    block.out.backward(block.mixed.data(), next_.data(), grad_.data());
    attend_back(block, grad_.data(), heads_grad_.data());
    block.qkv.backward(block.x.data(), heads_grad_.data(), grad_.data());
  }
}

void GptStep::run() {
  forward();
  backward();
  for (Block& block : blocks_) {
    for (Linear* layer : {&block.qkv, &block.out, &block.up, &block.down}) layer->update();
  }
  head_.update();
}

double GptStep::operations() const {
  const double head = static_cast<double>(sizes_.width) / sizes_.heads;
  const double product = 2.0 * sizes_.seq * sizes_.seq * head;
  double out = 3 * head_.operations();
  for (const Block& block : blocks_) {
    for (const Linear* layer : {&block.qkv, &block.out, &block.up, &block.down})
      out += 3 * layer->operations();
    out += 6 * product * sizes_.batch * computed_heads();
  }
  return out;
}

}  // namespace headroom::cli::plain
