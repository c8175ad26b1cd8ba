// Optimisers: all parameters at once, in place, with PyTorch's arithmetic.
//
//   nn::AdamW optimizer(model.parameters(), {.lr = 3e-4});
//   for (...) {
//     optimizer.zero_grad();
//     loss_of(model, batch).backward();
//     nn::clip_grad_norm_(optimizer.parameters(), 1.0);
//     optimizer.step();
//   }
//
// The first step that finds a gradient on a parameter makes the parameter's state. It has the
// parameter's shape, type and device, the category `optimizer_state` and the layer's name. No step
// allocates as much as the model takes. The learning rate, the count of steps and the list of
// parameters lie in device memory, a few bytes each. So a step reads nothing back, and a captured
// step can be replayed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/tensor/ops/optim.h"
#include "headroom/tensor/tensor.h"

namespace headroom::nn {

namespace internal {
// Throws InvalidArgument unless it is at least 0.
void check_norm(double max_norm);
}  // namespace internal

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Parameters without a gradient stay as they are.
  void step() { step_unless({}); }
  // The same, but changes nothing if `skip` (f64, one element, in device memory) is not 0. The
  // device decides, and the host does not wait for the answer.
  virtual void step_unless(const Tensor& skip);
  // The same as the free functions of these names, for the optimiser's own parameters, whose list
  // stays in device memory from step to step.
  Tensor clip_grad_norm_(double max_norm);
  void unscale_(const Tensor& scale, const Tensor& found);
  // Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  [[nodiscard]] double lr() const noexcept { return lr_; }
  // Throws InvalidArgument unless it is at least 0.
  void set_lr(double lr);
  // Writes the learning rate to where kernels read it. A step does so by itself; the replay of a
  // captured one does not.
  void write_lr() { list_.write_lr(lr_); }
  // The bytes of the momentums and squares that have been made so far.
  [[nodiscard]] std::uint64_t state_bytes() const;
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  // "sgd", "adam", "adamw".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

 protected:
  // `states`: how many tensors the state of a parameter has. Throws InvalidArgument if a parameter
  // is not a leaf that needs a gradient, or is listed twice.
  Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr, int states);

 private:
  struct State {
    Tensor first{};
    Tensor second{};
    Tensor step{};  // i64, one element
  };

  virtual void update(TensorList& list, const Tensor& skip) = 0;
  class ListScope;
  // Lists the parameters that have a gradient, with their state.
  void gather();
  [[nodiscard]] UpdatedTensor next(const Tensor& parameter, const Tensor& grad, std::size_t at);
  [[nodiscard]] Tensor new_step_count(const Tensor& parameter, std::size_t at);

  std::vector<Tensor> parameters_;
  std::vector<State> states_;
  // By device: the step counts of all its parameters, in one allocation.
  std::map<const device::Device*, Tensor> step_counts_{};
  TensorList list_{memory::Category::kOptimizerState};
  double lr_;
  int states_each_;
};

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<Tensor> parameters, const SgdOptions& options = {});
  [[nodiscard]] std::string_view name() const noexcept override { return "sgd"; }

 private:
  void update(TensorList& list, const Tensor& skip) override;
  SgdOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay{};  // 0 for Adam, 0.01 for AdamW
};

class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {})
      : Adam("adam", std::move(parameters), options, false) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "adam"; }

 protected:
  Adam(std::string_view name,
       std::vector<Tensor> parameters,
       const AdamOptions& options,
       bool is_decoupled);

 private:
  void update(TensorList& list, const Tensor& skip) override;
  AdamOptions options_;
  bool is_decoupled_;
};

// Weight decay straight on the parameters.
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamOptions& options = {})
      : Adam("adamw", std::move(parameters), options, true) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "adamw"; }
};

// "sgd", "momentum" (SGD with 0.9), "adam" or "adamw", all else their defaults. Throws
// InvalidArgument for another name.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<Tensor> parameters,
                                                        std::optional<double> lr = {});

}  // namespace headroom::nn
