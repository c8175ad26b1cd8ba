// The allocator's values as the bridge has them.
#pragma once

#include <span>
#include <string>

#include "headroom/memory/account.h"
#include "headroom/memory/event.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/memory/stats.h"
#include "headroom/memory/types.h"

#include "bindings/pytorch/bridge/bridge.h"
#include "bindings/pytorch/bridge/streams.h"
#include "bindings/pytorch/bridge/values.h"

namespace headroom::bridge {

[[nodiscard]] inline memory::PoolId to_memory(PoolKey pool) noexcept {
  return {.graph = pool.graph, .user = pool.user};
}
[[nodiscard]] inline PoolKey to_bridge(memory::PoolId pool) noexcept {
  return {.graph = pool.graph, .user = pool.user};
}
[[nodiscard]] inline device::DeviceAddress to_address(const void* block) noexcept {
  return reinterpret_cast<device::DeviceAddress>(block);
}
[[nodiscard]] inline void* to_pointer(device::DeviceAddress address) noexcept {
  return reinterpret_cast<void*>(address);
}

[[nodiscard]] TraceAction to_bridge(memory::Action action) noexcept;
// The actions that snapshots spell so; words that are none are passed over.
[[nodiscard]] memory::Actions actions_named(std::span<const std::string> names) noexcept;

[[nodiscard]] DeviceStats to_bridge(const memory::Statistics& stats) noexcept;
[[nodiscard]] Segment to_bridge(const memory::SegmentInfo& segment, device::Device& device);

// What PyTorch's error says: its own first sentence, which programs look for, then the report.
[[nodiscard]] Failure to_bridge(const memory::AllocationFailure& failure);

// What last_failure() answers in this thread from now on.
void remember_failure(const memory::AllocationFailure& failure) noexcept;
[[nodiscard]] std::string to_json(const memory::Account& account);

}  // namespace headroom::bridge
