// SlabPages: what a SlabHeap needs of the core that it belongs to.
#pragma once

#include "headroom/memory/internal/thread_tally.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

// Called with the allocator's lock held.
class SlabPages {
 public:
  SlabPages() = default;
  SlabPages(const SlabPages&) = delete;
  SlabPages& operator=(const SlabPages&) = delete;
  virtual ~SlabPages() = default;

  // A page inside the region, aligned to its size; 0 when there is none to be had.
  virtual DeviceAddress take_slab_page(StreamId stream) noexcept = 0;
  // All of its blocks are free.
  virtual void give_slab_page(DeviceAddress page) noexcept = 0;
  // AllocatorCore::record_threads.
  virtual void fold_tally(const ThreadTally& tally) noexcept = 0;
};

}  // namespace headroom::memory::internal
