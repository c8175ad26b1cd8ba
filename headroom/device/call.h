// Call: the calls of a device, for whoever counts them or makes them fail.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::device {

// Every call that can be counted and made to fail.
enum class Call : std::uint8_t {
  kAllocateSegment,
  kFreeSegment,
  kReserveAddresses,
  kReleaseAddresses,
  kCreatePages,
  kReleasePages,
  kMapPages,
  kUnmapPages,
  kCreateStream,
  kAdoptStream,
  kNativeStream,
  kReleaseStream,
  kSynchronizeStream,
  kIsCapturing,
  kRecordEvent,
  kQueryEvent,
  kWaitEvent,
  kSynchronizeEvent,
  kElapsed,
  kReleaseEvent,
  kCopyToDevice,
  kCopyToHost,
  kCopyWithin,
  kCopyPeer,
  kFill,
  kEnqueueHost,
  kAllocatePinned,
  kFreePinned,
  kMemoryInfo,
  kProcesses,
  kMeasure,
};
inline constexpr std::size_t kCallCount = static_cast<std::size_t>(Call::kMeasure) + 1;

[[nodiscard]] const char* to_string(Call call) noexcept;

}  // namespace headroom::device
