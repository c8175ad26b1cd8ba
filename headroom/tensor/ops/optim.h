// What optimisers do to many tensors at once, in place: one launch over the whole list, without a
// temporary of its size. headroom/nn/optim has the optimisers themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "headroom/tensor/tensor.h"

namespace headroom {

// A parameter with its gradient and state, all of one shape, type and device. Dense, but for the
// gradient, of which a copy is made where it is not.
struct Updated {
  Tensor param{};
  Tensor grad{};
  Tensor first{};   // momentum; undefined for SGD without
  Tensor second{};  // Adam's mean of squares
  // Of this parameter, from 1. At the first, what is in the state is not looked at.
  std::int64_t step = 1;
};

struct SgdUpdate {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool is_nesterov = false;
};

struct AdamUpdate {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool is_decoupled = false;  // AdamW: the decay is not part of the gradient
};

// Nothing is recorded. The tensors of a list may be on several devices.
void sgd_(std::span<const Updated> list, const SgdUpdate& update);
void adam_(std::span<const Updated> list, const AdamUpdate& update);

// Multiplies all by a number.
void scale_(std::span<const Tensor> list, double factor);
// The same, and whether all were finite before. Waits for the answer. On meta all are.
[[nodiscard]] bool unscale_(std::span<const Tensor> list, double factor);
// The 2-norm of all elements of all, added up in f64 in an order that shapes alone decide. Waits
// for the answer; none on meta, which has no values.
[[nodiscard]] std::optional<double> norm_of(std::span<const Tensor> list);

}  // namespace headroom
