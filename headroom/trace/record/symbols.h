// Functions, files and lines for the frames of our own recordings.
#pragma once

#include <cstddef>
#include <vector>

#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

// Looks up the frames that are still module+offset (a recording whose process was killed, or that
// was made with symbolise off), where the same modules are on this machine. Functions inlined into
// a frame become frames of their own, and the allocator's own frames go. What is not found stays.
// Returns how many frames were found.
std::size_t symbolise(Trace& trace);

// The same without changing the stacks: what stands for which frame. Adds strings to `trace`.
[[nodiscard]] std::vector<FrameSymbols> find_symbols(Trace& trace);

}  // namespace headroom::trace
