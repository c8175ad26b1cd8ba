#include "headroom/diagnose/recording.h"

#include <algorithm>
#include <utility>

#include "headroom/analysis/index.h"
#include "headroom/base/check.h"
#include "headroom/replay/program.h"
#include "headroom/trace/device_name.h"

namespace headroom::diagnose {

std::vector<DeviceDiagnosis> examine_recording(const trace::Trace& trace,
                                               const std::string& name,
                                               const DoctorOptions& options) {
  std::vector<DeviceDiagnosis> out;
  for (const trace::DeviceTrace* device : replay::replayable(trace)) {
    const analysis::TraceIndex index(trace, *device);
    out.push_back({.recording = name,
                   .device = device_name(trace, *device),
                   .events = device->events.size(),
                   .allocs = index.count(trace::Action::kAlloc),
                   .has_stacks = index.has_stacks(),
                   .is_whole = index.start().is_empty(),
                   .settings = trace.settings_string(),
                   .diagnosis = examine(index, options)});
  }
  return out;
}

const DeviceDiagnosis& worst(std::span<const DeviceDiagnosis> devices) {
  HEADROOM_CHECK(!devices.empty(), "there is a device to judge");
  return *std::ranges::max_element(devices, {}, [](const DeviceDiagnosis& device) {
    return std::pair(device.diagnosis.health, device.diagnosis.is_over_bounds);
  });
}

}  // namespace headroom::diagnose
