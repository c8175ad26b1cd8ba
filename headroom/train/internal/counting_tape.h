// CountingTape: the arithmetic of what is recorded, in a forward and again in a backward.
#pragma once

#include "headroom/tensor/tape.h"

namespace headroom::train::internal {

// Stands before the tape of the process while it lives: nobody else may record meanwhile.
class CountingTape final : public tensor::Tape {
 public:
  CountingTape() : inner_(tensor::tape()), outer_(tensor::install_tape(this)) {}
  ~CountingTape() override { tensor::install_tape(outer_); }
  CountingTape(const CountingTape&) = delete;
  CountingTape& operator=(const CountingTape&) = delete;

  void record(tensor::Record&& record) override;
  void check_in_place(const char* name, const Tensor& self) override {
    inner_.check_in_place(name, self);
  }
  void require_grad(const Tensor& self, bool wanted) override { inner_.require_grad(self, wanted); }
  [[nodiscard]] bool is_leaf(const Tensor& self) override { return inner_.is_leaf(self); }
  [[nodiscard]] Tensor grad(const Tensor& self) override { return inner_.grad(self); }
  void set_grad(const Tensor& self, const Tensor& gradient) override {
    inner_.set_grad(self, gradient);
  }
  void backward(const Tensor& self, const Tensor& gradient, bool retain_graph) override;

  void reset() noexcept { forward_ = again_ = 0; }
  // Operations done again over operations of the forward.
  [[nodiscard]] double recompute_fraction() const noexcept {
    return forward_ > 0 ? again_ / forward_ : 0;
  }

 private:
  tensor::Tape& inner_;
  tensor::Tape* outer_;
  bool is_backward_ = false;
  double forward_ = 0;
  double again_ = 0;
};

}  // namespace headroom::train::internal
