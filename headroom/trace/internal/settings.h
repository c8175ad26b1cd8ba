// An allocator's settings as PyTorch's snapshots have them.
#pragma once

#include "headroom/memory/allocator.h"
#include "headroom/trace/value.h"

namespace headroom::trace::internal {

// A dictionary; empty for an allocator that has no PyTorch settings.
[[nodiscard]] Value settings_of(const memory::Allocator& allocator);

}  // namespace headroom::trace::internal
