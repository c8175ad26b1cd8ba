// The part of `bench trace` that reads and writes files.
#pragma once

#include "benchmarks/trace/bench_trace.h"

namespace headroom::cli {

// Adds to `bench`. Without a file there is only a note.
void bench_files(const TraceBenchOptions& options, const Progress& progress, TraceBench& bench);

}  // namespace headroom::cli
