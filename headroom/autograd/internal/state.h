// The state that autograd keeps with a tensor.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "headroom/autograd/node.h"
#include "headroom/tensor/tape.h"

namespace headroom::autograd::internal {

// Where a tensor's .grad is. Threads that end in one leaf add to it one after the other.
struct GradSlot {
  std::mutex mutex{};
  Tensor grad{};
  std::optional<Stream> writer{};  // the stream of the last write that a backward made

  // Before a write on the current stream: after the one before. Requires `mutex`.
  void order_write() {
    const Stream now = current_stream(grad.device());
    if (writer && writer->id() != now.id() && &writer->device() == &now.device()) now.wait(*writer);
    writer = now;
  }

  [[nodiscard]] Tensor load() {
    const std::lock_guard lock(mutex);
    return grad;
  }
  void store(const Tensor& gradient) {
    const Tensor old = [&] {  // dropped without the lock
      const std::lock_guard lock(mutex);
      return std::exchange(grad, gradient);
    }();
  }
};

// Replaced, never changed, when the tensor gets another history by a write.
struct State final : tensor::GradState {
  NodePtr node{};
  std::shared_ptr<GradSlot> slot{};
  // Of a view: what its base had when `node` was found. Another there now: somebody wrote.
  std::shared_ptr<tensor::GradState> base_state{};
};

// Of a tensor that `node` made.
[[nodiscard]] std::shared_ptr<State> make_state(NodePtr node);
// As it hangs there; may be out of date for a view.
[[nodiscard]] inline State* state_of(const tensor::Impl& impl) noexcept {
  return static_cast<State*>(impl.grad_state.get());
}
// The node behind a tensor, brought up to date; null where no gradient is needed.
[[nodiscard]] NodePtr node_of(const Tensor& tensor);

}  // namespace headroom::autograd::internal
