// The matrix products of a training step and its update as one would write them by hand: loops of
// plain calls of OpenBLAS over arrays that are there already. Nothing else of the step is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::cli::plain {

using Numbers = std::vector<float>;

// Linear layers: a weight [out, in], its gradient, and the calls they take.
class Linear {
 public:
  Linear(int rows, int in, int out);

  void forward(const float* x, float* y) const;
  // The gradient of x only where there is somewhere to put it.
  void backward(const float* x, const float* y_grad, float* x_grad);
  void update();
  [[nodiscard]] double operations() const { return 2.0 * rows_ * in_ * out_; }  // of one product

 private:
  int rows_;
  int in_;
  int out_;
  Numbers weight_;
  Numbers gradient_;
};

// Blocks of two linear layers.
class DeepNetStep {
 public:
  DeepNetStep(int depth, int width, int batch);
  void run();
  [[nodiscard]] double operations() const;

 private:
  std::vector<Linear> layers_{};
  std::vector<Numbers> activations_;
  Numbers grad_;
  Numbers next_;
};

struct GptSizes {
  int depth = 0;
  int width = 0;
  int heads = 0;
  int seq = 0;
  int batch = 0;
  int vocabulary = 0;
};

// Of attention half of the heads are computed, each in full: what is masked need not be.
class GptStep {
 public:
  explicit GptStep(const GptSizes& sizes);
  void run();
  [[nodiscard]] double operations() const;

 private:
  struct Block {
    Linear qkv, out, up, down;
    Numbers x, heads, mixed, wide;  // what each layer takes
    Numbers scores;
  };

  [[nodiscard]] int rows() const { return sizes_.batch * sizes_.seq; }
  [[nodiscard]] int computed_heads() const { return (sizes_.heads + 1) / 2; }
  // f(sequence, head, where its scores start) for all that is computed.
  template <class F>
  void for_heads(const F& f) const;
  void attend(Block& block);
  void attend_back(Block& block, const float* grad, float* heads_grad);
  void forward();
  void backward();

  GptSizes sizes_;
  std::vector<Block> blocks_{};
  Linear head_;
  Numbers last_;
  Numbers logits_;
  Numbers grad_;
  Numbers next_;
  Numbers heads_grad_;
  Numbers wide_grad_;
  Numbers scores_grad_;
};

}  // namespace headroom::cli::plain
