// The processes on a card, completed by what this process knows of itself: a container may hide
// some, or all, or number them as its host does.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

struct OwnUse {
  std::int64_t pid = 0;
  std::uint64_t bytes = 0;  // what this process is known to hold of the card
  bool is_all = false;      // and there is nothing else, its context included
};

// `listed` with this process in it, and what of the card's `used_bytes` nobody listed holds as an
// entry of its own, without a pid: the entries add up to what is used, but for less than any
// process with a context takes.
[[nodiscard]] std::vector<ProcessMemory> complete_processes(std::vector<ProcessMemory> listed,
                                                            const OwnUse& own,
                                                            std::uint64_t used_bytes);

}  // namespace headroom::device::internal
