// The saved-tensor hooks of this thread.
#pragma once

#include <memory>
#include <utility>

#include "headroom/autograd/hooks.h"

namespace headroom::autograd::internal {

// Null where there are none.
[[nodiscard]] const std::shared_ptr<const SavedTensorHookPair>& current_saved_hooks() noexcept;
// Returns the ones before.
std::shared_ptr<const SavedTensorHookPair> exchange_saved_hooks(
    std::shared_ptr<const SavedTensorHookPair> hooks) noexcept;

// The op whose tensor a pack hook is given; for messages.
[[nodiscard]] const char* saving_op() noexcept;

class SavingOpScope {
 public:
  explicit SavingOpScope(const char* op) noexcept;
  ~SavingOpScope();
  SavingOpScope(const SavingOpScope&) = delete;
  SavingOpScope& operator=(const SavingOpScope&) = delete;

 private:
  const char* outer_;
};

// Other hooks, or none, until its end.
class SavedHooksScope {
 public:
  explicit SavedHooksScope(std::shared_ptr<const SavedTensorHookPair> hooks) noexcept
      : outer_(exchange_saved_hooks(std::move(hooks))) {}
  ~SavedHooksScope() { exchange_saved_hooks(std::move(outer_)); }
  SavedHooksScope(const SavedHooksScope&) = delete;
  SavedHooksScope& operator=(const SavedHooksScope&) = delete;

 private:
  std::shared_ptr<const SavedTensorHookPair> outer_;
};

}  // namespace headroom::autograd::internal
