#include "headroom/analysis/export.h"

#include <ostream>

#include "headroom/analysis/export_csv.h"
#include "headroom/analysis/export_perfetto.h"
#include "headroom/analysis/export_speedscope.h"
#include "headroom/base/check.h"
#include "headroom/trace/file.h"

namespace headroom::analysis {

trace::FormatResult<void> export_trace(const Trace& trace,
                                       const std::string& path,
                                       const ExportOptions& options) {
  const auto write_export = [&](trace::Format format, std::ostream& out) {
    switch (format) {
      case trace::Format::kPerfetto:
        export_perfetto(trace, out);
        return;
      case trace::Format::kSpeedscope:
        export_speedscope(trace, out, {.position = options.at_event});
        return;
      case trace::Format::kCsv:
        export_csv(trace, out);
        return;
      case trace::Format::kPickle:
      case trace::Format::kHrt:
        HEADROOM_CHECK(false, "a recording is not an export");
    }
  };
  return trace::write_trace(
      trace,
      path,
      {.overwrite = options.overwrite, .write_export = write_export, .progress = options.progress});
}

}  // namespace headroom::analysis
