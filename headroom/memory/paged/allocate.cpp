// The malloc path of PagedAllocator: best fit among the holes that are backed; the rest is rare.
#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/context.h"
#include "headroom/memory/internal/shortage.h"
#include "headroom/memory/internal/slab_cached.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using internal::PagedState;

namespace {

// A page of the large class should be a small part of what is live: else its rounding shows. And
// large blocks should be a good part of it: a few that come and go among smaller ones would leave
// their pages unused, or have them broken up.
constexpr std::uint64_t kLargePagesOfLive = 64;
constexpr std::uint64_t kShareOfLarge = 3;

// The size that PyTorch would take: for memory of somebody else, and for blocks that are never
// split.
std::uint64_t segment_bytes(std::uint64_t rounded, std::uint64_t granularity) {
  if (rounded <= kSmallBytes) return round_up(kSmallSegmentBytes, granularity);
  if (rounded < kOwnSegmentBytes) return round_up(kLargeSegmentBytes, granularity);
  return round_up(rounded, std::max(kSegmentRoundingBytes, granularity));
}

}  // namespace

DeviceAddress PagedAllocator::do_allocate(std::uint64_t size_bytes,
                                          StreamId stream,
                                          std::optional<AllocationFailure>& failure) {
  if (size_bytes <= internal::kSlabMaxBytes) {
    const DeviceAddress cached =
        state_->slabs.allocate_cached(size_bytes, stream, internal::t_context);
    if (cached != 0) [[likely]] {
      return cached;
    }
  }
  return allocate_locked(size_bytes, stream, failure);
}

DeviceAddress PagedAllocator::allocate_locked(std::uint64_t size_bytes,
                                              StreamId stream,
                                              std::optional<AllocationFailure>& failure) {
  PagedState& s = *state_;
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  internal::PagedPool* pool = nullptr;
  if (!s.pools.scopes.empty()) [[unlikely]] {
    pool = s.pools.private_pool_for(stream, lock);  // first: it may open the lock
  }
  s.slabs.fold_own();
  if (tells_of_blocks() && size_bytes <= internal::kSlabMaxBytes && pool == nullptr) [[unlikely]] {
    const DeviceAddress kept = allocate_kept(size_bytes, stream);
    if (kept != 0) return kept;
  }
  if (stream != StreamId::kDefault) {
    if (auto known = check_stream(stream); !known) {
      failure = fail(lock, {.reason = FailureReason::kDevice, .status = known.error()});
      return 0;
    }
  }
  prepare();
  if (!s.pending.empty()) process_pending();
  const std::uint64_t rounded = round_up(size_bytes, kMinBlockBytes);
  const Request request{.asked = size_bytes,
                        .rounded = rounded,
                        .stream = stream,
                        .kind = kind_for(rounded),
                        .pool = pool};
  if (size_bytes > internal::kSlabMaxBytes && pool == nullptr) [[likely]] {
    Block* const hole = find_backed(request);
    if (hole != nullptr && !s.is_tight_for(rounded, hole->size)) [[likely]] {
      return hand_out(request, *hole, hole->address);
    }
  }
  return allocate_otherwise(lock, request, failure);
}

// Requests that no hole of the stream's arena serves: slabs, private pools, and what needs pages.
DeviceAddress PagedAllocator::allocate_otherwise(std::unique_lock<Mutex>& lock,
                                                 const Request& request,
                                                 std::optional<AllocationFailure>& failure) {
  const std::uint64_t peak_before = state_->budget.peak_live();
  const std::uint64_t reserved_before = reserved_bytes();
  if (request.asked <= internal::kSlabMaxBytes && request.pool == nullptr) {
    const DeviceAddress address = allocate_small(request.asked, request.stream);
    if (address != 0) return address;
  }
  const Place found = place(lock, request);
  if (found.is_found()) {
    const DeviceAddress address = hand_out(request, *found.hole, found.at);
    if (found.has_loans) state_->active.find(address)->has_loans = true;
    if (reserved_bytes() > reserved_before) settle_budget();
    return address;
  }
  forget_request(peak_before);
  failure = fail(lock,
                 {.reason = found.has_failed ? FailureReason::kDevice : FailureReason::kOutOfMemory,
                  .status = found.status,
                  .asked_bytes = request.asked,
                  .rounded_bytes = request.rounded,
                  .segment_bytes = request.rounded,
                  .stream = request.stream});
  return 0;
}

// From a slab; 0 where there is no page for one: the arenas may still have a hole.
DeviceAddress PagedAllocator::allocate_small(std::uint64_t size_bytes, StreamId stream) {
  PagedState& s = *state_;
  if (!arena_for(stream, internal::ArenaKind::kSlab)) return 0;
  const AllocationContext context = current_context();
  const DeviceAddress address = s.slabs.allocate(size_bytes, stream, context);
  if (address != 0) emit_small(address, size_bytes, stream, context);
  return address;
}

// The block that the thread would have taken from its magazine without the lock and sinks; 0
// where it has none. Before anything else is looked at: a recording must not change what happens.
DeviceAddress PagedAllocator::allocate_kept(std::uint64_t size_bytes, StreamId stream) noexcept {
  const AllocationContext context = current_context();
  const DeviceAddress address = state_->slabs.allocate_kept(size_bytes, stream, context);
  if (address != 0) emit_small(address, size_bytes, stream, context);
  return address;
}

void PagedAllocator::emit_small(DeviceAddress address,
                                std::uint64_t size_bytes,
                                StreamId stream,
                                AllocationContext context) noexcept {
  record_alloc({.address = address,
                .size_bytes = internal::SlabHeap::block_bytes(size_bytes),
                .requested_bytes = size_bytes,
                .stream = stream,
                .is_small = true,
                .context = context});
}

// Everything a hand-out needs from the host, before anything has changed.
void PagedAllocator::prepare() {
  state_->blocks.prepare(2);
  state_->active.prepare();
}

internal::ArenaKind PagedAllocator::kind_for(std::uint64_t rounded) const noexcept {
  if (rounded < state_->budget.apart_from_bytes()) [[likely]] {
    return internal::ArenaKind::kNormal;
  }
  return state_->budget.keeps_apart() || is_worth_large_pages(rounded)
             ? internal::ArenaKind::kLarge
             : internal::ArenaKind::kNormal;
}

bool PagedAllocator::is_worth_large_pages(std::uint64_t rounded) const noexcept {
  const PagedOptions& options = state_->options;
  if (rounded < options.large_from_bytes) return false;
  const std::uint64_t peak = std::max(
      state_->budget.peak_live(), static_cast<std::uint64_t>(stats_.live_bytes.current) + rounded);
  const std::uint64_t in_large = state_->table.bytes_of(internal::PageSize::kLarge) + rounded;
  return peak / kLargePagesOfLive >= options.large_page_bytes && in_large >= peak / kShareOfLarge;
}

// The smallest hole that is large enough; null when none is.
inline PagedAllocator::Block* PagedAllocator::find_backed(const Request& request) {
  const PageArena* const arena = state_->streams.find(request.stream, request.kind);
  return arena == nullptr ? nullptr : arena->free->find(request.rounded);
}

inline PagedAllocator::Place PagedAllocator::at_front(Block& hole) noexcept {
  return {.hole = &hole, .at = hole.address};
}

PagedAllocator::Place PagedAllocator::place(std::unique_lock<Mutex>& lock, const Request& request) {
  PagedState& s = *state_;
  if (request.pool != nullptr) [[unlikely]] {
    const Place found = place_in_pool(lock, *request.pool, request);
    if (found.is_found() || !run_free_callbacks(lock)) return found;
    // A callback may have ended the scope.
    internal::PagedPool* const pool = s.pools.private_pool_for(request.stream, lock);
    prepare();
    process_pending();
    if (pool != nullptr) return place_in_pool(lock, *pool, request);
  }
  if (Block* const hole = find_backed(request)) {
    const Place better = fit_better(request, *hole);
    return better.is_found() ? better : at_front(*hole);
  }
  Place found = stitch(request);
  if (found.is_found()) return found;
  if (Block* const hole = find_in_failure_pools(request)) return at_front(*hole);
  // The ladder: what others can give, then what waiting can.
  if (run_free_callbacks(lock)) {
    prepare();
    process_pending();
    if (Block* const hole = find_backed(request)) return at_front(*hole);
    found = stitch(request);
    if (found.is_found()) return found;
  }
  if (has_capture()) return found;
  ++stats_.num_alloc_retries;
  ++stats_.num_sync_all_streams;
  wait_for_pending();
  s.slabs.flush();
  s.clocks.wait();
  give_back_sleeping();
  release_pools();
  return_segments(lock);
  s.mover.unmap_stale(UINT64_MAX);
  prepare();
  Block* const hole = find_backed(request);
  return hole != nullptr ? at_front(*hole) : stitch(request);
}

PagedAllocator::Place PagedAllocator::place_in_pool(std::unique_lock<Mutex>& lock,
                                                    internal::PagedPool& pool,
                                                    const Request& request) {
  PagedState& s = *state_;
  internal::FreeBins& free = pool.free[request.stream].of(request.rounded);
  if (Block* const block = free.find(request.rounded)) return at_front(*block);
  const std::uint64_t segment =
      segment_bytes(request.rounded, device_.properties().granularity_bytes);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const internal::Arenas::Growth growth =
        pool.source != nullptr || pool.never_splits
            ? internal::Arenas::Growth{.size = segment, .is_alone = true}
            : s.arenas.private_growth(free, request.rounded);
    const bool has_room = s.budget.room_in_limit(0) >= growth.size;
    if (has_room && pool.source != nullptr) {
      PageArena* const arena = grow_from_source(lock, pool, request.stream, free, growth.size);
      if (arena != nullptr) return at_front(*arena->first);
    } else if (has_room) {
      const auto hole = s.arenas.grow_private(request.stream, pool.id, free, growth);
      if (hole) return at_front(**hole);
      if (!internal::is_shortage(hole.error())) {
        return {.status = hole.error(), .has_failed = true};
      }
    }
    if (has_capture() || attempt > 0) break;
    // Cached pages of the other pools make room.
    ++stats_.num_alloc_retries;
    release_cached(0);
    ++pool.use_count;  // for as long as the lock is open
    return_segments(lock);
    --pool.use_count;
    prepare();
  }
  return {};
}

// A free block of a pool that serves the default pool's failures; null when there is none.
PagedAllocator::Block* PagedAllocator::find_in_failure_pools(const Request& request) {
  for (const auto& [id, pool] : state_->pools.private_pools) {
    if (!pool->serves_failures) continue;
    const auto free = pool->free.find(request.stream);
    if (free == pool->free.end()) continue;
    if (Block* const block = free->second.of(request.rounded).find(request.rounded)) return block;
  }
  return nullptr;
}

// Of a pool that never splits.
bool PagedAllocator::takes_whole(const Block& hole) const noexcept {
  if (!hole.arena->is_private()) return false;
  const internal::PagedPool* const pool = state_->pools.find_private_pool(hole.arena->pool);
  return pool != nullptr && pool->never_splits;
}

// The block at a place, out of the free ones.
inline PagedAllocator::Block& PagedAllocator::take(const Request& request,
                                                   Block& hole,
                                                   DeviceAddress at) {
  internal::PageTable& table = state_->table;
  internal::FreeBins& free = *hole.arena->free;
  free.erase(hole);
  if (at > hole.address) [[unlikely]] {  // behind a search: the front stays free
    free.insert(table.cut_front(hole, at - hole.address));
  }
  Block* block = &hole;
  if (hole.size > request.rounded && !takes_whole(hole)) {
    block = &table.cut_front(hole, request.rounded);
    free.insert(hole);
  }
  block->is_allocated = true;
  return *block;
}

inline DeviceAddress PagedAllocator::hand_out(const Request& request,
                                              Block& hole,
                                              DeviceAddress at) {
  Block& block = take(request, hole, at);
  block.requested = request.asked;
  block.context = current_context();
  state_->active.insert(at, &block);
  record_alloc(record_of(block));
  if (state_->tracks_blocks) device_.block_allocated(at, block.size, block.stream);
  return at;
}

void PagedAllocator::hand_out_at(const Request& request, Block& hole, DeviceAddress at) {
  (void)hand_out(request, hole, at);
}

// --- Pages for slabs -----------------------------------------------------------------------------

DeviceAddress PagedAllocator::take_slab_page(StreamId stream) {
  PagedState& s = *state_;
  const Request request{.asked = internal::kSlabPageBytes,
                        .rounded = internal::kSlabPageBytes,
                        .stream = stream,
                        .kind = internal::ArenaKind::kSlab};
  s.blocks.prepare(2);
  s.slab_pages.prepare();
  Block* const hole = find_backed(request);
  const Place found = hole != nullptr ? at_front(*hole) : stitch(request);
  if (!found.is_found()) return 0;
  Block& block = take(request, *found.hole, found.at);
  s.slab_pages.insert(block.address, &block);
  // The page counts as the small pool's while slabs are in it.
  stats_.reserved_bytes.small_pool.move(internal::kSlabPageBytes);
  stats_.reserved_bytes.large_pool.current -= internal::kSlabPageBytes;
  settle_budget();
  return block.address;
}

void PagedAllocator::give_slab_page(DeviceAddress page) noexcept {
  PagedState& s = *state_;
  Block& block = *s.slab_pages.find(page);
  s.slab_pages.erase(page);
  stats_.reserved_bytes.small_pool.current -= internal::kSlabPageBytes;
  stats_.reserved_bytes.large_pool.move(internal::kSlabPageBytes);
  block.is_allocated = false;
  block.freed_at = s.clocks.tick(*block.arena->clock);
  s.table.file_free(block);
}

}  // namespace headroom::memory
