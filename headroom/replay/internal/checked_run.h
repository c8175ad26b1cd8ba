// One run of a recording under its own settings, compared with what was recorded.
//
// The events between two inputs are outputs: what the allocator did because of the next input, or
// because the program emptied the cache in between, which leaves no entry of its own. Where memory
// was given back before an allocation, there are several readings; a decision picks one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/replay/internal/machine.h"
#include "headroom/replay/verify.h"

namespace headroom::replay::internal {

enum class Reading : std::uint8_t {
  kForced,         // the request could not be served otherwise; its flush waited for held blocks
  kForcedLate,     // the same, and what completed had done so before the request began to give back
  kForcedByHold,   // as kForced, and the block freed last was held: the flush completed it at once
  kEmptiedByHand,  // the program emptied the cache, then asked
};
inline constexpr std::size_t kReadingCount = 4;

// Readings by the event of the request. Others are guessed.
using Readings = std::map<std::uint32_t, Reading>;

struct CheckedRun {
  Verification verification{};
  // Every request that had several readings, in order, with the one that was taken.
  std::vector<std::pair<std::uint32_t, Reading>> choices{};
  std::optional<std::uint32_t> first_mismatch_event{};
};

struct CheckedRunOptions {
  bool stop_at_mismatch = false;
  std::size_t timeline_samples = 0;
};

[[nodiscard]] CheckedRun run_checked(const Program& program,
                                     const ReplayOptions& options,
                                     const Readings& readings,
                                     const CheckedRunOptions& how);

// The decisions of both sides, and the free blocks that mattered.
[[nodiscard]] Mismatch explain_allocation(const Program& program,
                                          std::uint32_t event,
                                          DeviceAddress ours,
                                          const memory::CachingAllocator& allocator);
[[nodiscard]] std::string describe(const trace::Events& events, std::size_t event);
[[nodiscard]] std::string describe(const memory::Event& event);

}  // namespace headroom::replay::internal
