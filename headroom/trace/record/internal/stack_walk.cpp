#include "headroom/trace/record/internal/stack_walk.h"

#include <pthread.h>
#include <unwind.h>

// A frame may lie in memory that AddressSanitizer guards; reading a pointer there is what we do.
#define HEADROOM_NO_SANITIZE __attribute__((no_sanitize("address", "thread", "undefined")))

namespace headroom::trace::internal {
namespace {

// The end of the thread's stack, found once per thread: asking costs microseconds. 0 is not asked
// yet, 1 is not known.
thread_local constinit std::uintptr_t t_stack_end = 0;

std::uintptr_t find_stack_end() noexcept {
#if defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 1;
  void* low = nullptr;
  std::size_t size = 0;
  const int failed = pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  return failed != 0 ? 1 : reinterpret_cast<std::uintptr_t>(low) + size;
#elif defined(__APPLE__)
  return reinterpret_cast<std::uintptr_t>(pthread_get_stackaddr_np(pthread_self()));
#else
  return 1;
#endif
}

struct Unwound {
  std::span<std::uint64_t> addresses;
  std::size_t count = 0;
  int skip = 2;  // ourselves and our caller
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* state) {
  auto& unwound = *static_cast<Unwound*>(state);
  if (unwound.skip-- > 0) return _URC_NO_REASON;
  const auto address = static_cast<std::uint64_t>(_Unwind_GetIP(context));
  if (address == 0 || unwound.count == unwound.addresses.size()) return _URC_END_OF_STACK;
  unwound.addresses[unwound.count++] = address;
  return _URC_NO_REASON;
}

}  // namespace

HEADROOM_NO_SANITIZE std::size_t walk_frame_pointers(const void* frame,
                                                     std::span<std::uint64_t> addresses) noexcept {
  if (t_stack_end == 0) t_stack_end = find_stack_end();
  // A frame is the caller's frame pointer, then the return address.
  constexpr std::uintptr_t kFrameBytes = 2 * sizeof(std::uintptr_t);
  constexpr std::uintptr_t kFirstPage = 4096;
  const std::uintptr_t last = t_stack_end - kFrameBytes;
  if (t_stack_end <= kFrameBytes) return 0;
  auto at = reinterpret_cast<std::uintptr_t>(frame);
  std::uint64_t* out = addresses.data();
  const std::uint64_t* const end = out + addresses.size();
  while (out != end && at <= last && at % sizeof(std::uintptr_t) == 0) {
    const auto* words = reinterpret_cast<const std::uintptr_t*>(at);
    if (words[1] < kFirstPage) break;
    *out++ = words[1];
    if (words[0] <= at) break;  // callers lie higher; anything else is no frame pointer
    at = words[0];
  }
  return static_cast<std::size_t>(out - addresses.data());
}

__attribute__((noinline)) std::size_t walk_with_unwinder(
    std::span<std::uint64_t> addresses) noexcept {
  Unwound unwound{.addresses = addresses};
  _Unwind_Backtrace(take_frame, &unwound);
  return unwound.count;
}

}  // namespace headroom::trace::internal
