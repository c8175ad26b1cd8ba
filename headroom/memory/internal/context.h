// The value of current_context(), for those who cannot afford the call.
//
// Plain data: reading it takes no lock, and it needs neither construction nor destruction, so that
// it serves allocations made while a thread or the process ends.
#pragma once

#include "headroom/memory/annotation.h"

namespace headroom::memory::internal {

extern thread_local constinit AllocationContext t_context;

}  // namespace headroom::memory::internal
