// How a device of a recording is called: `cuda:0`, `rank 2 cuda:0`, `pinned memory`.
#pragma once

#include <string>

#include "headroom/trace/trace.h"

namespace headroom::trace {

[[nodiscard]] std::string device_name(const Trace& trace, const DeviceTrace& device);

}  // namespace headroom::trace
