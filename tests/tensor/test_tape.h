// The least that differentiates: a tape for tests of ops, without hooks, views written in place or
// anything that autograd is for. It saves what it is told to and runs functions in reverse order.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "headroom/tensor/tape.h"

namespace headroom::testing {

class TestTape final : public tensor::Tape {
 public:
  void record(tensor::Record&& record) override;
  void check_in_place(const char* name, const Tensor& self) override;
  void require_grad(const Tensor& self, bool wanted) override;
  [[nodiscard]] bool is_leaf(const Tensor& self) override;
  [[nodiscard]] Tensor grad(const Tensor& self) override;
  void set_grad(const Tensor& self, const Tensor& gradient) override;
  void backward(const Tensor& self, const Tensor& gradient, bool retain_graph) override;

 private:
  std::uint64_t sequence_ = 0;
};

// Stands before any tape and counts what it is told to save.
class CountingTape final : public tensor::Tape {
 public:
  explicit CountingTape(tensor::Tape& inner) : inner_(inner) {}

  // Of distinct storages; a tensor saved twice is saved once.
  std::uint64_t saved_bytes = 0;
  std::vector<std::string> names{};
  std::vector<std::string> undeclared{};  // ops that do not say how much arithmetic they do
  double operations = 0;

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
  void backward(const Tensor& self, const Tensor& gradient, bool retain_graph) override {
    inner_.backward(self, gradient, retain_graph);
  }

 private:
  tensor::Tape& inner_;
  std::set<const tensor::Storage*> seen_{};
};

// Installs a tape until the end of the scope.
class TapeScope {
 public:
  explicit TapeScope(tensor::Tape& tape) : outer_(tensor::install_tape(&tape)) {}
  ~TapeScope() { tensor::install_tape(outer_); }
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  tensor::Tape* outer_;
};

}  // namespace headroom::testing
