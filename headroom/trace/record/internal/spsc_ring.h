// A queue between one thread that pushes and one that pops, neither of which ever waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "headroom/trace/record/internal/lazy_memory.h"

namespace headroom::trace::internal {

template <class T>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Rounded up to a power of two. All of its memory is taken at once: it is used around and around,
  // by a thread that has no time to wait for it.
  explicit SpscRing(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 2)) - 1),
        memory_((mask_ + 1) * sizeof(T)),
        slots_(memory_.as<T>()) {
    memory_.fill();
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

  // The place of the next item, to be filled in and committed; null when there is no room.
  [[nodiscard]] T* claim() noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    return has_room(head, 1) ? slots_ + (head & mask_) : nullptr;
  }
  void commit() noexcept {
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Gets the place ready that is `ahead` items further on.
  void prefetch(std::size_t ahead) noexcept {
    __builtin_prefetch(slots_ + ((head_.load(std::memory_order_relaxed) + ahead) & mask_), 1);
  }

  // All of them or, when there is no room for all, none.
  bool push(std::span<const T> items) noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (!has_room(head, items.size())) return false;
    for (std::size_t i = 0; i < items.size(); ++i) slots_[(head + i) & mask_] = items[i];
    head_.store(head + items.size(), std::memory_order_release);
    return true;
  }

  // Moves what is there, up to all of `out`, and says how many.
  std::size_t pop(std::span<T> out) noexcept {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    const std::size_t count = std::min<std::size_t>(out.size(), head - tail);
    for (std::size_t i = 0; i < count; ++i) out[i] = slots_[(tail + i) & mask_];
    tail_.store(tail + count, std::memory_order_release);
    return count;
  }

 private:
  bool has_room(std::uint64_t head, std::size_t items) noexcept {
    if (head + items - tail_seen_ <= capacity()) [[likely]] {
      return true;
    }
    tail_seen_ = tail_.load(std::memory_order_acquire);
    return head + items - tail_seen_ <= capacity();
  }

  std::size_t mask_;
  LazyMemory memory_;
  T* slots_;
  // Each side's counter on a cache line of its own, so that they do not slow each other down.
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::uint64_t tail_seen_ = 0;  // the pusher's last look at tail_
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace headroom::trace::internal
