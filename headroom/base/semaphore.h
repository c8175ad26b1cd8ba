// Semaphore: counts what has been released and not yet acquired, and lets who acquires wait for it.
//
// Not std::counting_semaphore: libstdc++'s may lose a wakeup (its PR 104928; seen with GCC 13 on 16
// cores). Its acquire() reads the count, tries for a while, and sleeps while the count is what it
// read. Where that was 1, another thread took it and a third released it again just before the
// sleep, it sleeps although the count is 1; and release() wakes nobody unless the count was 0.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom {

class Semaphore {
 public:
  void acquire() noexcept {
    std::uint32_t seen = count_.load(std::memory_order_relaxed);
    for (;;) {
      if (seen == 0) {
        count_.wait(0, std::memory_order_relaxed);  // sleeps on no other number
        seen = count_.load(std::memory_order_relaxed);
      } else if (count_.compare_exchange_weak(
                     seen, seen - 1, std::memory_order_acquire, std::memory_order_relaxed)) {
        return;
      }
    }
  }

  // Wakes one who sleeps, whatever the count was: whoever was woken before may not have taken his
  // yet.
  void release() noexcept {
    count_.fetch_add(1);
    count_.notify_one();
  }

 private:
  std::atomic<std::uint32_t> count_ = 0;
};

}  // namespace headroom
