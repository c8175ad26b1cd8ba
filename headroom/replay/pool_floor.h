// The least that a program with private pools can take, whatever its allocator does.
//
// A pool's memory is its own until it is released: a graph that was captured in it runs again at
// the same addresses. So the floor is the largest, over time, of the live bytes outside of the
// pools and the most that each pool has held so far. Without pools that is the live peak.
#pragma once

#include <cstdint>

#include "headroom/replay/program.h"

namespace headroom::replay {

// No recording says when a pool was released, so none is.
[[nodiscard]] std::uint64_t pool_floor_bytes(const Program& program);

[[nodiscard]] inline bool has_private_pools(const Program& program) noexcept {
  return program.pools.size() > 1;
}

}  // namespace headroom::replay
