// PagedState: the parts of a PagedAllocator, and Host, the allocator as these parts see it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include "headroom/memory/internal/address_map.h"
#include "headroom/memory/internal/pending_frees.h"
#include "headroom/memory/internal/pool_scopes.h"
#include "headroom/memory/internal/records.h"
#include "headroom/memory/internal/slab_heap.h"
#include "headroom/memory/paged/internal/arenas.h"
#include "headroom/memory/paged/internal/page_mover.h"
#include "headroom/memory/paged/internal/page_rests.h"
#include "headroom/memory/paged/internal/page_sleep.h"
#include "headroom/memory/paged/internal/sleepers.h"
#include "headroom/memory/paged/internal/stream_arenas.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory {

// The allocator as its pages and slabs see it.
class PagedAllocator::Host final : public internal::PageHost, public internal::SlabPages {
 public:
  explicit Host(PagedAllocator& allocator) noexcept : allocator_(allocator) {}

  [[nodiscard]] internal::HostFigures figures() const noexcept override;
  void page_created(std::uint64_t size_bytes) noexcept override;
  void page_released(std::uint64_t size_bytes) noexcept override;
  void pages_arrived(const PageArena& arena,
                     DeviceAddress at,
                     std::uint64_t size) noexcept override;
  void pages_left(const PageArena& arena, DeviceAddress at, std::uint64_t size) noexcept override;
  DeviceAddress take_slab_page(StreamId stream) noexcept override;
  void give_slab_page(DeviceAddress page) noexcept override;
  void fold_tally(const internal::ThreadTally& tally) noexcept override;

 private:
  [[nodiscard]] static SegmentRecord segment_at(const PageArena& arena,
                                                DeviceAddress at,
                                                std::uint64_t size) noexcept {
    return {.address = at,
            .size_bytes = size,
            .stream = arena.stream(),
            .pool = arena.pool,
            .is_small = arena.kind == internal::ArenaKind::kSlab};
  }

  PagedAllocator& allocator_;
};

namespace internal {

// The memory of a private pool grows in place and is never moved or shared: a graph may keep its
// addresses. Small blocks are apart, so that they do not stand between large ones.
struct PagedPool : PoolUse {
  using PoolUse::PoolUse;

  struct Holes {
    FreeBins large{};
    FreeBins small{};
    [[nodiscard]] FreeBins& of(std::uint64_t size_bytes) noexcept {
      return size_bytes <= kSmallBytes ? small : large;
    }
  };
  std::map<StreamId, Holes> free{};
  std::shared_ptr<const SegmentSource> source{};  // null: the device
};

// Pages as the device has them: whole granules.
[[nodiscard]] PagedOptions fit_to_device(PagedOptions options, const device::Device& device);

struct PagedState {
  // `fitted` is what fit_to_device returned.
  PagedState(device::Device& device,
             Mutex& mutex,
             const PagedOptions& fitted,
             PageHost& host,
             SlabPages& slab_pages_of_host);

  // No page was free and none could be created. From now on, for some frees, holes that a block
  // would leave much of are compared with windows between the ends of two pages.
  void begin_tight() noexcept { tight_until = clocks.now() + 4 * active.size() + 64; }
  void end_tight() noexcept { tight_until = 0; }
  // A block of this size would leave much of the last page that it takes of the hole, and memory is
  // tight.
  [[nodiscard]] bool is_tight_for(std::uint64_t size, std::uint64_t hole_size) const noexcept {
    if (clocks.now() >= tight_until) [[likely]] {
      return false;
    }
    constexpr std::uint64_t kLittle = 64_KiB;
    const std::uint64_t slot = options.page_bytes / 2;
    return size >= slot / 2 && (hole_size - size) % slot > kLittle;
  }

  const PagedOptions options;
  const bool tracks_blocks;

  // Pages and their arenas.
  BlockStore<PagedBlock> blocks{};
  StreamClocks clocks;
  PageTable table;
  Arenas arenas;
  PageBudget budget;
  PageSearch search;
  PageEnds ends;
  PagePlanner planner;
  PageMover mover;
  PageRests rests;
  PageSleep sleep;
  StreamArenaTable streams{};

  // Blocks.
  AddressMap<PagedBlock> active{};  // handed out, or freed and pending
  SlabHeap slabs;
  AddressMap<PagedBlock> slab_pages{};  // the arenas' blocks that slabs are in
  // Slab blocks that other streams use: one of these stands for each.
  AddressMap<PagedBlock> slab_uses{};
  PendingFrees<PagedBlock> pending;
  PoolScopes<PagedPool> pools{};
  Sleepers sleepers{};  // blocks that sleep are not active

  std::uint64_t tight_until = 0;         // on the clock of frees
  std::chrono::nanoseconds last_growth;  // on the device's clock
};

}  // namespace internal

inline AllocatorCore::BlockRecord PagedAllocator::record_of(const Block& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size,
          .requested_bytes = block.requested,
          .stream = block.stream,
          .pool = block.arena->pool,
          .is_small = false,
          .context = block.context};
}

inline AllocatorCore::BlockRecord PagedAllocator::record_of(
    const internal::SlabBlock& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size_bytes,
          .requested_bytes = block.requested_bytes,
          .stream = block.stream,
          .is_small = true,
          .context = block.context};
}

// Of the user's blocks, as statistics and events have them.
template <class Function>
void PagedAllocator::for_each_record(const internal::Sleeper& sleeper, Function&& function) {
  if (!sleeper.is_of_slabs()) return function(record_of(*sleeper.block), sleeper.tag);
  for (const internal::SleepingSlot& slot : sleeper.slabs.held) {
    function(record_of(slot.block), slot.tag);
  }
}

}  // namespace headroom::memory
