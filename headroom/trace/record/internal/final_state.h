// The segments of an allocator, as a trace keeps them.
#pragma once

#include <span>
#include <unordered_map>

#include "headroom/memory/types.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/record/internal/trace_builder.h"
#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// The stacks that live blocks were allocated with, as far as the events say.
[[nodiscard]] std::unordered_map<DeviceAddress, StackId> live_stacks(const Events& events);

// Adds them to trace.segments.
void append_segments(Trace& trace,
                     TraceBuilder& builder,
                     const DeviceKey& key,
                     std::span<const memory::SegmentInfo> segments,
                     const std::unordered_map<DeviceAddress, StackId>& stacks = {});

}  // namespace headroom::trace::internal
