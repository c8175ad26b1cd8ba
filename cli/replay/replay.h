// `headroom replay`, in steps that tests can take one by one: replay a recording under policies,
// then draw what was found or write it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/replay/policy.h"
#include "headroom/trace/trace.h"

#include "cli/command.h"

namespace headroom::cli {

struct ReplayRequest {
  std::string path{};
  std::vector<replay::Policy> policies{};  // none: a comparison of our choosing
  std::optional<memory::PyTorchVersion> version{};
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
  bool verifies = false;
  bool finds_smallest_limit = false;
  std::string decisions_path{};
  bool force = false;
};

// The results for one device's history.
struct DeviceReplay {
  std::string name{};
  int device = 0;
  int rank = 0;
  replay::Program program{};
  std::vector<replay::PolicyResult> results{};
};

struct ReplayReport {
  std::string path{};
  std::vector<DeviceReplay> devices{};
  ReplayRequest request{};
};

// The trace must outlive the report. Throws UsageError for options that contradict each other or
// the recording, Error where the recording has no history.
[[nodiscard]] ReplayReport replay_all(const trace::Trace& trace,
                                      const ReplayRequest& request,
                                      const Context& context);

// Nothing failed, no bound was exceeded, and where it was compared, nothing differs. A failure that
// PyTorch had too is no bad news for a comparison.
[[nodiscard]] ExitCode verdict(const ReplayReport& report);

[[nodiscard]] std::string draw(const ReplayReport& report, const Context& context);
// docs/format/replay.schema.json says what each field means.
[[nodiscard]] std::string replay_json(const ReplayReport& report);

}  // namespace headroom::cli
