// Recordings that are always on, and the stacks of the program that they keep.
//
//   record_start(0, "run.hrt", 1 << 30, /*has_stacks=*/true);
//   ...
//   record_stop(0);
//
// Who knows the program's language walks its stacks: a walker is asked before an allocation takes a
// lock, and answers with the number of the stack, from intern_stack. This file is for the
// translation, and includes the standard library only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bindings/pytorch/bridge/bridge.h"

namespace headroom::bridge {

// Records a device's allocator into a .hrt file, which never exceeds `max_bytes`; the oldest events
// make room. A device that is not open yet stays so, and is recorded from its first use. Throws
// where the file cannot be made, or exists, or the device is recorded already.
// When the file cannot be written any more, a line on stderr says so, and the program goes on.
HEADROOM_BRIDGE void record_start(int device,
                                  const std::string& path,
                                  std::uint64_t max_bytes,
                                  bool has_stacks);
// Finishes the file. Nothing where there is no recording, and in the child of a fork.
HEADROOM_BRIDGE void record_stop(int device);
[[nodiscard]] HEADROOM_BRIDGE bool is_recording(int device);

// --- Stacks --------------------------------------------------------------------------------------

struct SourceLine {
  std::string_view name{};
  std::string_view file{};
  std::int64_t line = 0;
};

// Numbers for the life of the process, from 1; equal lines and stacks have the same one. 0 where
// there is no room for more, which leaves the frame or the stack out.
[[nodiscard]] HEADROOM_BRIDGE std::uint32_t intern_line(const SourceLine& line);
// Innermost first.
[[nodiscard]] HEADROOM_BRIDGE std::uint32_t intern_stack(std::span<const std::uint32_t> lines);

// The number of this thread's stack, or 0. Called without a lock of the allocator's; it must not
// throw, and may take locks that are held while somebody calls the allocator.
using StackWalker = std::uint32_t (*)();
HEADROOM_BRIDGE void set_stack_walker(StackWalker walker) noexcept;

}  // namespace headroom::bridge
