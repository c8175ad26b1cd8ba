// Devices as an NVIDIA H200 and a small laptop would describe them, so that their layouts are
// tested on machines that have neither.
#pragma once

#include "cli/devices/devices.h"

namespace headroom::cli {

[[nodiscard]] DeviceReport sample_h200(int index, bool is_measured);
[[nodiscard]] DeviceReport sample_laptop(bool is_measured);

}  // namespace headroom::cli
