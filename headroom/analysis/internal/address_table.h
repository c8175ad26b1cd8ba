// A hash table from address to number: open addressing, because a recording asks it several times
// an event.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::analysis::internal {

class AddressTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  explicit AddressTable(std::size_t expected = 16)
      : slots_(std::bit_ceil(expected < 8 ? std::size_t{16} : expected * 2)) {}

  [[nodiscard]] std::uint32_t find(std::uint64_t address) const noexcept {
    return slots_[position(address)].value;
  }

  // `value` is not kNone; an older value of the address is replaced.
  void insert(std::uint64_t address, std::uint32_t value) {
    Slot& slot = slots_[position(address)];
    if (slot.value == kNone) ++size_;
    slot = {address, value};
    if (size_ * 2 > slots_.size()) grow();
  }

  // The value that was there, or kNone.
  std::uint32_t erase(std::uint64_t address) noexcept {
    std::size_t hole = position(address);
    const std::uint32_t value = slots_[hole].value;
    if (value == kNone) return kNone;
    --size_;
    // Entries behind it, which the erased one had pushed there, move up.
    for (std::size_t i = next(hole); slots_[i].value != kNone; i = next(i)) {
      const std::size_t wanted = home(slots_[i].address);
      const bool stays = hole <= i ? hole < wanted && wanted <= i : hole < wanted || wanted <= i;
      if (stays) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = {};
    return value;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  template <class F>
  void for_each(F&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.value != kNone) visit(slot.address, slot.value);
    }
  }

 private:
  struct Slot {
    std::uint64_t address = 0;
    std::uint32_t value = kNone;
  };

  [[nodiscard]] std::size_t home(std::uint64_t address) const noexcept {
    // Addresses are multiples of 512; the multiplication brings their upper bits down.
    return static_cast<std::size_t>((address * 0x9e3779b97f4a7c15U) >> 20U) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept {
    return (i + 1) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t position(std::uint64_t address) const noexcept {
    std::size_t i = home(address);
    while (slots_[i].value != kNone && slots_[i].address != address) i = next(i);
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value != kNone) slots_[position(slot.address)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace headroom::analysis::internal
