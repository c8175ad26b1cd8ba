// The allocator's settings that a recording was made under.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/memory/config.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// From the settings string, then from the fields PyTorch exports beside it, which win. What cannot
// be read keeps its default: a recording is worth looking at whatever its settings are.
[[nodiscard]] memory::AllocatorConfig recorded_config(const Trace& trace);

// Facts that our recorders add to a device's events; PyTorch's snapshots have none of them.
struct RecordedDevice {
  std::string name{};                          // "cpu:0"
  std::optional<std::uint64_t> limit_bytes{};  // that its allocator had last
  std::uint64_t page_bytes = 0;                // of a PagedAllocator
};
[[nodiscard]] RecordedDevice recorded_device(const Trace& trace, const DeviceTrace& device);

// Whether our own allocator made the decisions in it, and not PyTorch's.
[[nodiscard]] bool is_of_paged(const Trace& trace);

}  // namespace headroom::trace
