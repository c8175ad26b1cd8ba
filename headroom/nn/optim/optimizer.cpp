#include "headroom/nn/optim/optimizer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/tensor/tape.h"

namespace headroom::nn {
namespace {

using memory::Phase;

// Throws unless low <= value < below.
void check_range(std::string_view who, const char* what, double value, double low, double below) {
  if (value >= low && value < below) return;
  throw InvalidArgument(std::string(who) + ": " + what + " must be at least " +
                        to_string(Scalar(low)) +
                        (below < 1e300 ? " and below " + to_string(Scalar(below)) : "") + ", not " +
                        to_string(Scalar(value)));
}

constexpr double kNoBound = 1e308;

// The names of the layer, which the gradient has from the backward pass.
memory::AnnotationId state_path(const Tensor& grad) {
  const memory::AnnotationPath path(grad.storage().annotation());
  return memory::intern_annotation(memory::current_context().annotation,
                                   path.inside(Phase::kBackward));
}

// Where the parameter is now: it may have been moved, or changed its type.
void follow(Tensor& state, const Tensor& parameter) {
  if (!state.defined()) return;
  if (&state.device() != &parameter.device()) state = state.to(parameter.storage().allocator());
  state = state.to(parameter.dtype());
}

}  // namespace

void internal::check_norm(double max_norm) {
  if (max_norm >= 0) return;
  throw InvalidArgument("clip_grad_norm_: a norm of at least 0 is wanted, not " +
                        to_string(Scalar(max_norm)));
}

// The list for one call: nobody's gradients are held afterwards.
class Optimizer::ListScope {
 public:
  explicit ListScope(Optimizer& optimizer) : list_(optimizer.list_) { optimizer.gather(); }
  ~ListScope() { list_.clear(); }
  ListScope(const ListScope&) = delete;
  ListScope& operator=(const ListScope&) = delete;

 private:
  TensorList& list_;
};

Optimizer::Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr, int states)
    : parameters_(std::move(parameters)),
      states_(parameters_.size()),
      lr_(lr),
      states_each_(states) {
  check_range(name, "lr", lr, 0, kNoBound);
  std::set<const tensor::Impl*> seen;
  for (const Tensor& parameter : parameters_) {
    if (!parameter.defined() || !parameter.requires_grad() || !parameter.is_leaf()) {
      throw InvalidArgument(std::string(name) + ": parameter " + std::to_string(seen.size()) +
                            " is not a leaf that needs a gradient; requires_grad_() it");
    }
    if (!seen.insert(parameter.shared().get()).second) {
      throw InvalidArgument(std::string(name) + ": parameter " + std::to_string(seen.size()) +
                            " is in the list already");
    }
  }
}

void Optimizer::set_lr(double lr) {
  check_range(name(), "lr", lr, 0, kNoBound);
  lr_ = lr;
}

// Zero: in one allocation with those of all other parameters of the device.
Tensor Optimizer::new_step_count(const Tensor& parameter, std::size_t at) {
  Tensor& counts = step_counts_[&parameter.device()];
  if (!counts.defined()) {
    const memory::CategoryScope category(memory::Category::kOptimizerState);
    counts = zeros({static_cast<std::int64_t>(parameters_.size())},
                   {.dtype = kI64, .device = parameter.storage().allocator()});
  }
  return counts.narrow(0, static_cast<std::int64_t>(at), 1);
}

UpdatedTensor Optimizer::next(const Tensor& parameter, const Tensor& grad, std::size_t at) {
  State& state = states_[at];
  if (!state.step.defined()) state.step = new_step_count(parameter, at);
  const memory::ContextScope context({memory::Category::kOptimizerState, state_path(grad)});
  const TensorOptions like{.dtype = parameter.dtype(), .device = parameter.storage().allocator()};
  follow(state.first, parameter);
  follow(state.second, parameter);
  if (&state.step.device() != &parameter.device()) {
    state.step = state.step.to(parameter.storage().allocator());
  }
  if (states_each_ > 0 && !state.first.defined()) state.first = empty(parameter.shape(), like);
  if (states_each_ > 1 && !state.second.defined()) state.second = empty(parameter.shape(), like);
  return {.param = parameter,
          .grad = grad,
          .first = state.first,
          .second = state.second,
          .step = state.step};
}

void Optimizer::gather() {
  std::vector<UpdatedTensor> list;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor grad = parameters_[i].grad();
    if (grad.defined()) list.push_back(next(parameters_[i], grad, i));
  }
  list_.assign(name().data(), std::move(list));
}

void Optimizer::step_unless(const Tensor& skip) {
  const memory::InPhaseScope phase(Phase::kOptimizerStep);
  const GradModeScope no_grad(false);
  const ListScope list(*this);
  update(list_, skip);
}

Tensor Optimizer::clip_grad_norm_(double max_norm) {
  internal::check_norm(max_norm);
  const GradModeScope no_grad(false);
  const ListScope list(*this);
  return list_.clip_norm_(max_norm);
}

void Optimizer::unscale_(const Tensor& scale, const Tensor& found) {
  const GradModeScope no_grad(false);
  const ListScope list(*this);
  list_.unscale_(scale, found);
}

void Optimizer::zero_grad(bool set_to_none) {
  const GradModeScope no_grad(false);
  for (const Tensor& parameter : parameters_) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    set_to_none ? parameter.set_grad({}) : void(grad.zero_());
  }
}

std::uint64_t Optimizer::state_bytes() const {
  std::uint64_t sum = 0;
  for (const State& state : states_) {
    for (const Tensor* one : {&state.first, &state.second}) {
      if (one->defined()) sum += one->size_bytes();
    }
  }
  return sum;
}

Sgd::Sgd(std::vector<Tensor> parameters, const SgdOptions& options)
    : Optimizer("sgd", std::move(parameters), options.lr, options.momentum != 0 ? 1 : 0),
      options_(options) {
  check_range("sgd", "momentum", options.momentum, 0, kNoBound);
  check_range("sgd", "weight_decay", options.weight_decay, 0, kNoBound);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw InvalidArgument("sgd: nesterov wants a momentum and no dampening");
  }
}

void Sgd::update(TensorList& list, const Tensor& skip) {
  list.sgd_({.lr = lr(),
             .momentum = options_.momentum,
             .dampening = options_.dampening,
             .weight_decay = options_.weight_decay,
             .is_nesterov = options_.nesterov},
            skip);
}

Adam::Adam(std::string_view name,
           std::vector<Tensor> parameters,
           const AdamOptions& options,
           bool is_decoupled)
    : Optimizer(name, std::move(parameters), options.lr, 2),
      options_(options),
      is_decoupled_(is_decoupled) {
  check_range(name, "beta1", options.beta1, 0, 1);
  check_range(name, "beta2", options.beta2, 0, 1);
  check_range(name, "eps", options.eps, 0, kNoBound);
  if (!options_.weight_decay) options_.weight_decay = is_decoupled ? 0.01 : 0;
  check_range(name, "weight_decay", *options_.weight_decay, 0, kNoBound);
}

void Adam::update(TensorList& list, const Tensor& skip) {
  list.adam_({.lr = lr(),
              .beta1 = options_.beta1,
              .beta2 = options_.beta2,
              .eps = options_.eps,
              .weight_decay = *options_.weight_decay,
              .is_decoupled = is_decoupled_},
             skip);
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name,
                                          std::vector<Tensor> parameters,
                                          std::optional<double> lr) {
  const SgdOptions sgd{.lr = lr.value_or(SgdOptions{}.lr),
                       .momentum = name == "momentum" ? 0.9 : 0.0};
  const AdamOptions adam{.lr = lr.value_or(AdamOptions{}.lr)};
  if (name == "sgd" || name == "momentum") {
    return std::make_unique<Sgd>(std::move(parameters), sgd);
  }
  if (name == "adam") return std::make_unique<Adam>(std::move(parameters), adam);
  if (name == "adamw") return std::make_unique<AdamW>(std::move(parameters), adam);
  throw InvalidArgument("there is no optimiser '" + std::string(name) +
                        "'; there are sgd, momentum, adam and adamw");
}

}  // namespace headroom::nn
