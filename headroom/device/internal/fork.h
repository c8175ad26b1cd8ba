// Knows whether this process is the child of a fork that happened since some earlier moment.
#pragma once

#include <cstdint>

namespace headroom::device::internal {

// Called once before the first fork_generation() that matters; later calls do nothing.
void watch_forks() noexcept;

// Goes up by one in the child of every fork. One relaxed load.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

}  // namespace headroom::device::internal
