// An allocator's settings as PyTorch's snapshots have them.
#pragma once

#include <string_view>

#include "headroom/memory/allocator.h"
#include "headroom/trace/value.h"

namespace headroom::trace::internal {

// A dictionary; empty for an allocator that has no PyTorch settings.
[[nodiscard]] Value settings_of(const memory::Allocator& allocator);

// Ours, beside PyTorch's fields: by the device's number, its name, limit and pages.
inline constexpr std::string_view kDevicesKey = "devices";
void add_device(Value& settings, int number, const memory::Allocator& allocator);

}  // namespace headroom::trace::internal
