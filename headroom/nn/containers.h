// Modules that own others.
//
//   nn::Sequential net;
//   net.emplace<nn::Linear>(784, 256);
//   net.emplace<nn::ReLU>();
//   net.emplace<nn::Linear>(256, 10);
//   Tensor logits = net(x);
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "headroom/nn/module.h"

namespace headroom::nn {

// Parts by number: "0", "1". It has no forward: whoever owns it says in which order they run.
class ModuleList : public Module {
 public:
  Module& push_back(std::unique_ptr<Module> part);
  template <class T, class... Args>
  T& emplace(Args&&... args) {
    auto part = std::make_unique<T>(std::forward<Args>(args)...);
    T& out = *part;
    push_back(std::move(part));
    return out;
  }

  [[nodiscard]] std::size_t size() const noexcept { return owned_.size(); }
  [[nodiscard]] bool empty() const noexcept { return owned_.empty(); }
  [[nodiscard]] Module& operator[](std::size_t i) const { return *owned_.at(i); }
  // Over unique_ptr<Module>.
  [[nodiscard]] auto begin() const noexcept { return owned_.begin(); }
  [[nodiscard]] auto end() const noexcept { return owned_.end(); }

 private:
  [[nodiscard]] bool is_list() const noexcept override { return true; }

  std::vector<std::unique_ptr<Module>> owned_{};
};

// One behind the other.
class Sequential : public ModuleList {
 public:
  Tensor forward(const Tensor& x) override;

 private:
  [[nodiscard]] bool is_list() const noexcept override { return false; }
};

}  // namespace headroom::nn
