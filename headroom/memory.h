// All a C++ engineer includes for allocators with exact accounting, limits, streams and reports.
//
//   #include <headroom/memory.h>
//
//   auto& allocator = headroom::allocator("cpu");
//   headroom::memory::Array<float> weights(allocator, 1 << 20);
//   std::puts(headroom::memory_summary().c_str());
#pragma once

#include "headroom/device/cpu/cpu_device.h"             // IWYU pragma: export
#include "headroom/device/device.h"                     // IWYU pragma: export
#include "headroom/device/meta/meta_device.h"           // IWYU pragma: export
#include "headroom/device/registry.h"                   // IWYU pragma: export
#include "headroom/memory/account.h"                    // IWYU pragma: export
#include "headroom/memory/allocator.h"                  // IWYU pragma: export
#include "headroom/memory/allocator_choice.h"           // IWYU pragma: export
#include "headroom/memory/annotation.h"                 // IWYU pragma: export
#include "headroom/memory/api.h"                        // IWYU pragma: export
#include "headroom/memory/buffer.h"                     // IWYU pragma: export
#include "headroom/memory/caching/caching_allocator.h"  // IWYU pragma: export
#include "headroom/memory/config.h"                     // IWYU pragma: export
#include "headroom/memory/event.h"                      // IWYU pragma: export
#include "headroom/memory/paged/paged_allocator.h"      // IWYU pragma: export
#include "headroom/memory/peak_scope.h"                 // IWYU pragma: export
#include "headroom/memory/pmr.h"                        // IWYU pragma: export
#include "headroom/memory/pytorch_message.h"            // IWYU pragma: export
#include "headroom/memory/stats.h"                      // IWYU pragma: export
