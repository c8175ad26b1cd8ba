#include "headroom/trace/device_name.h"

#include <algorithm>

#include <fmt/format.h>

#include "headroom/trace/settings.h"

namespace headroom::trace {

std::string device_name(const Trace& trace, const DeviceTrace& device) {
  // PyTorch's snapshots are of its CUDA allocator; ours may be of any device.
  const char* kind = trace.origin == Origin::kPyTorch ? "cuda" : "device";
  const std::string said = recorded_device(trace, device).name;
  const std::string known = said.empty() ? fmt::format("{}:{}", kind, device.device) : said;
  const std::string name = device.is_host ? std::string("pinned memory") : known;
  const bool has_ranks =
      std::ranges::any_of(trace.devices, [](const DeviceTrace& other) { return other.rank != 0; });
  return has_ranks ? fmt::format("rank {} {}", device.rank, name) : name;
}

}  // namespace headroom::trace
