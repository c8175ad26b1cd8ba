// SeenStacks: the number of a stack by the words that it consists of, as they lie in memory. What a
// walker looks into before it asks what the words mean.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom::bridge {

// Not for several threads at once.
class SeenStacks {
 public:
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  [[nodiscard]] static std::uint64_t hash_of(std::span<const std::uint64_t> words) noexcept {
    std::uint64_t hash = words.size();
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29U;
    }
    return hash;
  }

  [[nodiscard]] std::uint32_t find(std::span<const std::uint64_t> words,
                                   std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.number == kUnknown) return kUnknown;
      if (slot.hash == hash && slot.count == words.size() &&
          std::equal(words.begin(), words.end(), words_.data() + slot.begin)) {
        return slot.number;
      }
    }
  }

  // Adds one that find() did not find.
  void add(std::span<const std::uint64_t> words, std::uint64_t hash, std::uint32_t number) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const std::size_t begin = words_.size();
    words_.insert(words_.end(), words.begin(), words.end());
    place({.hash = hash, .begin = begin, .count = words.size(), .number = number});
    ++count_;
  }

  void clear() noexcept {
    std::ranges::fill(slots_, Slot{});
    words_.clear();
    count_ = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t words() const noexcept { return words_.size(); }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t begin = 0;  // in words_
    std::size_t count = 0;
    std::uint32_t number = kUnknown;
  };

  void place(const Slot& slot) noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = slot.hash & mask;
    while (slots_[i].number != kUnknown) i = (i + 1) & mask;
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != kUnknown) place(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1024);  // a power of two, at most half full
  std::vector<std::uint64_t> words_{};
  std::size_t count_ = 0;
};

}  // namespace headroom::bridge
