// A recording as lines, for a spreadsheet or a script:
//
//   # settings=PYTORCH_CUDA_ALLOC_CONF as recorded
//   # device=cuda:1                             before each device, where several have events
//   action,addr,size,stream,time_us             one event a line, as recorded, then the final
//   state: segment,addr,size,stream,type               small, large, small-expandable,
//   large-expandable block,addr,size,requested,state             the blocks of the segment before
#pragma once

#include <ostream>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

void export_csv(const Trace& trace, std::ostream& out);

}  // namespace headroom::analysis
