// Writes a trace as a PyTorch snapshot that Python's pickle and PyTorch's viewer open.
#pragma once

#include <string>

#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// Protocol 4. What was read from a snapshot comes out as Python had it, absent fields and types
// included. An error where a snapshot has no place for something: it holds one rank.
[[nodiscard]] FormatResult<std::string> write_pickle(const Trace& trace,
                                                     const Progress& progress = {});

}  // namespace headroom::trace
