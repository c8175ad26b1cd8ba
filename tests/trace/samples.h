// Traces for tests: from the flattened recordings, from an allocator at work, and by hand.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "headroom/trace/trace.h"

#include "tests/memory/recording.h"

namespace headroom::trace::testing {

// The names of the recordings in tests/memory/recordings, without their endings.
[[nodiscard]] std::vector<std::string> recording_names();
[[nodiscard]] memory::testing::Recording recording(const std::string& name);

// The events from `first` on, and the final state: what a ring that wrapped would have kept.
[[nodiscard]] Trace trace_of(const memory::testing::Recording& recording, std::size_t first = 0);
[[nodiscard]] Trace trace_of(std::span<const memory::testing::RecordedEvent> events,
                             std::span<const memory::SegmentInfo> final_segments,
                             const std::string& settings);

// A step of training, by hand: weights that stay, two activations, a gradient, an oom; stacks with
// frames of a library inside the user's, and annotations.
[[nodiscard]] Trace small_trace();

}  // namespace headroom::trace::testing
