// How the bytes of a dictionary looked, so that the next one like it is read at a glance: the same
// keys, each by the same opcode out of the memo, and a plain value behind each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headroom::trace::internal {

struct DictTemplate {
  static constexpr std::size_t kMaxKeys = 14;

  // BINGET or LONG_BINGET with its number.
  struct Key {
    std::uint64_t bytes = 0;
    std::uint64_t mask = 0;
    std::uint32_t length = 0;
    std::uint32_t number = 0;  // in the memo

    // Eight bytes can be read at `at`.
    [[nodiscard]] bool is_at(const std::uint8_t* at) const {
      std::uint64_t found = 0;
      std::memcpy(&found, at, sizeof(found));
      return (found & mask) == bytes;
    }
  };

  // Takes over a dictionary whose first key is at `begin` and whose SETITEMS is at `end`; false if
  // it holds anything but plain values. Eight bytes can be read at `end`.
  [[nodiscard]] bool learn(const std::uint8_t* begin,
                           const std::uint8_t* end,
                           std::uint32_t its_shape);

  std::array<Key, kMaxKeys> keys{};
  std::size_t size = 0;  // 0: nothing learned yet
  std::uint32_t shape = 0;
};

}  // namespace headroom::trace::internal
