// A recording as lines, for a spreadsheet or a script:
//
//   device,action,addr,size,stream,time_us,category,site,annotation,requested,state
//   # settings=PYTORCH_CUDA_ALLOC_CONF as recorded, where it says any
//   cuda:0,alloc,139637976727552,16777216,0,1700000000000500,parameter,train.py:12 build,,,
//
// pandas.read_csv(path, comment='#') reads it. The events of each device come first, one a line as
// recorded; category, site and annotation are those of the block, in its free too. Then comes the
// final state, at the time of the last event: a line `segment` for each segment with its kind as
// state (small, large, small-expandable, large-expandable), and behind it a line `block` for each
// of its blocks, with what was asked for and its state (active_allocated, active_pending_free,
// inactive).
#pragma once

#include <ostream>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

void export_csv(const Trace& trace, std::ostream& out);

}  // namespace headroom::analysis
