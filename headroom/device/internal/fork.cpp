#include "headroom/device/internal/fork.h"

#include <atomic>

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

namespace headroom::device::internal {
namespace {

constinit std::atomic<std::uint64_t> generation{0};

}  // namespace

void watch_forks() noexcept {
#if __has_include(<pthread.h>)
  // A handler instead of comparing process ids: getpid() is a system call on every device call.
  [[maybe_unused]] static const int watching =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
#endif
}

std::uint64_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace headroom::device::internal
