// Autograd's tape: what ops tell, as nodes.
#pragma once

#include "headroom/tensor/tape.h"

namespace headroom::autograd::internal {

class GraphTape final : public tensor::Tape {
 public:
  void record(tensor::Record&& record) override;
  void check_in_place(const char* name, const Tensor& self) override;
  void require_grad(const Tensor& self, bool wanted) override;
  [[nodiscard]] bool is_leaf(const Tensor& self) override;
  [[nodiscard]] Tensor grad(const Tensor& self) override;
  void set_grad(const Tensor& self, const Tensor& gradient) override;
  void backward(const Tensor& self, const Tensor& gradient, bool retain_graph) override;
};

}  // namespace headroom::autograd::internal
