// The devices of a recording that have anything in them. PyTorch writes a history for every device
// there is, most of them empty, and an old snapshot has segments and no history at all.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "headroom/trace/trace.h"

namespace headroom::trace {

class UsedDevices {
 public:
  // `trace` outlives this.
  explicit UsedDevices(const Trace& trace);
  UsedDevices(const UsedDevices&) = delete;
  UsedDevices& operator=(const UsedDevices&) = delete;

  // Those with events or segments: in the trace's order, then those that only segments name.
  [[nodiscard]] const std::vector<const DeviceTrace*>& all() const noexcept { return all_; }

 private:
  std::deque<DeviceTrace> made_;  // for segments without a history
  std::vector<const DeviceTrace*> all_;
};

// How many that are.
[[nodiscard]] std::size_t count_used_devices(const Trace& trace);

}  // namespace headroom::trace
