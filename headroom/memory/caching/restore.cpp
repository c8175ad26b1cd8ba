// Restoring a CachingAllocator to the middle of a history.
#include <algorithm>
#include <memory>
#include <utility>

#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::PageHandle;
using device::StatusCode;
using internal::BlockPool;

namespace {

Unexpected<DeviceStatus> refuse(const char* detail, DeviceAddress found = 0) {
  return Unexpected(DeviceStatus{
      .code = StatusCode::kInvalidArgument, .call = "restore", .detail = detail, .found = found});
}

DeviceResult<void> check_tiling(const SegmentInfo& segment) {
  if (segment.blocks.empty()) return refuse("the segment has no blocks", segment.address);
  if (segment.address % kMinBlockBytes != 0) {
    return refuse("the segment is not aligned to 512", segment.address);
  }
  DeviceAddress at = segment.address;
  bool was_free = false;
  for (const BlockInfo& block : segment.blocks) {
    const bool is_free = block.state == BlockState::kInactive;
    if (block.address != at || block.size_bytes == 0 || block.size_bytes % kMinBlockBytes != 0) {
      return refuse("the blocks do not tile the segment", segment.address);
    }
    if (is_free && was_free) return refuse("two free blocks are neighbours", segment.address);
    if (block.state == BlockState::kUnmapped) return refuse("a block is unmapped", segment.address);
    if (!is_free && block.requested_bytes > block.size_bytes) {
      return refuse("a block is smaller than what was asked for", segment.address);
    }
    was_free = is_free;
    at += block.size_bytes;
  }
  if (at != segment.address + segment.size_bytes) {
    return refuse("the blocks do not fill the segment", segment.address);
  }
  return {};
}

std::vector<const SegmentInfo*> by_address(std::span<const SegmentInfo> segments) {
  std::vector<const SegmentInfo*> sorted;
  sorted.reserve(segments.size());
  for (const SegmentInfo& segment : segments) sorted.push_back(&segment);
  std::ranges::sort(sorted, {}, &SegmentInfo::address);
  return sorted;
}

DeviceResult<void> check_apart(std::span<const SegmentInfo> segments) {
  const auto sorted = by_address(segments);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const SegmentInfo& before = *sorted[i - 1];
    const DeviceAddress end = before.address + before.size_bytes;
    if (end > sorted[i]->address) return refuse("two segments overlap", sorted[i]->address);
    if (end == sorted[i]->address && before.is_expandable && sorted[i]->is_expandable) {
      return refuse("two mapped runs touch: give them as one", end);
    }
  }
  return {};
}

bool lies_in(const SegmentInfo& segment, const ReservationInfo& reservation) {
  return segment.is_expandable && segment.address >= reservation.address &&
         segment.address - reservation.address < reservation.size_bytes;
}

// The pages that are mapped are exactly those of the segments.
DeviceResult<void> check_reservation(const ReservationInfo& reservation,
                                     std::span<const SegmentInfo> segments) {
  const std::size_t count = reservation.pages.size();
  if (count == 0 || reservation.size_bytes % count != 0) {
    return refuse("the pages of a reservation do not fill it", reservation.address);
  }
  const std::uint64_t page = reservation.size_bytes / count;
  std::vector<bool> is_mapped(count, false);
  for (const SegmentInfo& segment : segments) {
    if (!lies_in(segment, reservation)) continue;
    const std::uint64_t offset = segment.address - reservation.address;
    if (offset % page != 0 || segment.size_bytes % page != 0 ||
        segment.size_bytes > reservation.size_bytes - offset) {
      return refuse("a mapped run does not consist of pages", segment.address);
    }
    if (segment.stream != reservation.stream || segment.pool != reservation.pool ||
        segment.is_small != reservation.is_small) {
      return refuse("a mapped run is of another kind than its reservation", segment.address);
    }
    const std::size_t first = offset / page;
    for (std::size_t i = first; i < first + segment.size_bytes / page; ++i) is_mapped[i] = true;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (is_mapped[i] != (reservation.pages[i] != PageHandle::kNone)) {
      return refuse("the pages of a reservation are not those of its segments",
                    reservation.address + i * page);
    }
  }
  return {};
}

}  // namespace

DeviceResult<void> CachingAllocator::check_restore(
    std::span<const SegmentInfo> segments, std::span<const ReservationInfo> reservations) const {
  const internal::CachingState& s = *state_;
  if (!s.active.empty() || s.small.has_free() || s.large.has_free() ||
      !s.expandable_segments.empty() || !s.private_pools.empty()) {
    return refuse("the allocator is in use already");
  }
  for (const SegmentInfo& segment : segments) {
    if (auto tiled = check_tiling(segment); !tiled) return tiled;
    if (!device_.owns_range(segment.address, segment.size_bytes)) {
      return refuse("the device does not hold the segment", segment.address);
    }
    const auto holds = [&](const ReservationInfo& r) { return lies_in(segment, r); };
    if (segment.is_expandable && std::ranges::count_if(reservations, holds) != 1) {
      return refuse("an expandable segment lies in no reservation, or in two", segment.address);
    }
  }
  if (auto apart = check_apart(segments); !apart) return apart;
  for (const ReservationInfo& reservation : reservations) {
    if (auto fits = check_reservation(reservation, segments); !fits) return fits;
  }
  return {};
}

DeviceResult<void> CachingAllocator::restore(std::span<const SegmentInfo> segments,
                                             std::span<const ReservationInfo> reservations) {
  const std::lock_guard lock(mutex_);
  if (auto sound = check_restore(segments, reservations); !sound) return sound;
  for (const SegmentInfo& segment : segments) {
    if (!segment.is_expandable) restore_segment(segment);
  }
  for (const ReservationInfo& reservation : reservations) {
    restore_reservation(reservation, segments);
  }
  return {};
}

BlockPool& CachingAllocator::pool_to_restore(PoolId id, bool is_small) {
  internal::CachingState& s = *state_;
  if (id.is_default()) return is_small ? s.small : s.large;
  std::unique_ptr<internal::PrivatePool>& pool = s.private_pools[id];
  if (pool == nullptr) pool = std::make_unique<internal::PrivatePool>(id);
  return is_small ? pool->small : pool->large;
}

// A block of the same segment as `like`, behind `prev`; in the set it belongs to.
CachingAllocator::Block& CachingAllocator::restore_block(const BlockInfo& info,
                                                         const Block& like,
                                                         Block* prev) {
  internal::CachingState& s = *state_;
  prepare();
  like.index->prepare(1);
  Block& block = internal::take_beside(s.blocks, like, info.address, info.size_bytes);
  block.prev = prev;
  if (prev != nullptr) prev->next = &block;
  if (info.state == BlockState::kUnmapped) {
    block.is_mapped = false;
    block.pool->unmapped.insert(
        {.stream = block.stream, .address = block.address, .block = &block});
  } else if (info.state == BlockState::kInactive) {
    insert_free(block);
  } else {
    block.is_allocated = true;
    block.requested = info.requested_bytes;
    block.context = {.category = info.category, .annotation = info.annotation};
    s.active.insert(block.address, &block);
    record_alloc(record_of(block));
    if (block.size >= s.config.max_split_bytes) stats_.oversize_allocations.increase(1);
  }
  return block;
}

void CachingAllocator::restore_segment(const SegmentInfo& segment) {
  internal::CachingState& s = *state_;
  BlockPool& pool = pool_to_restore(segment.pool, segment.is_small);
  Block like{};
  like.stream = segment.stream;
  like.pool = &pool;
  like.index = &pool.index_of(segment.stream);
  like.tie = s.next_tie();
  trust_stream(segment.stream);
  record_segment(Action::kSegmentAlloc,
                 {.address = segment.address,
                  .size_bytes = segment.size_bytes,
                  .stream = segment.stream,
                  .pool = segment.pool,
                  .is_small = segment.is_small});
  if (segment.size_bytes >= s.config.max_split_bytes) stats_.oversize_segments.increase(1);
  Block* prev = nullptr;
  for (const BlockInfo& info : segment.blocks) {
    prev = &restore_block(info, like, prev);
    if (info.state != BlockState::kInactive || segment.blocks.size() == 1) continue;
    stats_.inactive_split.increase(pool.is_small, 1);
    stats_.inactive_split_bytes.increase(pool.is_small, info.size_bytes);
  }
}

void CachingAllocator::restore_reservation(const ReservationInfo& reservation,
                                           std::span<const SegmentInfo> segments) {
  internal::CachingState& s = *state_;
  BlockPool& pool = pool_to_restore(reservation.pool, reservation.is_small);
  auto expandable = std::make_unique<internal::ExpandableSegment>();
  expandable->address = reservation.address;
  expandable->page_bytes = reservation.size_bytes / reservation.pages.size();
  expandable->stream = reservation.stream;
  expandable->pages = reservation.pages;
  Block like{};
  like.stream = reservation.stream;
  like.pool = &pool;
  like.index = &pool.index_of(reservation.stream);
  like.expandable = expandable.get();
  like.tie = s.next_tie();
  trust_stream(reservation.stream);
  s.expandable_segments.push_back(std::move(expandable));

  Block* prev = nullptr;
  DeviceAddress at = reservation.address;
  const auto leave_unmapped = [&](DeviceAddress until) {
    if (until == at) return;
    const BlockInfo gap{.address = at, .size_bytes = until - at, .state = BlockState::kUnmapped};
    prev = &restore_block(gap, like, prev);
  };
  for (const SegmentInfo* segment : by_address(segments)) {
    if (!lies_in(*segment, reservation)) continue;
    leave_unmapped(segment->address);
    record_segment(Action::kSegmentMap,
                   {.address = segment->address,
                    .size_bytes = segment->size_bytes,
                    .stream = segment->stream,
                    .pool = segment->pool,
                    .is_small = segment->is_small});
    for (const BlockInfo& info : segment->blocks) prev = &restore_block(info, like, prev);
    at = segment->address + segment->size_bytes;
  }
  leave_unmapped(reservation.address + reservation.size_bytes);
}

}  // namespace headroom::memory
