// Stacks of raw addresses, each kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom::trace::internal {

class StackInterner {
 public:
  static constexpr std::uint32_t kNone = 0;

  // The number of a stack that was interned before, or kNone.
  [[nodiscard]] std::uint32_t find(std::span<const std::uint64_t> addresses,
                                   std::uint64_t hash) const noexcept;
  // Adds one that find() did not find. kNone when there is no memory for it, or no number left.
  [[nodiscard]] std::uint32_t add(std::span<const std::uint64_t> addresses,
                                  std::uint64_t hash) noexcept;

  [[nodiscard]] std::span<const std::uint64_t> operator[](std::uint32_t id) const noexcept {
    return {words_.data() + starts_[id], starts_[id + 1] - starts_[id]};
  }
  // One more than the largest number.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(starts_.size() - 1);
  }

  [[nodiscard]] static std::uint64_t hash_of(std::span<const std::uint64_t> addresses) noexcept;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t id = kNone;
  };
  static void place(std::vector<Slot>& slots, Slot slot) noexcept;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(1024);  // a power of two, at most half full
  std::vector<std::uint64_t> words_;
  std::vector<std::size_t> starts_{0, 0};
};

}  // namespace headroom::trace::internal
