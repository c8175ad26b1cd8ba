// The cost of the parts of a Trace in a Budget: themselves, what finds them in their table, and the
// room that a growing array leaves and copies, at most three times what is in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// Devices with events or segments: tools look at each for some milliseconds. PyTorch numbers the
// devices of a process with seven bits; a .hrt may hold several ranks.
inline constexpr std::size_t kMostSnapshotDevices = 256;
inline constexpr std::size_t kMostHrtDevices = 4096;

inline constexpr std::uint64_t kGrowth = 3;
inline constexpr std::uint64_t kNodeCost = 64;  // of a map, beside what is in it

inline constexpr std::uint64_t kEventCost = 37;    // in columns of their final length
inline constexpr std::uint64_t kStreamCost = 128;  // seen for the first time
inline constexpr std::uint64_t kDeviceCost = kGrowth * sizeof(DeviceTrace);
inline constexpr std::uint64_t kSegmentCost = kGrowth * sizeof(Segment);
inline constexpr std::uint64_t kBlockCost = sizeof(Block);  // their number is known before
inline constexpr std::uint64_t kAnnotationCost = kGrowth * sizeof(Annotation);
inline constexpr std::uint64_t kStringCost = 160;  // beside its text
inline constexpr std::uint64_t kFrameCost = 2 * kGrowth * sizeof(Frame) + 2 * kNodeCost;
inline constexpr std::uint64_t kStackCost = 2 * kNodeCost;  // beside its frames
inline constexpr std::uint64_t kStackFrameCost = kGrowth * sizeof(std::uint32_t);
inline constexpr std::uint64_t kDetailsCost = (kGrowth + 1) * sizeof(Details) + kNodeCost;
inline constexpr std::uint64_t kForwardFrameCost = 2 * kGrowth * sizeof(StringId);
inline constexpr std::uint64_t kExtrasCost = kGrowth * sizeof(Value) + kNodeCost;  // beside values

}  // namespace headroom::trace::internal
