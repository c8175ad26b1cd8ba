#include "tests/tensor/test_tape.h"

#include <map>
#include <memory>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::testing {
namespace {

using tensor::BackwardArgs;
using tensor::GradState;
using tensor::Record;
using tensor::SavedTensor;

struct Node;

struct State final : GradState {
  std::shared_ptr<Node> node{};  // null for a leaf
  Tensor grad{};
};

struct Saved {
  Tensor tensor{};
  std::uint64_t version = 0;
};

struct Node {
  std::uint64_t sequence = 0;
  std::string name{};
  std::vector<std::shared_ptr<State>> inputs{};  // null where no gradient is wanted
  std::vector<Saved> saved{};
  tensor::BackwardFunction function{};
};

std::shared_ptr<State> state_of(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return std::static_pointer_cast<State>(tensor.impl().grad_state);
}

std::shared_ptr<State> wanted_state(const Tensor& tensor) {
  auto state = state_of(tensor);
  return state && state->requires_grad() ? state : nullptr;
}

class Args final : public BackwardArgs {
 public:
  Args(const Node& node, Tensor grad)
      : grads(node.inputs.size()), node_(node), grad_(std::move(grad)) {}

  const Tensor& grad() override { return grad_; }
  Tensor saved(std::size_t slot) override {
    if (slot >= node_.saved.size()) return {};
    const Saved& saved = node_.saved[slot];
    if (saved.tensor.defined() && saved.tensor.version() != saved.version) {
      throw Error(node_.name + ": a saved tensor was written to");
    }
    return saved.tensor;
  }
  bool needs(std::size_t input) const override { return node_.inputs.at(input) != nullptr; }
  void set_grad(std::size_t input, const Tensor& gradient) override {
    if (grads.at(input).defined()) throw Error(node_.name + ": a gradient was set twice");
    grads.at(input) = gradient;
  }

  std::vector<Tensor> grads;

 private:
  const Node& node_;
  Tensor grad_;
};

}  // namespace

void TestTape::record(Record&& record) {
  auto node = std::make_shared<Node>();
  node->sequence = ++sequence_;
  node->name = record.name;
  node->function = std::move(record.backward);
  for (const Tensor* input : record.inputs) node->inputs.push_back(wanted_state(*input));
  for (const SavedTensor& saved : record.saved) {
    const bool is_held = saved.tensor != nullptr && saved.tensor->defined();
    // Detached: a node that held its own output would never go away.
    node->saved.push_back(is_held ? Saved{saved.tensor->detach(), saved.tensor->version()}
                                  : Saved{});
  }
  auto state = std::make_shared<State>();
  state->set_requires_grad(true);
  state->node = std::move(node);
  record.output->impl().grad_state = std::move(state);
}

void TestTape::check_in_place(const char* name, const Tensor& self) {
  const auto state = wanted_state(self);
  if (state && !state->node) {
    throw InvalidArgument(std::string(name) + ": a leaf that needs a gradient is written to");
  }
}

void TestTape::require_grad(const Tensor& self, bool wanted) {
  if (!self.impl().grad_state) self.impl().grad_state = std::make_shared<State>();
  self.impl().grad_state->set_requires_grad(wanted);
}

bool TestTape::is_leaf(const Tensor& self) {
  const auto state = state_of(self);
  return !state || !state->node;
}

Tensor TestTape::grad(const Tensor& self) {
  const auto state = state_of(self);
  return state ? state->grad : Tensor();
}

void TestTape::set_grad(const Tensor& self, const Tensor& gradient) {
  if (const auto state = state_of(self)) state->grad = gradient;
}

void TestTape::backward(const Tensor& self, const Tensor& gradient, bool) {
  const GradModeScope no_grad(false);
  const memory::CategoryScope category(memory::Category::kGradient);
  std::map<std::uint64_t, std::pair<std::shared_ptr<State>, Tensor>> ready;  // newest first
  const auto give = [&](const std::shared_ptr<State>& state, const Tensor& grad) {
    Tensor& sum = state->node ? ready[~state->node->sequence].second : state->grad;
    if (state->node) ready[~state->node->sequence].first = state;
    sum = sum.defined() ? add(sum, grad) : grad;
  };
  const auto start = wanted_state(self);
  if (!start) throw Error("backward: nothing here needs a gradient");
  give(start, gradient.defined() ? gradient : ones_like(self));
  while (!ready.empty()) {
    auto [state, grad] = std::move(ready.begin()->second);
    ready.erase(ready.begin());
    Args args(*state->node, std::move(grad));
    state->node->function(args);
    for (std::size_t i = 0; i < args.grads.size(); ++i) {
      if (state->node->inputs[i] && args.grads[i].defined())
        give(state->node->inputs[i], args.grads[i]);
    }
  }
}

void CountingTape::record(Record&& record) {
  if (record.work.kind == tensor::Work::Kind::kUnknown) undeclared.emplace_back(record.name);
  operations += tensor::operations_of(record);
  names.emplace_back(record.name);
  for (const SavedTensor& saved : record.saved) {
    if (saved.tensor == nullptr || !saved.tensor->defined()) continue;
    if (seen_.insert(&saved.tensor->storage()).second) saved_bytes += saved.tensor->size_bytes();
  }
  inner_.record(std::move(record));
}

}  // namespace headroom::testing
