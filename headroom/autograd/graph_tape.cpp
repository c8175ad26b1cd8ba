#include "headroom/autograd/internal/graph_tape.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "headroom/autograd/autograd.h"
#include "headroom/autograd/internal/leaf.h"
#include "headroom/autograd/internal/state.h"
#include "headroom/autograd/internal/view_history.h"
#include "headroom/base/error.h"

// tensor/tape.cpp looks for this.
extern "C" headroom::tensor::Tape* headroom_autograd_tape() noexcept;
extern "C" headroom::tensor::Tape* headroom_autograd_tape() noexcept {
  // Never destroyed: tensors may be used until the very end of the process.
  union Forever {
    Forever() noexcept : tape() {}
    ~Forever() {}  // NOLINT(modernize-use-equals-default): that would be none at all
    headroom::autograd::internal::GraphTape tape;
  };
  static Forever forever;
  return &forever.tape;
}

namespace headroom::autograd {
namespace internal {
namespace {

using tensor::Impl;
using tensor::Record;
using tensor::RecordKind;
using tensor::SavedTensor;

std::string kind_and_shape(const Tensor& tensor) {
  return std::string(to_string(tensor.dtype())) + to_string(tensor.shape());
}

// The node of an input that is saved, for second derivatives.
NodePtr saved_node(const Record& record, const Tensor& saved) {
  const auto is_it = [&](const Tensor* input) { return input->is_same(saved); };
  return std::any_of(record.inputs.begin(), record.inputs.end(), is_it) ? node_of(saved) : nullptr;
}

Saved save(const Record& record, const SavedTensor& saved) {
  if (saved.tensor == nullptr || !saved.tensor->defined()) return {};
  const bool is_own_output = saved.is_output && saved.tensor->is_same(*record.output);
  return {record.name,
          *saved.tensor,
          saved.is_output ? nullptr : saved_node(record, *saved.tensor),
          is_own_output,
          saved.is_output && !is_own_output};
}

std::vector<Saved> save_all(const Record& record) {
  std::vector<Saved> out;
  for (const SavedTensor& saved : record.saved) out.push_back(save(record, saved));
  const auto is_empty = [](const Saved& saved) { return saved.is_empty(); };
  if (std::all_of(out.begin(), out.end(), is_empty)) out.clear();
  return out;
}

std::vector<NodePtr> nodes_of(const Record& record) {
  std::vector<NodePtr> out;
  out.reserve(record.inputs.size());
  for (const Tensor* input : record.inputs) out.push_back(node_of(*input));
  return out;
}

// A write whose backward could not be saved has happened all the same: no gradient may pass it.
tensor::BackwardFunction refusing(const char* name) {
  return [name](tensor::BackwardArgs&) {
    throw Error("backward: " + std::string(name) +
                " wrote to its tensor but failed to save what its backward needs");
  };
}

// The write to a view becomes one to a part of its base, and the view is a view of the result.
void record_write_to_view(Record&& record, std::vector<Saved> saved, Impl& view) {
  Impl& base = *view.base;
  std::vector<NodePtr> inputs = nodes_of(record);
  const State* const base_state = state_of(base);
  inputs[0] = base_state != nullptr && base_state->requires_grad() ? base_state->node : nullptr;
  base.grad_state = make_state(std::make_shared<Node>(Node::Parts{
      .name = record.name,
      .inputs = std::move(inputs),
      .saved = std::move(saved),
      .backward = backward_of_part(std::move(record.backward), layout_of(base), layout_of(view)),
      .like = {.shape = base.shape, .dtype = base.dtype, .device = &base.storage->device()}}));
  view.is_untracked = false;
  refresh_view(view);
}

void record_output(Record&& record, std::vector<Saved> saved, Impl& output) {
  std::shared_ptr<State> state =
      make_state(std::make_shared<Node>(Node::Parts{.name = record.name,
                                                    .inputs = nodes_of(record),
                                                    .saved = std::move(saved),
                                                    .backward = std::move(record.backward),
                                                    .like = spec_of(*record.output)}));
  if (output.base) state->base_state = output.base->grad_state;
  output.grad_state = std::move(state);
}

[[noreturn]] void refuse_write(const char* name, const Tensor& self, const char* what) {
  throw InvalidArgument(std::string(name) + ": " + kind_and_shape(self) + " " + what);
}

bool is_wanted_leaf(const Impl& impl) {
  const State* const state = state_of(impl);
  return state != nullptr && state->requires_grad() && state->node->is_leaf();
}

}  // namespace

std::shared_ptr<State> make_state(NodePtr node) {
  auto state = std::make_shared<State>();
  state->node = std::move(node);
  state->set_requires_grad(true);
  return state;
}

NodePtr node_of(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  refresh_view(tensor.impl());
  const State* const state = state_of(tensor.impl());
  return state != nullptr && state->requires_grad() ? state->node : nullptr;
}

void GraphTape::record(Record&& record) {
  const bool is_write = record.kind == RecordKind::kInPlace;
  Impl& output = record.output->impl();
  std::vector<Saved> saved;
  std::exception_ptr failure;
  try {
    saved = save_all(record);
  } catch (...) {
    if (!is_write) throw;
    failure = std::current_exception();
    record.backward = refusing(record.name);
  }
  is_write&& output.base ? record_write_to_view(std::move(record), std::move(saved), output)
                         : record_output(std::move(record), std::move(saved), output);
  if (failure) std::rethrow_exception(failure);
}

void GraphTape::check_in_place(const char* name, const Tensor& self) {
  const Impl& impl = self.impl();
  if (impl.storage->is_inference() && !GradMode::is_inference()) {
    refuse_write(
        name, self, "was made in inference mode and cannot be written to outside of it; clone it");
  }
  if (is_wanted_leaf(impl)) {
    refuse_write(name,
                 self,
                 "is a leaf that needs a gradient and cannot be written to; use no_grad, or write "
                 "to a clone");
  }
  if (!impl.base) return;
  if (is_wanted_leaf(*impl.base)) {
    refuse_write(name,
                 self,
                 "is a view of a leaf that needs a gradient and cannot be written to; use no_grad, "
                 "or write to a clone");
  }
  const State* const base = state_of(*impl.base);
  if (impl.is_untracked && base != nullptr && base->requires_grad()) {
    refuse_write(name,
                 self,
                 "is a view that was made under no_grad of something with a history; make it "
                 "outside, or write under no_grad");
  }
}

void GraphTape::require_grad(const Tensor& self, bool wanted) {
  Impl& impl = self.impl();
  refresh_view(impl);
  State* const own = state_of(impl);
  const bool has_history = own != nullptr && own->node && !own->node->is_leaf();
  if (has_history && !wanted) {
    throw InvalidArgument("requires_grad_: " + kind_and_shape(self) +
                          " was computed from something that needs a gradient; detach it");
  }
  if (has_history || (own == nullptr && !wanted)) return;
  if (wanted && impl.storage->is_inference()) {
    throw InvalidArgument("requires_grad_: " + kind_and_shape(self) +
                          " was made in inference mode; clone it outside");
  }
  if (own != nullptr && own->node) {
    own->set_requires_grad(wanted);
    return;
  }
  auto state = std::make_shared<State>();
  state->slot = own != nullptr && own->slot ? own->slot : std::make_shared<GradSlot>();
  state->node = std::make_shared<Leaf>(self, state->slot);
  state->set_requires_grad(wanted);
  impl.base = nullptr;  // a leaf stands for itself: views of it are views of it
  impl.grad_state = std::move(state);
}

bool GraphTape::is_leaf(const Tensor& self) {
  const NodePtr node = node_of(self);
  return !node || node->is_leaf();
}

Tensor GraphTape::grad(const Tensor& self) {
  const State* const state = state_of(self.impl());
  return state != nullptr && state->slot ? state->slot->load() : Tensor();
}

void GraphTape::set_grad(const Tensor& self, const Tensor& gradient) {
  if (gradient.defined() && (gradient.shape() != self.shape() || gradient.dtype() != self.dtype() ||
                             &gradient.device() != &self.device())) {
    throw InvalidArgument("set_grad: " + kind_and_shape(gradient) + " on " +
                          to_string(gradient.device().id()) + " is no gradient of " +
                          kind_and_shape(self) + " on " + to_string(self.device().id()));
  }
  Impl& impl = self.impl();
  refresh_view(impl);
  if (!impl.grad_state) {
    if (!gradient.defined()) return;
    impl.grad_state = std::make_shared<State>();
  }
  State& state = *state_of(impl);
  if (!state.slot) state.slot = std::make_shared<GradSlot>();
  state.slot->store(gradient);
}

void GraphTape::backward(const Tensor& self, const Tensor& gradient, bool retain_graph) {
  autograd::backward(self, gradient, {.retain_graph = retain_graph});
}

}  // namespace internal

NodePtr grad_fn(const Tensor& tensor) { return internal::node_of(tensor); }

}  // namespace headroom::autograd
