// The processes on a card and what is used of it, from NVIDIA's management library, opened at run
// time. It needs no context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

// `used_bytes` is 0 where the library does not say. `pci_bus_id` is the driver's name of the card.
[[nodiscard]] DeviceResult<std::vector<ProcessMemory>> nvml_processes(
    const std::string& pci_bus_id);

// Bytes in use by whoever it is; nothing where the library does not say.
[[nodiscard]] std::optional<std::uint64_t> nvml_used_bytes(const std::string& pci_bus_id) noexcept;

}  // namespace headroom::device::internal
