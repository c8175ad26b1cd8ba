// Which stacks a recording keeps.
#pragma once

#include <cstdint>

namespace headroom::trace {

enum class StackMode : std::uint8_t {
  kNone,
  kOnAllocation,  // where memory was taken: allocations, segments, failures
  kOnAll,         // where it was freed, too
};

enum class StackMethod : std::uint8_t {
  // Follows the frame pointers: some ns a frame. Ends where code was compiled without them
  // (-fno-omit-frame-pointer keeps them); a function in between that has none is skipped with its
  // caller.
  kFramePointers,
  // The compiler's unwind tables: any code, tens of times slower.
  kUnwinder,
};

struct StackOptions {
  StackMode mode = StackMode::kNone;
  StackMethod method = StackMethod::kFramePointers;
  std::uint32_t depth = 64;  // frames kept, from the innermost; at most kMostFrames
  // Look functions and lines up when a recording is closed or a snapshot taken. Without, frames
  // are module+offset, and symbolise() can still find them.
  bool symbolise = true;
};

inline constexpr std::uint32_t kMostFrames = 256;

}  // namespace headroom::trace
