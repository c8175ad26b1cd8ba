// Gradients of what ops have computed.
//
//   const Tensor w = randn({64, 8}, {.requires_grad = true});
//   const Tensor loss = square(matmul(x, w) - y).mean();
//   loss.backward();                                  // adds to w.grad()
//   const Tensor dw = autograd::grad({loss}, {w})[0]; // touches no .grad
//
// A graph is made as ops run, and run by one thread at a time; graphs of several threads may share
// leaves. A backward frees what the ops have saved as soon as each has been used, so that a second
// one over the same ops is refused unless the first was told to retain the graph.
#pragma once

#include <vector>

#include "headroom/tensor/tensor.h"

namespace headroom::autograd {

struct BackwardOptions {
  bool retain_graph = false;  // keep what was saved, for another backward
  bool create_graph = false;  // record the backward itself; retains the graph
};

// Adds to the gradient of every leaf behind `outputs`. `gradients` go with them; an undefined one,
// or none at all, is 1 and allowed for outputs of one element.
// Before anything is computed, throws InvalidArgument for an output without history or a gradient
// that does not fit, and Error for a graph that was freed or whose tensors were overwritten.
void backward(const std::vector<Tensor>& outputs,
              const std::vector<Tensor>& gradients = {},
              const BackwardOptions& options = {});
void backward(const Tensor& output,
              const Tensor& gradient = {},
              const BackwardOptions& options = {});

struct GradOptions {
  std::vector<Tensor> gradients{};  // of the outputs, as above
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;  // an input that is not behind the outputs: undefined, not an error
};

// The gradients of the outputs' sum by `inputs`, leaves or not. No .grad is touched, and only what
// lies between the two is run.
[[nodiscard]] std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                       const std::vector<Tensor>& inputs,
                                       const GradOptions& options = {});

// Keeps the gradient of something that is not a leaf, in its grad().
void retain_grad(const Tensor& tensor);

}  // namespace headroom::autograd
