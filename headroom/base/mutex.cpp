#include "headroom/base/mutex.h"

namespace headroom {
namespace {

constexpr int kMostOnlookers = 1;
// Of looking on before sleeping: some 50 us, what sleeping and waking take. Each look may take the
// cache line away from the holder, so there are about two a microsecond.
constexpr int kLooks = 48;
constexpr int kPausesALook = 24;
// Turns after which a sleeper is woken although somebody looks on.
constexpr std::uint32_t kPatience = 512;

// Tells the processor that this is a loop of waiting.
void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Mutex::lock_contended() noexcept {
  if (onlookers_.fetch_add(1) < kMostOnlookers && look_on()) return;
  do {
    onlookers_.fetch_sub(1);
    if (sleep()) return;
    // Whoever chose this thread has counted it as an onlooker.
  } while (!look_on());
}

// Whether it has the lock, and is no onlooker any more.
bool Mutex::look_on() noexcept {
  for (int look = 0; look < kLooks; ++look) {
    // Looking leaves the cache line with the holder; trying takes it away.
    if ((state_.load(std::memory_order_relaxed) & kHeld) == 0 && try_lock()) {
      onlookers_.fetch_sub(1);
      return true;
    }
    for (int i = 0; i < kPausesALook; ++i) pause();
  }
  return false;
}

// Whether it has the lock; otherwise it was woken.
bool Mutex::sleep() noexcept {
  std::uint32_t seen = state_.fetch_add(kSleeper) + kSleeper;
  // Free: there may be nobody left to wake us. Sleepers are a number; it does not matter which one
  // leaves it. None left means that this one was chosen already.
  while ((seen & kHeld) == 0 && seen >= kSleeper) {
    if (state_.compare_exchange_weak(seen, (seen - kSleeper) | kHeld)) return true;
  }
  chosen_.acquire();
  return false;
}

void Mutex::wake_if_due() noexcept {
  const bool is_due = turns_.fetch_add(1, std::memory_order_relaxed) % kPatience == 0;
  if (onlookers_.load() > 0 && !is_due) return;
  std::uint32_t seen = state_.load();
  while (seen >= kSleeper) {
    if (!state_.compare_exchange_weak(seen, seen - kSleeper)) continue;
    onlookers_.fetch_add(1);
    chosen_.release();
    return;
  }
}

}  // namespace headroom
