// SlabSleep: pages of a SlabHeap whose blocks all sleep. Such a page is in none of the heap's lists
// and its words are 0, so that nobody gets a block of it, with the lock or without; what was held
// is remembered here.
//
//   SlabSleep sleep(heap);
//   if (auto page = sleep.look_at(address, is_meant)) ...    // every block held is meant
//   if (sleep.take_out(*page)) ...                           // unless one was freed just then
//   sleep.put_back(*page);
//
// Every function requires the allocator's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {

struct SleepingSlot {
  SlabBlock block{};
  SlotWord word{};
  Tag tag{};
};

struct SleepingSlabs {
  SlabPage* page = nullptr;
  StreamSlabs* owner = nullptr;
  std::vector<SleepingSlot> held{};

  [[nodiscard]] std::uint64_t held_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const SleepingSlot& slot : held) bytes += slot.block.size_bytes;
    return bytes;
  }
};

class SlabSleep {
 public:
  explicit SlabSleep(SlabHeap& heap) noexcept : heap_(heap) {}

  // The page, where some of its blocks are held, all of these are meant, and none is in a magazine
  // or used by another stream. Changes nothing.
  [[nodiscard]] std::optional<SleepingSlabs> look_at(
      DeviceAddress page, const std::function<bool(const SlabBlock&)>& is_meant) const;
  // False, and nothing has changed, where one of the blocks is not held any more.
  [[nodiscard]] bool take_out(SleepingSlabs& slabs) noexcept;
  void put_back(SleepingSlabs& slabs) noexcept;
  // A block of a page that is out goes. The page is empty where it was the last.
  static void free(SleepingSlabs& slabs, std::size_t index) noexcept;

 private:
  SlabHeap& heap_;
};

}  // namespace headroom::memory::internal
