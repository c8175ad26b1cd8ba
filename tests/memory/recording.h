// A PyTorch recording flattened to lines, and a player that drives CachingAllocator with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/memory/event.h"
#include "headroom/memory/types.h"

namespace headroom::memory::testing {

struct RecordedEvent {
  Action action = Action::kAlloc;
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  StreamId stream = StreamId::kDefault;
};

struct Recording {
  std::string settings;
  std::vector<RecordedEvent> events;
  std::vector<SegmentInfo> final_segments;
};

// Reads `action,addr,size,stream,...` lines, then the final state: `segment,addr,size,stream,type`
// and `block,addr,size,requested,state`. Plain text, or packed with zstd when the name ends in
// .zst. Throws Error with the line that is wrong.
[[nodiscard]] Recording read_recording(const std::string& path);

struct PlayOptions {
  std::uint64_t card_bytes = 150'109'880'320;
  PyTorchVersion version = kPyTorch211;
};

struct PlayResult {
  std::uint64_t allocs = 0;
  std::uint64_t address_mismatches = 0;
  std::uint64_t segment_mismatches = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::string first_mismatch;
  std::string broken_invariant;
  bool has_same_end = false;  // the final segments and blocks are the recorded ones
  std::vector<SegmentInfo> end_segments;
};

// Issues every recorded request under the recorded settings and compares every address and every
// segment event with the recorded one.
[[nodiscard]] PlayResult play(const Recording& recording, const PlayOptions& options = {});

}  // namespace headroom::memory::testing
