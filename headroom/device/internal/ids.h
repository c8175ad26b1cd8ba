// Ids that are never given out twice in a process.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::device::internal {

// Streams, events and page handles draw from one counter, so an id of one kind can never be
// mistaken for a live one of another kind or another device.
[[nodiscard]] inline std::uint64_t next_id() noexcept {
  static constinit std::atomic<std::uint64_t> counter{1};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace headroom::device::internal
