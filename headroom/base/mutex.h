// Mutex: a lock for critical sections of about ten nanoseconds that many threads enter often.
// The handover is the expensive part: putting a thread to sleep and waking it takes a hundred times
// as long as the section, and a lock that many threads poll moves from cache to cache. So one
// thread holds the lock, one other thread polls it, and the rest sleep. A sleeper is woken only
// when no thread polls, so two threads take turns, however many there are. (Malthusian locks, Dice,
// EuroSys 2017.) Now and then a sleeper is woken all the same, so that no thread sleeps for ever.
//
// With std::lock_guard and std::unique_lock. Not recursive. Unlike a std::mutex it must outlive
// every unlock(), not only every lock().
#pragma once

#include <atomic>
#include <cstdint>

#include "headroom/base/fork.h"
#include "headroom/base/semaphore.h"

namespace headroom {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Throws Forked in the child of a fork: who holds it may not be there, and what it guards may be
  // half done.
  void lock() {
    if (made_.is_forked()) [[unlikely]] {
      throw Forked();
    }
    if (!try_lock()) [[unlikely]] {
      lock_contended();
    }
  }
  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t seen = 0;
    if (take(seen)) [[likely]] {
      return true;
    }
    return (seen & kHeld) == 0 && take(seen);
  }
  void unlock() noexcept {
    if (state_.fetch_sub(kHeld) != kHeld) [[unlikely]] {
      wake_if_due();
    }
  }

  [[nodiscard]] bool is_forked() const noexcept { return made_.is_forked(); }

 private:
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kSleeper = 2;

  bool take(std::uint32_t& seen) noexcept {
    return state_.compare_exchange_strong(
        seen, seen | kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock_contended() noexcept;
  [[nodiscard]] bool look_on() noexcept;
  [[nodiscard]] bool sleep() noexcept;
  void wake_if_due() noexcept;

  // kHeld, and kSleeper for each thread that sleeps and has not been chosen to wake.
  //
  // Nobody is forgotten: whoever lets go with a sleeper in the state wakes one, unless a thread
  // looks on; a thread that stops looking takes the lock or becomes a sleeper by a step that sees
  // whether it is held, and whoever holds it then has yet to let go.
  std::atomic<std::uint32_t> state_ = 0;
  // Threads that look on, and those chosen to wake, which are about to.
  std::atomic<std::int32_t> onlookers_ = 0;
  std::atomic<std::uint32_t> turns_ = 0;  // while somebody slept
  Semaphore chosen_{};
  ForkMark made_{};
};

}  // namespace headroom
