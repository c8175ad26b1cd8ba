#include "headroom/autograd/autograd.h"

#include <string>
#include <string_view>
#include <utility>

#include "headroom/autograd/internal/graph_run.h"
#include "headroom/autograd/internal/leaf.h"
#include "headroom/autograd/internal/state.h"
#include "headroom/base/error.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::autograd {
namespace {

std::string named(const Tensor& tensor) {
  return std::string(to_string(tensor.dtype())) + to_string(tensor.shape());
}

NodePtr root_of(const char* who, const Tensor& output) {
  NodePtr node = internal::node_of(output);
  if (node) return node;
  throw InvalidArgument(std::string(who) + ": " + named(output) +
                        " was not computed from anything that needs a gradient (or under no_grad, "
                        "or it was detached)");
}

void check_gradient(const char* who, const Tensor& output, const Tensor& gradient) {
  if (!gradient.defined()) {
    if (output.numel() == 1 && !is_complex(output.dtype())) return;
    if (output.numel() == 1) {
      throw InvalidArgument(std::string(who) + ": " + named(output) +
                            " is complex, so its gradient must be given; a loss is real");
    }
    throw InvalidArgument(std::string(who) + ": " + named(output) +
                          " has more than one element (or none), so its gradient must be given");
  }
  if (gradient.shape() == output.shape() && gradient.dtype() == output.dtype() &&
      &gradient.device() == &output.device()) {
    return;
  }
  throw InvalidArgument(std::string(who) + ": a gradient of " + named(gradient) + " on " +
                        to_string(gradient.device().id()) + " does not go with " + named(output) +
                        " on " + to_string(output.device().id()));
}

struct Wanted {
  const char* who;
  const std::vector<Tensor>& outputs;
  const std::vector<Tensor>& gradients;
  std::vector<NodePtr> targets{};
  internal::RunOptions options{};
};

std::vector<Tensor> run_graph(const Wanted& wanted) {
  if (!wanted.gradients.empty() && wanted.gradients.size() != wanted.outputs.size()) {
    throw InvalidArgument(std::string(wanted.who) + ": " + std::to_string(wanted.gradients.size()) +
                          " gradients for " + std::to_string(wanted.outputs.size()) + " outputs");
  }
  std::vector<NodePtr> roots;
  std::vector<Tensor> gradients = wanted.gradients;
  gradients.resize(wanted.outputs.size());
  for (std::size_t i = 0; i < wanted.outputs.size(); ++i) {
    roots.push_back(root_of(wanted.who, wanted.outputs[i]));
    check_gradient(wanted.who, wanted.outputs[i], gradients[i]);
  }
  const memory::InPhaseScope phase(memory::Phase::kBackward);
  const memory::CategoryScope category(memory::Category::kGradient);
  const GradModeScope mode(wanted.options.create_graph);
  internal::GraphRun run(roots, wanted.targets, wanted.options);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = ones_like(wanted.outputs[i]);
  }
  return run.run(std::move(gradients));
}

}  // namespace

void backward(const std::vector<Tensor>& outputs,
              const std::vector<Tensor>& gradients,
              const BackwardOptions& options) {
  (void)run_graph({.who = "backward",
                   .outputs = outputs,
                   .gradients = gradients,
                   .options = {.retain_graph = options.retain_graph || options.create_graph,
                               .create_graph = options.create_graph}});
}

void backward(const Tensor& output, const Tensor& gradient, const BackwardOptions& options) {
  backward(std::vector{output}, std::vector{gradient}, options);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                         const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  std::vector<NodePtr> targets;
  targets.reserve(inputs.size());
  for (const Tensor& input : inputs) targets.push_back(root_of("grad", input));
  if (targets.empty()) throw InvalidArgument("grad: by no input at all");
  std::vector<Tensor> out =
      run_graph({.who = "grad",
                 .outputs = outputs,
                 .gradients = options.gradients,
                 .targets = std::move(targets),
                 .options = {.retain_graph = options.retain_graph || options.create_graph,
                             .create_graph = options.create_graph}});
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].defined() || options.allow_unused) continue;
    throw InvalidArgument(
        "grad: input " + std::to_string(i) + ", " + named(inputs[i]) +
        ", is not behind the outputs; allow_unused = true makes that an undefined "
        "gradient");
  }
  return out;
}

void retain_grad(const Tensor& tensor) {
  const NodePtr node = root_of("retain_grad", tensor);
  if (node->is_leaf()) return;
  internal::State& state = *internal::state_of(tensor.impl());
  if (state.slot) return;
  state.slot = std::make_shared<internal::GradSlot>();
  node->register_pre_hook([slot = state.slot](const Tensor& gradient) {
    const std::lock_guard lock(slot->mutex);
    internal::add_to(slot->grad, gradient);
    return Tensor();
  });
}

}  // namespace headroom::autograd
