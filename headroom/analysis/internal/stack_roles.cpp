#include "headroom/analysis/internal/stack_roles.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "headroom/memory/annotation.h"

namespace headroom::analysis::internal {
namespace {

constexpr std::uint8_t kNotYet = 255;

using WordList = std::initializer_list<std::string_view>;

bool has_word(std::string_view text, WordList words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool is_word(std::string_view text, WordList words) {
  return std::ranges::find(words, text) != words.end();
}

bool is_workspace_frame(std::string_view function) {
  return has_word(
      function,
      {"Workspace", "workspace", "cublasCreate", "cudnnFind", "cudnn::find", "miopenFind"});
}

bool is_optimizer_frame(std::string_view file, std::string_view function) {
  return has_word(file,
                  {"torch/optim/",
                   "/optimizers/",
                   "/optimizer/",
                   "/optim/",
                   "optax/",
                   "bitsandbytes/optim",
                   "apex/optimizers"}) ||
         has_word(function, {"_init_group", "Optimizer::step", "optimizer_step"});
}

Asker optimizer_part(std::string_view function) {
  const bool makes_state =
      has_word(function, {"_init_group", "init_state", "_init_state", "initialize_states"});
  return makes_state ? Asker::kOptimizerState : Asker::kOptimizer;
}

bool is_recompute_frame(std::string_view file, std::string_view function) {
  return has_word(file, {"utils/checkpoint.py", "/checkpointing.py", "checkpoint.cpp"}) &&
         has_word(function, {"recompute", "unpack_hook", "backward"});
}

bool is_backward_frame(std::string_view file, std::string_view function) {
  if (has_word(function,
               {"torch::autograd::Engine",
                "AccumulateGrad",
                "torch::autograd::Node::operator()",
                "torch::autograd::python::PythonEngine",
                "_make_grads",
                "_engine_run_backward",
                "run_backward",
                "headroom::autograd::backward",
                "tensorflow::GradientTape"})) {
    return true;
  }
  return is_word(function, {"backward", "grad"}) &&
         has_word(file, {"torch/_tensor.py", "torch/autograd/", "eager/backprop.py"});
}

bool is_data_frame(std::string_view file, std::string_view function) {
  return has_word(file, {"torch/utils/data/", "/dataloader", "/data_loader", "/datasets/"}) ||
         is_word(function,
                 {"collate_fn", "default_collate", "pin_memory", "next_batch", "get_batch"});
}

bool is_model_frame(std::string_view file, std::string_view function) {
  if (is_word(function,
              {"_apply",
               "load_state_dict",
               "_load_from_state_dict",
               "_load_state_dict_into_model",
               "_load_pretrained_model",
               "from_pretrained",
               "load_model",
               "load_weights",
               "create_weights",
               "reset_parameters",
               "register_parameter",
               "register_buffer",
               "init_weights",
               "_init_weights",
               "_initialize_weights",
               "materialize"})) {
    return true;
  }
  return function == "__init__" &&
         has_word(file, {"torch/nn/", "transformers/", "torchvision/", "timm/"});
}

bool is_forward_frame(std::string_view file, std::string_view function) {
  return is_word(function, {"_call_impl", "_wrapped_call_impl", "forward"}) ||
         (function == "__call__" && has_word(file, {"torch/nn/", "transformers/"}));
}

Asker asker_of_frame(std::string_view file, std::string_view function) {
  if (is_workspace_frame(function)) return Asker::kWorkspace;
  if (is_optimizer_frame(file, function)) return optimizer_part(function);
  if (is_recompute_frame(file, function)) return Asker::kForward;
  if (is_backward_frame(file, function)) return Asker::kBackward;
  if (is_data_frame(file, function)) return Asker::kData;
  if (is_model_frame(file, function)) return Asker::kModel;
  if (is_forward_frame(file, function)) return Asker::kForward;
  return Asker::kUnknown;
}

Asker asker_of_scope(std::string_view name) {
  if (name.starts_with("Optimizer.step") || is_word(name, {"optimizer_step", "optimizer"})) {
    return Asker::kOptimizer;
  }
  if (name == "forward") return Asker::kForward;
  if (name == "backward") return Asker::kBackward;
  if (is_word(name, {"data_loading", "dataloader", "data"})) return Asker::kData;
  return Asker::kUnknown;
}

}  // namespace

Askers::Askers(const TraceIndex& index)
    : index_(index),
      known_(index.trace().stacks.size(), kNotYet),
      annotated_(index.trace().details.size(), kNotYet) {
  std::size_t with_frames = 0;
  std::size_t native = 0;
  const Trace& trace = index.trace();
  for (const Lifetime& block : index.lifetimes()) {
    const auto frames = trace.stacks.frame_ids(block.stack);
    if (frames.empty()) continue;
    ++with_frames;
    const std::string_view file = trace.strings[trace.stacks.frame(frames.front()).file];
    native += file.ends_with(".py") || file.starts_with('<') ? 0 : 1;
  }
  empty_is_backward_ = with_frames * 10 > index.lifetimes().size() && native * 20 < with_frames;
  find_steps();
}

Asker Askers::asker_of(const Lifetime& block) {
  std::uint8_t& annotated = annotated_[block.details];
  if (annotated == kNotYet) annotated = static_cast<std::uint8_t>(by_annotation(block.details));
  if (static_cast<Asker>(annotated) != Asker::kUnknown) return static_cast<Asker>(annotated);
  std::uint8_t& known = known_[block.stack];
  if (known == kNotYet) known = static_cast<std::uint8_t>(by_stack(block.stack));
  const auto asker = static_cast<Asker>(known);
  if (asker == Asker::kUnknown && !block.is_initial() && is_in_step(block.alloc_event)) {
    return Asker::kOptimizer;
  }
  return asker;
}

// The innermost frame that says something.
Asker Askers::by_stack(StackId stack) const {
  const Trace& trace = index_.trace();
  const auto frames = trace.stacks.frame_ids(stack);
  if (frames.empty()) return empty_is_backward_ ? Asker::kBackward : Asker::kUnknown;
  for (const std::uint32_t id : frames) {
    const Frame& frame = trace.stacks.frame(id);
    const Asker asker = asker_of_frame(trace.strings[frame.file], trace.strings[frame.name]);
    if (asker != Asker::kUnknown) return asker;
  }
  return Asker::kUnknown;
}

// The annotation is a path; its first part that says something is the phase of the step.
Asker Askers::by_annotation(DetailsId details) const {
  const auto& path = index_.trace().details[details].user_metadata;
  if (!path) return Asker::kUnknown;
  for (const std::string_view part : memory::split_annotation(index_.trace().strings[*path])) {
    const Asker asker = asker_of_scope(part);
    if (asker != Asker::kUnknown) return asker;
  }
  return Asker::kUnknown;
}

void Askers::find_steps() {
  const Trace& trace = index_.trace();
  std::uint32_t start = kNoEvent;
  for (const Annotation& annotation : trace.annotations) {
    if (annotation.rank != index_.device().rank) continue;
    if (asker_of_scope(trace.strings[annotation.name]) != Asker::kOptimizer) continue;
    const std::uint32_t position = index_.position_at(annotation.time_us);
    if (annotation.is_start) {
      start = position;
    } else if (start != kNoEvent) {
      steps_.emplace_back(start, position);
      start = kNoEvent;
    }
  }
  std::ranges::sort(steps_);
}

// Blocks are asked for in the order of their allocation.
bool Askers::is_in_step(std::uint32_t event) {
  while (next_step_ < steps_.size() && steps_[next_step_].second <= event) ++next_step_;
  return next_step_ < steps_.size() && steps_[next_step_].first <= event;
}

}  // namespace headroom::analysis::internal
