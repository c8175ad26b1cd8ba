#include "headroom/autograd/grad_mode.h"

#include "headroom/autograd/internal/saved_hooks.h"

namespace headroom {
namespace {

void apply_modes(const ThreadState& state) {
  GradMode::set_enabled(state.is_grad_enabled);
  GradMode::set_inference(state.is_inference);
  autograd::internal::exchange_saved_hooks(state.saved_tensor_hooks);
}

}  // namespace

ThreadState ThreadState::capture() {
  return {.is_grad_enabled = GradMode::is_enabled(),
          .is_inference = GradMode::is_inference(),
          .autocast = Autocast::mode(),
          .allows_tf32 = MatmulPrecision::allows_tf32(),
          .context = memory::current_context(),
          .saved_tensor_hooks = autograd::internal::current_saved_hooks()};
}

ThreadStateScope::ThreadStateScope(const ThreadState& state)
    : outer_(ThreadState::capture()),
      autocast_(state.autocast),
      precision_(state.allows_tf32),
      context_(state.context) {
  apply_modes(state);
}

ThreadStateScope::~ThreadStateScope() { apply_modes(outer_); }

}  // namespace headroom
