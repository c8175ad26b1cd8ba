// How fast each level of the memory hierarchy answers.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

// Adds the measured speed to each level. Uses all processors for about a second, and at most
// `max_bytes` of memory at a time. Throws std::bad_alloc when there is none to measure with.
[[nodiscard]] std::vector<MemoryLevel> measure_levels(std::vector<MemoryLevel> levels,
                                                      std::uint64_t max_bytes);

}  // namespace headroom::device::internal
