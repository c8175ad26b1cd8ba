// All a C++ engineer includes to record an allocator and to read and write recordings.
//
//   #include <headroom/trace.h>
//
//   headroom::record_memory_history();
//   train();
//   headroom::dump_snapshot("run.hrt");
#pragma once

#include "headroom/trace/device_name.h"           // IWYU pragma: export
#include "headroom/trace/file.h"                  // IWYU pragma: export
#include "headroom/trace/record/file_recorder.h"  // IWYU pragma: export
#include "headroom/trace/record/history.h"        // IWYU pragma: export
#include "headroom/trace/record/ring_recorder.h"  // IWYU pragma: export
#include "headroom/trace/record/symbols.h"        // IWYU pragma: export
#include "headroom/trace/settings.h"              // IWYU pragma: export
#include "headroom/trace/trace.h"                 // IWYU pragma: export
#include "headroom/trace/used_devices.h"          // IWYU pragma: export
