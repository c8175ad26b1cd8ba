// The verdict on each device of a recording.
//
//   for (const DeviceDiagnosis& device : examine_recording(file->trace, "run.pickle", {})) {
//     print(device.device, report::summary_text(device.diagnosis));
//   }
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/diagnose/doctor.h"
#include "headroom/trace/trace.h"

namespace headroom::diagnose {

struct DeviceDiagnosis {
  std::string recording{};  // as the caller names it
  std::string device{};
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  bool has_stacks = false;
  bool is_whole = true;  // the history starts with an empty device
  std::string settings{};
  Diagnosis diagnosis{};
};

// Every device of the recording that has a history; empty where none has.
[[nodiscard]] std::vector<DeviceDiagnosis> examine_recording(const trace::Trace& trace,
                                                             const std::string& name,
                                                             const DoctorOptions& options);

// Of several, at least one: the worst; of equal ones the first.
[[nodiscard]] const DeviceDiagnosis& worst(std::span<const DeviceDiagnosis> devices);

}  // namespace headroom::diagnose
