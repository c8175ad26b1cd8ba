// A recording into a file of any format, by the name: what trace/file.h writes, and what is made
// for other programs out of an analysis (.perfetto.json, .speedscope.json, .csv).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/analysis/types.h"
#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"

namespace headroom::analysis {

struct ExportOptions {
  bool overwrite = false;  // else an existing file is an error
  // The moment that .speedscope.json shows, as a number of events; unset is the peak.
  std::optional<std::uint64_t> at_event{};
  trace::Progress progress{};
};

// The file appears whole or not at all.
[[nodiscard]] trace::FormatResult<void> export_trace(const Trace& trace,
                                                     const std::string& path,
                                                     const ExportOptions& options = {});

}  // namespace headroom::analysis
