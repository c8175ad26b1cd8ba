// Module: a part of a model, with parameters, buffers and parts of its own, each by name. Parts are
// plain members; the constructor says what they are called.
//
//   class Mlp : public nn::Module {
//    public:
//     Mlp() { add("fc1", fc1_); add("fc2", fc2_); }
//     Tensor forward(const Tensor& x) override { return fc2_(relu(fc1_(x))); }
//
//    private:
//     nn::Linear fc1_{784, 256};
//     nn::Linear fc2_{256, 10};
//   };
//
//   Mlp model;
//   for (const auto& [name, tensor] : model.named_parameters()) ...     // "fc1.weight"
//   Tensor y = model(x);         // what fc1 allocates is annotated with its name
//
// A module is where it was made: it is registered by its address, so it is not copied or moved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/memory/annotation.h"
#include "headroom/tensor/tensor.h"

namespace headroom::nn {

using NamedTensor = std::pair<std::string, Tensor>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Runs forward, with the name of this module on the path of annotations.
  Tensor operator()(const Tensor& x);
  // Throws InvalidArgument unless a module has one.
  virtual Tensor forward(const Tensor& x);

  // --- What it is made of ----------------------------------------------------------------------

  // With those of its parts, "blocks.0.attn.qkv.weight", in the order in which they were added. A
  // tensor that has several names comes once, by its first.
  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_buffers() const;
  // Parameters, then buffers: what a file holds.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  [[nodiscard]] std::vector<Tensor> parameters() const;
  // Elements of the parameters.
  [[nodiscard]] std::int64_t num_parameters() const;
  // As its owner calls it; empty for the whole model.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // --- What is done to all of it ---------------------------------------------------------------

  void train(bool is_training = true);
  void eval() { train(false); }
  [[nodiscard]] bool is_training() const noexcept { return is_training_; }

  // Moves every tensor, or gives the floating ones another type, and their gradients with them.
  // They stay the same tensors over other memory, so whoever holds one (an optimiser) sees it move.
  // Earlier graphs must have had their backward by then, and hooks on them go.
  void to(const Place& place);
  void to(DType dtype);
  // Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

 protected:
  // The name of a module on the path of annotations while it lives, as in a call.
  class NameScope {
   public:
    explicit NameScope(const Module& module) {
      if (!module.name_.empty()) scope_.emplace(module.label());
    }

   private:
    std::optional<memory::AnnotationScope> scope_{};
  };

  // Names have no dot, and come once. What is added must live as long as this module: a member.
  void add(std::string name, Module& part);
  // Skipped while undefined: a bias that was left out.
  void add_parameter(std::string name, Tensor& parameter);
  void add_buffer(std::string name, Tensor& buffer);

 private:
  struct Entry {
    std::string name;
    Tensor* tensor;
    bool is_buffer;
  };
  struct Part {
    std::string name;
    Module* module;
  };

  void check_name(std::string_view name) const;
  void collect(const std::string& prefix, bool buffers, std::vector<NamedTensor>& out) const;
  // "blocks.0": of a part of a list, which is never called itself.
  [[nodiscard]] std::string label() const;
  [[nodiscard]] virtual bool is_list() const noexcept { return false; }

  std::string name_{};
  Module* owner_ = nullptr;
  std::vector<Entry> tensors_{};
  std::vector<Part> parts_{};
  bool is_training_ = true;
};

}  // namespace headroom::nn
