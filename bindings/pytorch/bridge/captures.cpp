#include "bindings/pytorch/bridge/captures.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::bridge {

void CaptureWatch::opened(memory::PoolId pool, device::StreamId stream) {
  const std::lock_guard lock(mutex_);
  scopes_.push_back({.pool = pool, .stream = stream});
  open_.store(static_cast<int>(scopes_.size()), std::memory_order_release);
}

void CaptureWatch::closed(memory::PoolId pool) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(scopes_, pool, &Open::pool);
  if (found == scopes_.end()) return;
  set_capturing(*found, false);
  scopes_.erase(found);
  open_.store(static_cast<int>(scopes_.size()), std::memory_order_release);
}

void CaptureWatch::look_at_each() noexcept {
  if (allocator_.is_forked()) return;
  const std::lock_guard lock(mutex_);
  for (Open& scope : scopes_) {
    // The default stream cannot be captured.
    if (scope.stream == device::StreamId::kDefault) continue;
    const auto capturing = allocator_.device().is_capturing(scope.stream);
    set_capturing(scope, capturing && *capturing);
  }
}

void CaptureWatch::set_capturing(Open& scope, bool is_capturing) noexcept {
  if (scope.is_capturing == is_capturing) return;
  try {
    if (is_capturing) {
      allocator_.begin_capture();
    } else {
      allocator_.end_capture();
    }
    scope.is_capturing = is_capturing;
  } catch (const Error&) {  // Not while both are called in turn, which this class sees to.
    scope.is_capturing = false;
  }
}

}  // namespace headroom::bridge
