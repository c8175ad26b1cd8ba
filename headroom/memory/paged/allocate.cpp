// The malloc path of PagedAllocator: best fit among the holes that are backed; the rest is rare.
#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
using internal::PagedState;

namespace {

// A page of the large class should be a small part of what is live: else its rounding shows.
constexpr std::uint64_t kLargePagesOfLive = 64;

// What a private pool takes from the device: as PyTorch does, several blocks to a handle.
std::uint64_t private_handle_bytes(std::uint64_t rounded, std::uint64_t granularity) {
  if (rounded <= kSmallBytes) return round_up(kSmallSegmentBytes, granularity);
  if (rounded < kOwnSegmentBytes) return round_up(kLargeSegmentBytes, granularity);
  return round_up(rounded, std::max(kSegmentRoundingBytes, granularity));
}

}  // namespace

DeviceAddress PagedAllocator::do_allocate(std::uint64_t size_bytes,
                                          StreamId stream,
                                          std::optional<AllocationFailure>& failure) {
  std::unique_lock lock(mutex_);
  if (stream != StreamId::kDefault) {
    if (auto known = check_stream(stream); !known) {
      failure = fail(lock, {.reason = FailureReason::kDevice, .status = known.error()});
      return 0;
    }
  }
  prepare();
  if (!state_->pending.empty()) process_pending();
  const Request request{
      .asked = size_bytes, .rounded = round_up(size_bytes, kMinBlockBytes), .stream = stream};
  const std::uint64_t reserved_before = reserved_bytes();
  const Place found = place(lock, request);
  if (found.is_found()) [[likely]] {
    const DeviceAddress address = hand_out(request, found).address;
    if (reserved_bytes() > reserved_before) [[unlikely]] {
      note_growth();
    }
    return address;
  }
  failure = fail(
      lock,
      {.reason = found.has_failed ? FailureReason::kDevice : FailureReason::kOutOfMemory,
       .status = found.status,
       .asked_bytes = size_bytes,
       .rounded_bytes = request.rounded,
       .segment_bytes = request.rounded,
       .stream = stream});
  return 0;
}

DeviceResult<void> PagedAllocator::check_stream(StreamId stream) {
  if (state_->known_streams.contains(stream)) return {};
  if (const auto known = device_.is_capturing(stream); !known) return Unexpected(known.error());
  state_->known_streams.insert(stream);
  return {};
}

// Everything a hand-out needs from the host, before anything has changed.
void PagedAllocator::prepare() {
  state_->blocks.prepare(2);
  state_->active.prepare();
}

bool PagedAllocator::is_large(std::uint64_t rounded) const noexcept {
  const PagedOptions& options = state_->options;
  if (rounded < options.large_from_bytes) [[likely]] {
    return false;
  }
  const std::uint64_t live = static_cast<std::uint64_t>(stats_.live_bytes.current) + rounded;
  return std::max(state_->peak_live, live) >= kLargePagesOfLive * options.large_page_bytes;
}

// The smallest hole that is large enough, its left end.
inline PagedAllocator::Place PagedAllocator::find_backed(const Request& request) {
  const internal::StreamArenas& arenas = state_->arenas_of(request.stream);
  const PageArena* const arena = is_large(request.rounded) ? arenas.large : arenas.normal;
  if (arena == nullptr) return {};
  const auto at = arena->free->lower_bound(request.rounded);
  if (at == arena->free->end()) return {};
  Block& block = arena->free->at(at);
  return {.block = &block, .at = block.address};
}

PagedAllocator::Place PagedAllocator::place(std::unique_lock<Mutex>& lock,
                                            const Request& request) {
  PagedState& s = *state_;
  if (!s.scopes.empty()) [[unlikely]] {
    if (internal::PagedPool* pool = s.private_pool_for(request.stream)) {
      return place_in_pool(*pool, request);
    }
  }
  Place found = find_backed(request);
  if (found.is_found()) [[likely]] {
    return found;
  }
  found = stitch(request);
  if (found.is_found()) return found;
  // The ladder: what others can give, then what waiting can.
  if (run_free_callbacks(lock)) {
    prepare();
    process_pending();
    found = find_backed(request);
    if (!found.is_found()) found = stitch(request);
    if (found.is_found()) return found;
  }
  if (s.captures > 0) return found;
  ++stats_.num_alloc_retries;
  ++stats_.num_sync_all_streams;
  wait_for_pending();
  s.store.wait_for_streams();
  release_pools();
  s.store.retire(UINT64_MAX);
  prepare();
  const Place again = find_backed(request);
  return again.is_found() ? again : stitch(request);
}

PagedAllocator::Place PagedAllocator::place_in_pool(internal::PagedPool& pool,
                                                    const Request& request) {
  PagedState& s = *state_;
  internal::FreeIndex& free = pool.free[request.stream];
  if (const auto at = free.lower_bound(request.rounded); at != free.end()) {
    return {.block = &free.at(at), .at = free.at(at).address};
  }
  const std::uint64_t size =
      private_handle_bytes(request.rounded, device_.properties().granularity_bytes);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (s.room_in_limit() >= size) {
      const auto arena = s.store.add_private_arena(request.stream, pool.id, free, size);
      if (arena) return {.block = (*arena)->first, .at = (*arena)->base};
      if (!internal::is_shortage(arena.error())) {
        return {.status = arena.error(), .has_failed = true};
      }
    }
    if (s.captures > 0 || attempt > 0) break;
    // Cached pages of the other pools make room.
    ++stats_.num_alloc_retries;
    release_cached(0);
    s.blocks.prepare(2);
  }
  return {};
}

PagedAllocator::Block& PagedAllocator::hand_out(const Request& request, const Place& place) {
  PagedState& s = *state_;
  internal::FreeIndex& free = *place.block->index;
  free.prepare(2);
  Block* block = place.block;
  const auto at = free.find(*block);
  if (place.at > block->address) {  // only behind a search: the front stays free
    Block& front = s.store.cut_front(*block, place.at - block->address);
    free.replace(at, front);
    if (block->size > request.rounded) {
      Block& middle = s.store.cut_front(*block, request.rounded);
      free.insert(*block);
      block = &middle;
    }
  } else if (block->size > request.rounded) {
    Block& front = s.store.cut_front(*block, request.rounded);
    free.replace(at, *block);
    block = &front;
  } else {
    free.erase(at);
  }
  block->is_allocated = true;
  block->requested = request.asked;
  block->context = current_context();
  s.active.insert(block->address, block);
  note_alloc(note_of(*block));
  if (device_.tracks_blocks()) device_.block_allocated(block->address, block->size, block->stream);
  return *block;
}

}  // namespace headroom::memory
