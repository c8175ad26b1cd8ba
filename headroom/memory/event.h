// What the allocator did, one fixed-size record at a time, and who wants to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "headroom/memory/types.h"

namespace headroom::memory {

// PyTorch's trace actions, in its words (to_string gives its spelling).
enum class Action : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory,  // `address` holds the device's free bytes, `size_bytes` the rounded request
  // Only in recordings, never from an allocator:
  kSnapshot,
  kUserDefined,
  kAnnotate,
  kUnknown,
};
inline constexpr std::size_t kActionCount = static_cast<std::size_t>(Action::kUnknown) + 1;

[[nodiscard]] std::string_view to_string(Action action) noexcept;

struct Event {
  Action action = Action::kAlloc;
  Category category = Category::kUnknown;
  bool is_small = false;  // of the small pool
  std::uint32_t annotation = 0;
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;  // as asked for in alloc and free; of the range in segment events
  StreamId stream = StreamId::kDefault;
  PoolId pool{};
  std::uint64_t sequence = 0;     // without a gap, per allocator
  std::uint64_t block_bytes = 0;  // of the block, in alloc and free: what `allocated` counts
};

// Receives events in order, one call at a time, inside the allocator: it must be quick, must not
// throw, and must not call the allocator.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  virtual void record(const Event& event) noexcept = 0;
};

}  // namespace headroom::memory
