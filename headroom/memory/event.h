// Events of an allocator, as records of a fixed size, and the sinks that receive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

// A set of actions: which of them a sink wants to hear of.
class Actions {
 public:
  constexpr Actions() = default;
  constexpr Actions(std::initializer_list<Action> actions) noexcept {
    for (const Action action : actions) bits_ |= bit(action);
  }
  [[nodiscard]] constexpr bool has(Action action) const noexcept {
    return (bits_ & bit(action)) != 0;
  }
  [[nodiscard]] constexpr bool meets(Actions other) const noexcept {
    return (bits_ & other.bits_) != 0;
  }
  constexpr Actions& operator|=(Actions other) noexcept {
    bits_ |= other.bits_;
    return *this;
  }
  friend constexpr Actions operator|(Actions a, Actions b) noexcept { return a |= b; }
  friend constexpr bool operator==(Actions a, Actions b) noexcept = default;

 private:
  static constexpr std::uint32_t bit(Action action) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(action);
  }

  std::uint32_t bits_ = 0;
};

inline constexpr Actions kBlockActions{
    Action::kAlloc, Action::kFreeRequested, Action::kFreeCompleted};
inline constexpr Actions kSegmentActions{
    Action::kSegmentAlloc, Action::kSegmentFree, Action::kSegmentMap, Action::kSegmentUnmap};
// All that an allocator emits.
inline constexpr Actions kAllActions =
    kBlockActions | kSegmentActions | Actions{Action::kOutOfMemory};

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
  // Of the block or segment, where tags are made; of the request in `oom`. To keep it, copy it.
  const Tag* tag = nullptr;
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
