// AddressMap: from an address to its block, for the blocks that are held.
//
// Open addressing with linear probing in one array, at most half full; erasing moves later entries
// up, so there are no tombstones. One cache line a lookup, where a node-based map takes three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct Block;

class AddressMap {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  // Null when the address is not in the map.
  [[nodiscard]] Block* find(DeviceAddress address) const noexcept {
    if (entries_.empty()) return nullptr;
    for (std::size_t i = home(address);; i = next(i)) {
      if (entries_[i].address == address) return entries_[i].block;
      if (entries_[i].address == 0) return nullptr;
    }
  }

  // Makes sure that one insert needs no memory.
  void prepare() {
    if (2 * (size_ + 1) > entries_.size()) grow();
  }

  // The address is not 0 and not in the map.
  void insert(DeviceAddress address, Block* block) noexcept {
    std::size_t i = home(address);
    while (entries_[i].address != 0) i = next(i);
    entries_[i] = {.address = address, .block = block};
    ++size_;
  }

  // The address is in the map.
  void erase(DeviceAddress address) noexcept {
    std::size_t hole = home(address);
    while (entries_[hole].address != address) hole = next(hole);
    for (std::size_t i = next(hole); entries_[i].address != 0; i = next(i)) {
      // An entry may move up into the hole unless its home lies between the hole and itself.
      const std::size_t distance_home = (i - home(entries_[i].address)) & mask_;
      const std::size_t distance_hole = (i - hole) & mask_;
      if (distance_home >= distance_hole) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole] = {};
    --size_;
  }

  template <class Function>
  void for_each(Function&& function) const {
    for (const Entry& entry : entries_) {
      if (entry.address != 0) function(*entry.block);
    }
  }

 private:
  struct Entry {
    DeviceAddress address = 0;
    Block* block = nullptr;
  };

  // Addresses are multiples of 512 and mostly neighbours: multiply to spread them (Knuth).
  [[nodiscard]] std::size_t home(DeviceAddress address) const noexcept {
    return static_cast<std::size_t>(((address >> 9U) * 0x9E3779B97F4A7C15U) >> shift_);
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & mask_; }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    shift_ = 64;
    for (std::size_t n = entries_.size(); n > 1; n /= 2) --shift_;
    size_ = 0;
    for (const Entry& entry : old) {
      if (entry.address != 0) insert(entry.address, entry.block);
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  std::size_t mask_ = 0;
  unsigned shift_ = 64;
};

}  // namespace headroom::memory::internal
