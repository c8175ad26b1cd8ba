// A recording for ui.perfetto.dev and chrome://tracing: the Trace Event Format, as JSON.
//
//   a process        for each device, with
//   counter tracks   `allocated` and `reserved`, in bytes, at every change
//   async slices     the blocks that held the most for longest, named by their site, with size,
//                    address and category; the annotations of the program
//   instants         where memory ran out
//
// Times are microseconds from the first event.
#pragma once

#include <cstddef>
#include <ostream>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

struct PerfettoOptions {
  // Blocks drawn for each device, largest bytes times duration first; `otherData` in the file says
  // how many there were. A viewer does not hold a million.
  std::size_t max_blocks = 20'000;
};

struct PerfettoSummary {
  std::size_t blocks = 0;
  std::size_t blocks_drawn = 0;
};

PerfettoSummary export_perfetto(const Trace& trace,
                                std::ostream& out,
                                const PerfettoOptions& options = {});

}  // namespace headroom::analysis
