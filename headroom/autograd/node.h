// Node: a recorded op. It knows who made the op's inputs, what the op saved and how to go back; a
// tensor that needs a gradient points to the node that made it. A leaf's node is where its gradient
// is added up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headroom/autograd/hooks.h"
#include "headroom/autograd/saved.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/tape.h"

namespace headroom::autograd {

namespace internal {
class GraphRun;
class RunArgs;

// The shape, type and device that a gradient must have: those of the op's output.
struct TensorSpec {
  Shape shape{};
  DType dtype = DType::kF32;
  device::Device* device = nullptr;
};

[[nodiscard]] inline TensorSpec spec_of(const Tensor& tensor) {
  return {.shape = tensor.shape(), .dtype = tensor.dtype(), .device = &tensor.device()};
}
}  // namespace internal

class Node : public std::enable_shared_from_this<Node> {
 public:
  // The parts of a node. `inputs` has a null where no gradient is wanted.
  struct Parts {
    const char* name = "";
    std::vector<NodePtr> inputs{};
    std::vector<Saved> saved{};
    tensor::BackwardFunction backward{};
    internal::TensorSpec like{};
  };
  explicit Node(Parts parts);
  // Without recursion, however long the chain behind it is.
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // The op's: "mul", "add_".
  [[nodiscard]] const char* name() const noexcept { return name_; }
  // One for each input of the op, null where it needs no gradient.
  [[nodiscard]] std::span<const NodePtr> inputs() const noexcept { return inputs_; }
  [[nodiscard]] virtual bool is_leaf() const noexcept { return false; }
  // Whether a backward has run it and freed what it saved.
  [[nodiscard]] bool is_freed() const noexcept { return is_freed_; }
  // The path of annotations that the op ran under.
  [[nodiscard]] memory::AnnotationId annotation() const noexcept { return annotation_; }
  // The stream that the op ran on, and that its backward runs on. A leaf has none of its own.
  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }
  // Bytes of what it saved, counted by tensor; 0 for what pack hooks took.
  [[nodiscard]] std::uint64_t saved_bytes() const noexcept;

  // Before its backward runs, and after.
  HookHandle register_pre_hook(GradientHook hook);
  HookHandle register_post_hook(PostHook hook);

 protected:
  [[nodiscard]] bool has_pre_hooks() const;
  [[nodiscard]] bool has_post_hooks() const;
  Node(const char* name, internal::TensorSpec like, memory::AnnotationId annotation);

 private:
  friend class internal::GraphRun;
  friend class internal::RunArgs;
  friend HookHandle register_hook(const Tensor& tensor, GradientHook hook);
  friend HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, AccumulateHook hook);

  [[nodiscard]] internal::NodeHooks& hooks();
  // Throws Error when a backward cannot run it: freed, or what it saved was overwritten.
  void check() const;
  void free_saved() noexcept;

  const char* name_;
  std::vector<NodePtr> inputs_{};
  std::vector<Saved> saved_;
  tensor::BackwardFunction backward_{};
  internal::TensorSpec like_;
  Stream stream_;
  std::uint64_t sequence_;
  memory::AnnotationId annotation_;
  bool is_freed_ = false;
  std::shared_ptr<internal::NodeHooks> hooks_{};
};

// The node that made a tensor; null for one that needs no gradient.
[[nodiscard]] NodePtr grad_fn(const Tensor& tensor);

}  // namespace headroom::autograd
