// What a PagedAllocator remembers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "headroom/memory/internal/address_map.h"
#include "headroom/memory/internal/block.h"
#include "headroom/memory/internal/cushion.h"
#include "headroom/memory/internal/free_bins.h"
#include "headroom/memory/internal/notes.h"
#include "headroom/memory/internal/page_store.h"
#include "headroom/memory/internal/pending_frees.h"
#include "headroom/memory/internal/pool_scopes.h"
#include "headroom/memory/internal/slab_heap.h"
#include "headroom/memory/paged/paged_allocator.h"

namespace headroom::memory::internal {

// Every growth of a private pool is one handle of its own, which is never moved, shared or cut: a
// graph may keep its addresses, and a collective may register it.
struct PagedPool : PoolUse {
  using PoolUse::PoolUse;

  std::map<StreamId, FreeBins> free{};
};

// The arenas of one stream; null where none was needed yet.
struct StreamArenas {
  StreamId stream = StreamId::kDefault;
  PageArena* normal = nullptr;
  PageArena* large = nullptr;
  PageArena* slab = nullptr;

  [[nodiscard]] PageArena*& of(ArenaKind kind) noexcept {
    return kind == ArenaKind::kNormal ? normal : kind == ArenaKind::kLarge ? large : slab;
  }
};

// Pages as the device has them: whole granules.
[[nodiscard]] PagedOptions fit_to_device(PagedOptions options, const device::Device& device);

struct PagedState final : PageHost, SlabPages, PoolScopes<PagedPool> {
  PagedState(PagedAllocator& allocator, device::Device& device, PagedOptions wanted);

  [[nodiscard]] std::uint64_t room_in_cushion(std::uint64_t released) const noexcept override;
  [[nodiscard]] std::uint64_t room_in_limit(std::uint64_t released) const noexcept override;
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept override {
    return self.reserved_bytes();
  }
  [[nodiscard]] bool wants_halves(std::uint64_t stuck_bytes) const noexcept override;
  void page_created(std::uint64_t size_bytes) noexcept override;
  void page_released(std::uint64_t size_bytes) noexcept override;
  void pages_arrived(const PageArena& arena,
                     DeviceAddress at,
                     std::uint64_t size) noexcept override;
  void pages_left(const PageArena& arena, DeviceAddress at, std::uint64_t size) noexcept override;
  DeviceAddress take_slab_page(StreamId stream) noexcept override;
  void give_slab_page(DeviceAddress page) noexcept override;
  void fold_tally(const ThreadTally& tally) noexcept override;

  // Most requests come from the stream of the one before.
  [[nodiscard]] StreamArenas& arenas_of(StreamId stream) {
    if (last != nullptr && last->stream == stream) [[likely]] {
      return *last;
    }
    const auto found = std::ranges::find(streams, stream, &StreamArenas::stream);
    last = found != streams.end() ? &*found : &streams.emplace_back(StreamArenas{.stream = stream});
    return *last;
  }
  // Of blocks that are no larger than a few pages on average, the one that is searched for
  // included, the ends add up.
  [[nodiscard]] bool has_small_blocks() const noexcept;
  [[nodiscard]] bool is_little_live() const noexcept;
  // Whether large blocks are kept apart, after a search.
  void note_stuck() noexcept;
  // The bytes up to which pages are created freely.
  [[nodiscard]] std::uint64_t cushion_end() const noexcept;

  PagedAllocator& self;
  PagedOptions options;
  const bool tracks_blocks;
  BlockStore blocks{};
  PageStore store;
  std::deque<StreamArenas> streams{};
  StreamArenas* last = nullptr;

  AddressMap active{};  // handed out, or freed and pending

  SlabHeap slabs;
  AddressMap slab_pages{};  // the arenas' blocks that slabs are in
  // Slab blocks that other streams use: what is known of them beyond the slab.
  AddressMap slab_uses{};
  PendingFrees pending;

  std::uint64_t searched_bytes = 0;  // what the search under way is for
  std::uint64_t peak_live = 0;       // as far as a search has seen it
  std::uint64_t peak_needed = 0;     // most bytes of pages that held something, likewise
  std::uint64_t unsettled = 0;       // pages created because free ones could not be moved just then
  bool keeps_apart = false;          // large blocks from small ones, whatever their pages
  std::uint64_t apart_from_bytes;    // what counts as large; smaller ones are all in one arena
  Cushion cushion;
  std::chrono::nanoseconds last_growth{};  // on the device's clock
};

}  // namespace headroom::memory::internal

namespace headroom::memory {

inline AllocatorCore::BlockNote PagedAllocator::note_of(const Block& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size,
          .requested_bytes = block.requested,
          .stream = block.stream,
          .pool = block.arena->pool,
          .is_small = false,
          .context = block.context};
}

inline AllocatorCore::BlockNote PagedAllocator::note_of(const internal::SlabBlock& block) noexcept {
  return {.address = block.address,
          .size_bytes = block.size_bytes,
          .requested_bytes = block.requested_bytes,
          .stream = block.stream,
          .is_small = true,
          .context = block.context};
}

}  // namespace headroom::memory
