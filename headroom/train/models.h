// Models by name: what they are made of, the blocks that checkpointing may forget, their loss and
// the shapes of their batches.
//
//   const auto model = train::make_model({.name = "gpt2-tiny", .depth = 4}, {.device = "cpu"});
//   const Tensor loss = model->loss((*model)(batch.input), batch.target);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/nn/module.h"
#include "headroom/tensor/place.h"
#include "headroom/tensor/shape.h"

namespace headroom::train {

// Which model, and what of it is to differ from its defaults.
struct ModelConfig {
  std::string name = "mlp";
  std::optional<std::int64_t> depth{};  // blocks
  std::optional<std::int64_t> width{};  // features
  std::optional<std::int64_t> seq{};    // tokens of an example

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The models, with their defaults; 0 where the option does not apply.
struct ModelInfo {
  std::string_view name;
  std::string_view summary;  // one sentence
  std::int64_t depth = 0;
  std::int64_t width = 0;
  std::int64_t seq = 0;
  std::int64_t batch = 0;
  bool is_small = false;  // its step takes a processor milliseconds, not minutes
  bool has_batch_norm = false;
  std::string_view optimizer = "sgd";
};

[[nodiscard]] std::span<const ModelInfo> models();
// Throws InvalidArgument, with the list and the nearest name, when there is none.
[[nodiscard]] const ModelInfo& find_model(std::string_view name);

// The parts of one example. The values are the model's to learn from (train/data.h).
struct ExampleShape {
  enum class Task : std::uint8_t {
    kClasses,  // floating input, one of `classes` as target
    kNumbers,  // floating input, a target of its shape
    kTokens,   // tokens, the next of each as target
  };
  Task task = Task::kClasses;
  Shape input{};
  std::int64_t classes = 0;  // or the vocabulary
};

// forward is leave(blocks(enter(x))).
class Model : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override;

  // The layers before the blocks, and those after them; by default none.
  virtual Tensor enter(const Tensor& x) { return x; }
  virtual Tensor leave(const Tensor& x) { return x; }
  // Run one behind the other; what checkpointing may run again.
  [[nodiscard]] virtual std::vector<nn::Module*> blocks() = 0;
  // The mean over the batch.
  [[nodiscard]] virtual Tensor loss(const Tensor& output, const Tensor& target);
  [[nodiscard]] const ExampleShape& example() const noexcept { return example_; }

 protected:
  explicit Model(ExampleShape example) : example_(example) {}

 private:
  ExampleShape example_;
};

// With its parameters, drawn from the device's generator. Throws InvalidArgument for a name that
// does not exist, an option that the model does not have, or a value that it cannot take.
[[nodiscard]] std::unique_ptr<Model> make_model(const ModelConfig& config,
                                                const TensorOptions& options = {});

// The same checks alone, and what its examples are.
[[nodiscard]] ExampleShape check_model(const ModelConfig& config);

}  // namespace headroom::train
