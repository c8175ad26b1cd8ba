// The return addresses of the calls that led here, innermost first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headroom/trace/record/stack_options.h"

namespace headroom::trace::internal {

// From `frame`, the caller's __builtin_frame_address(0), on. Stays within the thread's stack, so
// code without frame pointers ends the walk early and does no other harm.
[[nodiscard]] std::size_t walk_frame_pointers(const void* frame,
                                              std::span<std::uint64_t> addresses) noexcept;

// By unwind tables, from the caller's caller on.
[[nodiscard]] std::size_t walk_with_unwinder(std::span<std::uint64_t> addresses) noexcept;

}  // namespace headroom::trace::internal
