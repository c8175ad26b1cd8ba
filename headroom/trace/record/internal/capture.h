// Stacks as recorders take them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "headroom/memory/event.h"
#include "headroom/trace/record/internal/stack_walk.h"
#include "headroom/trace/record/stack_options.h"

namespace headroom::trace::internal {

[[nodiscard]] inline bool wants_stack(StackMode mode, memory::Action action) noexcept {
  if (mode != StackMode::kOnAllocation) return mode == StackMode::kOnAll;
  return action == memory::Action::kAlloc || action == memory::Action::kSegmentAlloc ||
         action == memory::Action::kSegmentMap || action == memory::Action::kOutOfMemory;
}

// Into the beginning of `room`.
[[nodiscard]] inline std::span<const std::uint64_t> capture(
    const StackOptions& options, const void* frame, std::span<std::uint64_t> room) noexcept {
  room = room.first(std::min<std::size_t>(options.depth, room.size()));
  const std::size_t count = options.method == StackMethod::kFramePointers
                                ? walk_frame_pointers(frame, room)
                                : walk_with_unwinder(room);
  return room.first(count);
}

}  // namespace headroom::trace::internal
