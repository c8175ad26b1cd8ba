// The processes on a card, from NVIDIA's management library, opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

// `used_bytes` is 0 where the library does not say. `pci_bus_id` is the driver's name of the card.
[[nodiscard]] DeviceResult<std::vector<ProcessMemory>> nvml_processes(
    const std::string& pci_bus_id);

}  // namespace headroom::device::internal
