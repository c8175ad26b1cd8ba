// AddressMap: from an address to its block, for the blocks that are held.
//
// A hash table of buckets, each a cache line with room for four. On average a bucket has at most
// two, so that one in twenty addresses finds its own bucket full and goes into the next that has
// room; every bucket counts those that went past it, which is how long a search goes on. Looking,
// inserting and erasing take no branch that depends on the address: blocks are freed in no order,
// and a wrong guess of the processor costs as much as all the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory::internal {

template <class Block>
class AddressMap {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  // Null when the address is not in the map.
  [[nodiscard]] Block* find(DeviceAddress address) const noexcept {
    if (buckets_.empty()) return nullptr;
    for (std::size_t i = home(address);; i = next(i)) {
      const Bucket& bucket = buckets_[i];
      const std::size_t at = bucket.place_of(address);
      if (at < kWays) [[likely]] {
        last_ = {.bucket = i, .at = at};
        return bucket.blocks[at];
      }
      if (passed_[i] == 0) return nullptr;
    }
  }

  // Makes sure that one insert needs no memory.
  void prepare() {
    if (size_ >= most_) [[unlikely]] {
      grow();
    }
  }

  void prepare_for(std::size_t inserts) {
    while (size_ + inserts > most_) grow();
  }

  // The address is not 0 and not in the map.
  void insert(DeviceAddress address, Block* block) noexcept {
    for (std::size_t i = home(address);; i = next(i)) {
      Bucket& bucket = buckets_[i];
      const std::size_t at = bucket.place_of(0);
      if (at < kWays) [[likely]] {
        bucket.addresses[at] = address;
        bucket.blocks[at] = block;
        ++size_;
        return;
      }
      ++passed_[i];
    }
  }

  // The address is in the map.
  void erase(DeviceAddress address) noexcept {
    for (std::size_t i = home(address);; i = next(i)) {
      Bucket& bucket = buckets_[i];
      // Mostly it was looked for just before.
      const bool is_last = i == last_.bucket && bucket.addresses[last_.at] == address;
      const std::size_t at = is_last ? last_.at : bucket.place_of(address);
      if (at < kWays) [[likely]] {
        bucket.addresses[at] = 0;
        bucket.blocks[at] = nullptr;
        --size_;
        return;
      }
      --passed_[i];
    }
  }

  template <class Function>
  void for_each(Function&& function) const {
    for (const Bucket& bucket : buckets_) {
      for (std::size_t i = 0; i < kWays; ++i) {
        if (bucket.addresses[i] != 0) function(*bucket.blocks[i]);
      }
    }
  }

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kMostOnAverage = 2;

  struct alignas(64) Bucket {
    std::array<DeviceAddress, kWays> addresses{};  // 0: nothing there
    std::array<Block*, kWays> blocks{};

    // kWays when it is not here.
    [[nodiscard]] std::size_t place_of(DeviceAddress address) const noexcept {
      std::size_t place = kWays;
      for (std::size_t i = 0; i < kWays; ++i) place = addresses[i] == address ? i : place;
      return place;
    }
  };

  // Addresses are multiples of 512 and mostly neighbours: multiply to spread them (Knuth).
  [[nodiscard]] std::size_t home(DeviceAddress address) const noexcept {
    return static_cast<std::size_t>(((address >> 9U) * 0x9E3779B97F4A7C15U) >> shift_);
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept {
    return (i + 1) & (buckets_.size() - 1);
  }

  void grow() {
    const std::size_t count = buckets_.empty() ? 16 : 2 * buckets_.size();
    std::vector<std::uint32_t> passed(count);
    std::vector<Bucket> old(count);
    old.swap(buckets_);
    passed.swap(passed_);
    shift_ = 64;
    for (std::size_t n = count; n > 1; n /= 2) --shift_;
    most_ = kMostOnAverage * count;
    size_ = 0;
    for (const Bucket& bucket : old) {
      for (std::size_t i = 0; i < kWays; ++i) {
        if (bucket.addresses[i] != 0) insert(bucket.addresses[i], bucket.blocks[i]);
      }
    }
  }

  struct Place {
    std::size_t bucket = 0;
    std::size_t at = 0;
  };

  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> passed_;  // by bucket: blocks that went past it
  std::size_t size_ = 0;
  std::size_t most_ = 0;  // before it grows
  unsigned shift_ = 64;
  mutable Place last_{};  // where the last that was found is
};

}  // namespace headroom::memory::internal
