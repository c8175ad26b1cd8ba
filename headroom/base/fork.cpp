#include "headroom/base/fork.h"

#include <array>
#include <new>

#include "headroom/base/check.h"

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

namespace headroom {

// The locks that a fork takes and lets go of. Without destruction: a process may fork while it
// ends.
struct Forking {
  static constexpr std::size_t kMostHandlers = 16;

  // Every ForkSafeMutex by rank, the newest first. Nothing is taken out.
  static inline constinit std::array<std::atomic<ForkSafeMutex*>, ForkSafeMutex::kRanks> known{};
  static inline constinit std::array<ForkHandlers, kMostHandlers> handlers{};
  static inline constinit std::atomic<std::size_t> handler_count{0};

  // The fork under way, and what it has begun: what is added meanwhile is not in it.
  static inline constinit std::mutex one_at_a_time;
  static inline constinit std::array<ForkSafeMutex*, ForkSafeMutex::kRanks> taken{};
  static inline constinit std::size_t begun = 0;

  static void add(ForkSafeMutex& mutex, ForkSafeMutex::Rank rank) noexcept {
    auto& head = known[static_cast<std::size_t>(rank)];
    mutex.next_ = head.load(std::memory_order_relaxed);
    while (!head.compare_exchange_weak(mutex.next_, &mutex, std::memory_order_release)) {
    }
  }

  static void add(const ForkHandlers& added) noexcept {
    const std::lock_guard lock(one_at_a_time);
    const std::size_t count = handler_count.load(std::memory_order_relaxed);
    HEADROOM_CHECK(count < kMostHandlers, "there are more fork handlers than there is room for");
    handlers[count] = added;
    handler_count.store(count + 1, std::memory_order_release);
  }

  static void before() noexcept {
    one_at_a_time.lock();
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
      taken[rank] = known[rank].load(std::memory_order_acquire);
      for (ForkSafeMutex* m = taken[rank]; m != nullptr; m = m->next_) m->lock();
    }
    begun = handler_count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < begun; ++i) run(handlers[i].before);
  }

  static void in_parent() noexcept {
    for (std::size_t i = begun; i > 0; --i) run(handlers[i - 1].in_parent);
    let_go();
  }

  static void in_child() noexcept {
    internal::forks_so_far.fetch_add(1, std::memory_order_relaxed);
    for (std::size_t i = begun; i > 0; --i) run(handlers[i - 1].in_child);
    let_go();
  }

  static void watch() noexcept {
#if __has_include(<pthread.h>)
    // A handler instead of comparing process ids: getpid() is a system call on every call.
    [[maybe_unused]] static const int watching = pthread_atfork(before, in_parent, in_child);
#endif
  }

 private:
  static void run(void (*handler)() noexcept) noexcept {
    if (handler != nullptr) handler();
  }
  static void let_go() noexcept {
    for (std::size_t rank = taken.size(); rank > 0; --rank) {
      for (ForkSafeMutex* m = taken[rank - 1]; m != nullptr; m = m->next_) m->unlock();
    }
    one_at_a_time.unlock();
  }
};

// Before there are threads: a child that is forked while one of them begins to watch would wait for
// it for ever.
[[maybe_unused]] const bool kWatchesEarly = [] {
  Forking::watch();
  return true;
}();

void add_fork_handlers(const ForkHandlers& handlers) noexcept {
  Forking::watch();
  Forking::add(handlers);
}

void keep_for_ever(const void* object) noexcept {
  struct Kept {
    const void* object;
    Kept* next;
  };
  static constinit std::atomic<Kept*> kept{nullptr};
  auto* const added = new (std::nothrow) Kept{object, kept.load(std::memory_order_relaxed)};
  if (added == nullptr) return;  // kept all the same, but a tool may call it a leak
  while (!kept.compare_exchange_weak(added->next, added)) {
  }
}

ForkMark::ForkMark() noexcept : made_in_(fork_generation()) { Forking::watch(); }

Forked::Forked()
    : Error(
          "the process was forked; devices, allocators and recordings do not survive that: make "
          "new ones in the child") {}

ForkSafeMutex::ForkSafeMutex(Rank rank) noexcept {
  Forking::watch();
  Forking::add(*this, rank);
}

}  // namespace headroom
