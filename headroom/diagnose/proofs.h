// doctor's proofs: what the traffic does under other settings and smaller limits, by replaying it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "headroom/diagnose/doctor.h"
#include "headroom/memory/config.h"

namespace headroom::diagnose {

struct ReplayChoices {
  std::optional<memory::PyTorchVersion> version{};     // else as far as the recording says
  int threads = 0;                                     // 0: as many as the machine has
  std::function<void(const std::string&)> progress{};  // told what is being done
};

// The options with both proofs filled in.
[[nodiscard]] DoctorOptions with_replay(DoctorOptions options, const ReplayChoices& choices);

}  // namespace headroom::diagnose
