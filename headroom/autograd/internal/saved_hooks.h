// The saved-tensor hooks of this thread.
#pragma once

#include <memory>

#include "headroom/autograd/hooks.h"

namespace headroom::autograd::internal {

// Null where there are none.
[[nodiscard]] const std::shared_ptr<const SavedTensorHookPair>& current_saved_hooks() noexcept;
// Returns the ones before.
std::shared_ptr<const SavedTensorHookPair> exchange_saved_hooks(
    std::shared_ptr<const SavedTensorHookPair> hooks) noexcept;

}  // namespace headroom::autograd::internal
