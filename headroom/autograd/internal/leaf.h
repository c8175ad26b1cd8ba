// The node of a leaf: where its gradient is added up.
#pragma once

#include <memory>
#include <mutex>

#include "headroom/autograd/internal/state.h"

namespace headroom::autograd::internal {

// A leaf's gradient while an op adds to it: no other thread does.
struct OpenSum {
  std::shared_ptr<GradSlot> slot{};
  std::unique_lock<std::mutex> lock{};
};

class Leaf final : public Node {
 public:
  Leaf(const Tensor& tensor, const std::shared_ptr<GradSlot>& slot);

  [[nodiscard]] bool is_leaf() const noexcept override { return true; }
  // Adds in place where there is a gradient already; else keeps `gradient` if nobody else sees it,
  // or a copy. Nothing where the tensor has gone or wants none any more.
  void accumulate(const Tensor& gradient);
  // The gradient there is, for an op to add to before it lets go of `open`; undefined where there
  // is none, where a hook wants to see what is added, or while another thread adds to it.
  [[nodiscard]] Tensor open_sum(OpenSum& open);
  // The tensor, undefined when it has gone.
  [[nodiscard]] Tensor tensor() const { return Tensor(tensor_.lock()); }

 private:
  // Not held: a gradient with a history of its own leads back here.
  std::weak_ptr<tensor::Impl> tensor_;
  std::weak_ptr<GradSlot> slot_;
};

// Whether nobody but this handle can see the elements, so that they may be written over.
[[nodiscard]] bool is_ours(const Tensor& tensor);
// Whether nothing is recorded of a write, and every element has a place of its own.
[[nodiscard]] bool may_write(const Tensor& tensor);
// sum += gradient, without a new buffer where one of the two is ours.
void add_to(Tensor& sum, Tensor gradient);

}  // namespace headroom::autograd::internal
