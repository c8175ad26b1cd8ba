// The least peak that any persistent schedule of a chain has, to the byte: below it a budget is
// refused, and no cost is too high to get there.
#pragma once

#include <cstdint>

#include "headroom/solve/chain.h"
#include "headroom/solve/schedule.h"

namespace headroom::solve {

struct LeastMemory {
  std::uint64_t peak_bytes = 0;
  Schedule schedule{};
};

// Throws InvalidArgument, as check_chain().
[[nodiscard]] LeastMemory least_memory(const Chain& chain);

}  // namespace headroom::solve
