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
// A parameter's state is made at the first step that finds a gradient on it: of its shape, type and
// device, category optimiser state, under the layer's name. No step makes anything the size of the
// model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/tensor/ops/optim.h"
#include "headroom/tensor/tensor.h"

namespace headroom::nn {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Parameters without a gradient stay as they are.
  virtual void step();
  // Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  [[nodiscard]] double lr() const noexcept { return lr_; }
  // Throws InvalidArgument unless it is at least 0.
  void set_lr(double lr);
  // Of the state there is by now.
  [[nodiscard]] std::uint64_t state_bytes() const;
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  // "sgd", "adam", "adamw".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

 protected:
  // `states`: tensors a parameter. Throws InvalidArgument for parameters that are no leaves that
  // need a gradient, or come twice.
  Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr, int states);

 private:
  struct State {
    Tensor first{};
    Tensor second{};
    std::int64_t step = 0;
  };

  virtual void update(const std::vector<Updated>& list) = 0;
  [[nodiscard]] Updated next(const Tensor& parameter, const Tensor& grad, State& state) const;

  std::vector<Tensor> parameters_;
  std::vector<State> states_;
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
  void update(const std::vector<Updated>& list) override;
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
  void update(const std::vector<Updated>& list) override;
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
