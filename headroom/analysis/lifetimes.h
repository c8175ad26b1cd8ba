// Each block from its allocation to its end, put together from the events.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/analysis/start_state.h"
#include "headroom/analysis/types.h"

namespace headroom::analysis {

inline constexpr std::uint32_t kNoEvent = UINT32_MAX;

// Events are given by their number in the recording of one device.
struct Lifetime {
  DeviceAddress address = 0;
  std::uint64_t requested_bytes = 0;
  // The size that the allocator counts: rounded, with the rest that it did not cut off. Exact
  // wherever the start state is.
  std::uint64_t block_bytes = 0;
  std::uint32_t alloc_event = kNoEvent;  // none: it was there before the first event
  std::uint32_t free_event = kNoEvent;   // free_requested; none: never, or before the first event
  std::uint32_t end_event = kNoEvent;    // free_completed; none: it is there after the last event
  StackId stack = 0;
  DetailsId details = 0;
  bool is_pending_at_start = false;

  [[nodiscard]] bool is_initial() const noexcept { return alloc_event == kNoEvent; }
  [[nodiscard]] bool is_final() const noexcept { return end_event == kNoEvent; }
  // The size asked for, rounded up to 512: the same whatever allocator serves it.
  [[nodiscard]] std::uint64_t live_bytes() const noexcept {
    return (requested_bytes + memory::kMinBlockBytes - 1) / memory::kMinBlockBytes *
           memory::kMinBlockBytes;
  }
};

// Contradictions in a recording. All are 0 in a recording of all actions.
struct Anomalies {
  std::uint64_t allocs_at_live_address = 0;  // the older block is taken to have ended there
  std::uint64_t frees_of_nothing = 0;        // of an address where nothing is live
  std::uint64_t missing_at_end = 0;          // never freed, and not in the final state
  std::uint64_t contradictions = 0;          // StartState's

  [[nodiscard]] std::uint64_t total() const noexcept {
    return allocs_at_live_address + frees_of_nothing + missing_at_end + contradictions;
  }
};

struct Lifetimes {
  std::vector<Lifetime> all{};            // the initial ones by address, then by allocation
  std::vector<std::uint32_t> of_event{};  // which lifetime an event belongs to; kNoEvent: none
  // Ends that no event of the block's own marks, by event: see allocs_at_live_address.
  struct OddEnd {
    std::uint32_t event = 0;
    std::uint32_t lifetime = 0;
  };
  std::vector<OddEnd> odd_ends{};
  Anomalies anomalies{};
};

// At most 2^32 - 2 events.
[[nodiscard]] Lifetimes pair_lifetimes(const Trace& trace,
                                       const DeviceTrace& device,
                                       const StartState& start);

}  // namespace headroom::analysis
