// Whether a thread records. Each scope holds until its end, for its thread; ThreadState carries
// them to another.
//
//   const NoGradScope no_grad;              // ops are not recorded: nothing is saved
//   const InferenceModeScope inference;     // and what they make can never be saved later
//   set_grad_enabled(false);                // until it is called again
//
//   const ThreadState state = ThreadState::capture();
//   pool.submit([state] { const ThreadStateScope scope(state); ... });
#pragma once

#include <memory>

#include "headroom/memory/annotation.h"
#include "headroom/tensor/autocast.h"
#include "headroom/tensor/ops/matmul.h"
#include "headroom/tensor/tape.h"

namespace headroom {

namespace autograd {
struct SavedTensorHookPair;
}  // namespace autograd

inline void set_grad_enabled(bool enabled) noexcept { GradMode::set_enabled(enabled); }

class NoGradScope : public GradModeScope {
 public:
  NoGradScope() noexcept : GradModeScope(false) {}
};

class EnableGradScope : public GradModeScope {
 public:
  EnableGradScope() noexcept : GradModeScope(true) {}
};

// A tensor made in it carries no versions, is never saved for backward, and outside of it cannot be
// written to where that would be recorded.
class InferenceModeScope {
 public:
  explicit InferenceModeScope(bool enabled = true) noexcept
      : grad_(!enabled && GradMode::is_enabled()), outer_(GradMode::is_inference()) {
    GradMode::set_inference(enabled);
  }
  ~InferenceModeScope() { GradMode::set_inference(outer_); }
  InferenceModeScope(const InferenceModeScope&) = delete;
  InferenceModeScope& operator=(const InferenceModeScope&) = delete;

 private:
  GradModeScope grad_;
  bool outer_;
};

// All that scopes set for a thread: modes, autocast, saved-tensor hooks, category and annotation.
struct ThreadState {
  bool is_grad_enabled = true;
  bool is_inference = false;
  AutocastMode autocast{};
  bool allows_tf32 = false;
  memory::AllocationContext context{};
  std::shared_ptr<const autograd::SavedTensorHookPair> saved_tensor_hooks{};

  [[nodiscard]] static ThreadState capture();
};

class ThreadStateScope {
 public:
  explicit ThreadStateScope(const ThreadState& state);
  ~ThreadStateScope();
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  ThreadState outer_;
  AutocastScope autocast_;
  MatmulPrecisionScope precision_;
  memory::ContextScope context_;
};

}  // namespace headroom
