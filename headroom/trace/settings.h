// The allocator's settings that a recording was made under.
#pragma once

#include "headroom/memory/config.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// From the settings string, then from the fields PyTorch exports beside it, which win. What cannot
// be read keeps its default: a recording is worth looking at whatever its settings are.
[[nodiscard]] memory::AllocatorConfig recorded_config(const Trace& trace);

// Whether our own allocator made the decisions in it, and not PyTorch's.
[[nodiscard]] bool is_of_paged(const Trace& trace);

}  // namespace headroom::trace
