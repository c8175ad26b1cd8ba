// Functions that the user adds to a graph: to see or replace gradients on their way, and to move
// what is saved for backward elsewhere.
//
//   HookHandle hook = register_hook(y, [](const Tensor& grad) { return grad * 0.5; });
//   ...
//   hook.remove();                       // dropping the handle does not remove it
//
//   {
//     SavedTensorHooks offload({.pack = [](const Tensor& t) { return std::any(t.to("cpu")); },
//                               .unpack = [](const std::any& packed) {
//                                 return std::any_cast<Tensor>(packed).to("cuda");
//                               }});
//     loss = model(x);                   // what these ops save goes through pack
//   }
//   loss.backward();                     // and comes back through unpack
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "headroom/tensor/tensor.h"

namespace headroom::autograd {

namespace internal {
struct NodeHooks;
}  // namespace internal

class HookHandle {
 public:
  HookHandle() = default;
  // Once is enough; later it does nothing, as it does when the graph has gone.
  void remove();

 private:
  friend struct internal::NodeHooks;
  std::weak_ptr<internal::NodeHooks> hooks_{};
  std::uint64_t id_ = 0;
};

// Sees a gradient; what it returns takes its place, an undefined tensor leaves it.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;
// Sees what an op's backward made (undefined where nothing was wanted) and what it was made of.
using PostHook =
    std::function<void(std::span<const Tensor> input_gradients, const Tensor& output_gradient)>;
// Sees a leaf whose gradient has just been added to.
using AccumulateHook = std::function<void(const Tensor& leaf)>;

// Of the gradient of a tensor that needs one, once it is complete and before it is used. Throws
// InvalidArgument when the tensor needs no gradient.
HookHandle register_hook(const Tensor& tensor, GradientHook hook);
// Throws InvalidArgument for what is not a leaf that needs a gradient.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, AccumulateHook hook);

struct SavedTensorHookPair {
  // Given what an op saves, without its history where it is the op's output. What it returns is
  // kept in its place: the tensor itself is not, and writes to it are not looked for.
  std::function<std::any(const Tensor& tensor)> pack{};
  // Must return the same elements.
  std::function<Tensor(const std::any& packed)> unpack{};
};

// Until the end of the scope, what ops of this thread save goes through the pair. Of nested scopes
// the innermost counts. The functions run with nothing recorded.
class SavedTensorHooks {
 public:
  explicit SavedTensorHooks(SavedTensorHookPair pair);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  std::shared_ptr<const SavedTensorHookPair> outer_;
};

}  // namespace headroom::autograd
