// Checkpointing: memory for time. What the ops of a region save is not kept; the backward computes
// the region again when it gets there.
//
//   Tensor y = checkpoint([&](const Tensor& h) { return block.forward(h); }, x);
//   Tensor z = checkpoint_sequential(stages, sqrt_segments(n), x);
//
// Of a region only its inputs are kept, and tensors that it reads without having made them:
// parameters, captured or given, get their gradients as ever. It is computed again once a backward,
// as far as the last tensor that is needed, and each of these goes as soon as its op has used it.
// The second run has the random numbers, modes, autocast, annotations, streams and device of the
// first, and leaves the generators as it found them. Regions nest.
//
// The function must do the same each time: what is saved again is compared by order, op, shape,
// type and device. It is copied, and is called until the graph is freed: what it refers to must
// live as long. Writes to what the region made are replayed; writes to anything older are refused,
// and so is a backward when somebody wrote to an input since.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "headroom/tensor/tensor.h"

namespace headroom {

namespace autograd {
// The same for any number of inputs. An undefined one is an argument that was left out.
[[nodiscard]] Tensor checkpoint_all(std::function<Tensor(std::span<const Tensor>)> function,
                                    const std::vector<Tensor>& inputs);
}  // namespace autograd

// f(x, more...) of tensors, a tensor. Where nothing is recorded it is just called.
template <class F, class... More>
[[nodiscard]] Tensor checkpoint(F f, const Tensor& x, const More&... more) {
  return autograd::checkpoint_all(
      [f = std::move(f)](std::span<const Tensor> in) mutable -> Tensor {
        return [&]<std::size_t... kAt>(std::index_sequence<kAt...>) { return f(in[kAt]...); }
        (std::make_index_sequence<1 + sizeof...(More)>{});
      },
      {x, more...});
}

// The stages one after the other, in `segments` regions of as equal length as can be; the last is
// not one, since its backward comes at once. Throws InvalidArgument unless there are 1 to as many
// as stages.
[[nodiscard]] Tensor checkpoint_sequential(
    std::span<const std::function<Tensor(const Tensor&)>> stages, int segments, const Tensor& x);

// ceil(sqrt(stages)). With k segments of n equal stages, k inputs of segments and the n / k
// activations of one are there at once: this k makes that the least, ceil(2 sqrt(n)).
[[nodiscard]] int sqrt_segments(int stages);

}  // namespace headroom
