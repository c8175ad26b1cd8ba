// Measures bandwidth and latency of a card's memory with kernels of our own.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/device/cuda/internal/context.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

// Device memory for the kernels, lent by the device itself.
struct CudaWorkspace {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
};

// The levels with the speed of those that a kernel can tell apart. The workspace starts at a
// multiple of 128 bytes and is best several times the L2 cache.
[[nodiscard]] DeviceResult<std::vector<MemoryLevel>> measure_cuda_levels(
    CudaContext& context, std::vector<MemoryLevel> levels, CudaWorkspace workspace);

// How much workspace it takes at best.
[[nodiscard]] std::uint64_t wanted_workspace_bytes(const std::vector<MemoryLevel>& levels) noexcept;

}  // namespace headroom::device::internal
