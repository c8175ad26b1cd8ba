// The blocks and segments that existed before the first event of a recording.
//
// A ring keeps only the end of a history, and says neither that it wrapped nor what it lost. The
// state before its first event follows from the final one, by undoing the events backwards. The
// result is exact but for one thing that leaves no trace: in large segments that are not
// expandable a block keeps up to 1 MiB behind it, and where nothing stood behind it while it was
// watched, that rest is counted as cached. Where a history is whole, the result is empty.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/analysis/types.h"
#include "headroom/memory/types.h"

namespace headroom::analysis {

struct StartBlock {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  bool is_pending = false;  // freed before the first event, and not yet completed
  bool is_freed = false;    // in the recording; else it is in the final state
  StackId stack = 0;        // the final block's, or that of its free
  DetailsId details = 0;
};

struct StartState {
  // By address; the blocks of each tile it. What CachingAllocator::restore() takes.
  std::vector<memory::SegmentInfo> segments{};
  // All blocks that somebody held, by address; also those that lie in no known segment.
  std::vector<StartBlock> live{};

  std::uint64_t reserved_bytes = 0;
  // Whether the recording lists a final state for this device. Without one, only what was freed
  // while recording is known.
  bool has_final_state = false;
  // Events that contradict the final state or each other.
  std::uint64_t contradictions = 0;

  // Nothing was there: the history is whole.
  [[nodiscard]] bool is_empty() const noexcept { return segments.empty() && live.empty(); }
};

[[nodiscard]] StartState start_state(const Trace& trace, const DeviceTrace& device);

}  // namespace headroom::analysis
