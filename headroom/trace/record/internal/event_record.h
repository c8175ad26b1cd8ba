// An event as recorders keep it: eight words, a cache line.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/memory/event.h"

namespace headroom::trace::internal {

struct EventRecord {
  static constexpr std::size_t kWords = 8;
  // A recorder asks for the place of a record this many events before it is filled: it was last
  // used a whole round of its ring ago, and is in no cache.
  static constexpr std::size_t kAhead = 4;
  std::array<std::uint64_t, kWords> words{};

  // Hands each word to `put(i, word)`: straight to where it stays, as every ns counts.
  template <class Put>
  static void write(const memory::Event& event,
                    std::uint64_t ticks,
                    std::uint32_t stack,
                    const Put& put) noexcept {
    put(0, ticks);
    put(1, event.address);
    put(2, event.size_bytes);
    put(3, static_cast<std::uint64_t>(event.stream));
    put(4,
        static_cast<std::uint64_t>(event.action) |
            static_cast<std::uint64_t>(event.category) << 8U |
            static_cast<std::uint64_t>(event.annotation) << 32U);
    put(5, stack);
    put(6, event.pool.graph);
    put(7, event.pool.user);
  }

  [[nodiscard]] std::uint64_t ticks() const noexcept { return words[0]; }
  [[nodiscard]] std::uint64_t address() const noexcept { return words[1]; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return words[2]; }
  [[nodiscard]] std::uint64_t stream() const noexcept { return words[3]; }
  [[nodiscard]] memory::Action action() const noexcept {
    return static_cast<memory::Action>(words[4] & 0xFFU);
  }
  [[nodiscard]] memory::Category category() const noexcept {
    return static_cast<memory::Category>((words[4] >> 8U) & 0xFFU);
  }
  [[nodiscard]] std::uint32_t annotation() const noexcept {
    return static_cast<std::uint32_t>(words[4] >> 32U);
  }
  [[nodiscard]] std::uint32_t stack() const noexcept {
    return static_cast<std::uint32_t>(words[5]);
  }
  [[nodiscard]] memory::PoolId pool() const noexcept {
    return {.graph = words[6], .user = words[7]};
  }
};

}  // namespace headroom::trace::internal
