// Checks for our own mistakes, never for user input.
//
// HEADROOM_CHECK always runs; HEADROOM_ASSERT only in debug and validating builds. Both end the
// process with one line that says where and what the broken condition means.
#pragma once

namespace headroom::internal {
[[noreturn]] void check_failed(const char* condition,
                               const char* meaning,
                               const char* file,
                               int line) noexcept;
}  // namespace headroom::internal

#define HEADROOM_CHECK(condition, meaning) \
  (static_cast<bool>(condition)            \
       ? static_cast<void>(0)              \
       : ::headroom::internal::check_failed(#condition, meaning, __FILE__, __LINE__))

#if !defined(NDEBUG) || defined(HEADROOM_VALIDATE)
#define HEADROOM_ASSERT(condition, meaning) HEADROOM_CHECK(condition, meaning)
#else
#define HEADROOM_ASSERT(condition, meaning) static_cast<void>(0)
#endif
