// Forks: what belongs to the process that made it, and locks that a child may take.
//
// The child of a fork has one thread, the one that forked. Whatever the others were doing stays
// half done there for ever, and a lock that one of them held is never let go of. So
//
//  - an object that threads share remembers where it was made (ForkMark), and in a child refuses
//    every call before it takes a lock or reads what the lock guards;
//  - the few tables that a whole process shares, and that a child goes on using, have a
//    ForkSafeMutex: a fork waits until it is free, so that the child finds the table whole.
//
//   void Cache::put(int value) {
//     if (made_.is_forked()) throw Forked();  // ForkMark made_;
//     const std::lock_guard lock(mutex_);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "headroom/base/error.h"

namespace headroom {

namespace internal {
inline constinit std::atomic<std::uint64_t> forks_so_far{0};
}  // namespace internal

// Goes up by one in the child of every fork. One relaxed load.
[[nodiscard]] inline std::uint64_t fork_generation() noexcept {
  return internal::forks_so_far.load(std::memory_order_relaxed);
}

// Further work of a fork from now on; each may be null. `before` runs when the fork has every
// ForkSafeMutex, and may take one lock more, of those who take no other while they hold it. The
// other two run before these are let go of; `in_child` on the child's only thread.
struct ForkHandlers {
  void (*before)() noexcept = nullptr;
  void (*in_parent)() noexcept = nullptr;
  void (*in_child)() noexcept = nullptr;
};
void add_fork_handlers(const ForkHandlers& handlers) noexcept;

// For what a child can neither use nor take apart: it stays as it is, and counts as no leak.
void keep_for_ever(const void* object) noexcept;

// Where something was made: in this process, or in one that this one was forked from.
class ForkMark {
 public:
  ForkMark() noexcept;

  [[nodiscard]] bool is_forked() const noexcept { return fork_generation() != made_in_; }

 private:
  std::uint64_t made_in_;
};

// A call in the child of a fork, of something that belongs to the parent.
class Forked : public Error {
 public:
  Forked();
};

// A mutex of a table that lives as long as the process; never destroyed. A fork takes it, in the
// order of ranks, and lets go of it on both sides. A thread that holds one may take another only of
// a higher rank, and whoever holds one does nothing that takes long: all forks of the process wait
// for it. Recursive, because a function that is called with the lock held may fork.
class ForkSafeMutex {
 public:
  // In the order in which they are taken.
  enum class Rank : std::uint8_t {
    kRecording,   // of the process
    kHandles,     // of the C interface
    kAllocators,  // of the process
    kDevices,     // of the process, while they are made
    kObservers,   // of scopes
    kTable,       // nothing else is taken while it is held
  };
  static constexpr std::size_t kRanks = static_cast<std::size_t>(Rank::kTable) + 1;

  explicit ForkSafeMutex(Rank rank) noexcept;
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() {
    if (is_mine()) {
      ++depth_;
      return;
    }
    mutex_.lock();
    take();
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (is_mine()) {
      ++depth_;
      return true;
    }
    if (!mutex_.try_lock()) return false;
    take();
    return true;
  }
  void unlock() noexcept {
    if (--depth_ > 0) return;
    owner_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  friend struct Forking;

  [[nodiscard]] bool is_mine() const noexcept {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  void take() noexcept {
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    depth_ = 1;
  }

  // Not a std::recursive_mutex: that knows its owner by a number which is another in the child, and
  // could not be let go of there.
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};  // as the owner wrote it; others see that it is not they
  int depth_ = 0;                         // of the owner's locks
  ForkSafeMutex* next_ = nullptr;         // of the same rank
};

}  // namespace headroom
