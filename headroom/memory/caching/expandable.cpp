// Expandable segments of CachingAllocator: one reservation per stream and pool, pages mapped at its
// growing end and in holes that a flush left.
//
//   | in use | free | in use | free tail |       unmapped        |
//                            ^ a request larger than the tail maps pages behind it and merges
#include <algorithm>
#include <cmath>
#include <iterator>

#include "headroom/base/checked.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"

namespace headroom::memory {

using device::DeviceResult;
using device::PageHandle;
using device::StatusCode;
using internal::BlockPool;
using internal::UnmappedSet;

namespace {

// A node made ahead, so that putting a block into the set later cannot fail.
UnmappedSet::node_type make_node() {
  UnmappedSet maker;
  maker.emplace();
  return maker.extract(maker.begin());
}

void insert_unmapped(UnmappedSet& set, UnmappedSet::node_type node, internal::Block& block) {
  node.value() = {.stream = block.stream, .address = block.address, .block = &block};
  set.insert(std::move(node));
}

}  // namespace

// The address space of a new segment: 9/8 of the device, unless configured lower.
static std::uint64_t reservation_bytes(const AllocatorConfig& config,
                                       std::uint64_t total,
                                       std::uint64_t page) {
  const std::uint64_t full = total + total / 8;
  std::uint64_t wanted = full;
  if (config.expandable_reserve_bytes) wanted = *config.expandable_reserve_bytes;
  if (config.expandable_reserve_fraction) {
    wanted = static_cast<std::uint64_t>(*config.expandable_reserve_fraction *
                                        static_cast<double>(total));
  }
  return round_up(std::clamp<std::uint64_t>(wanted, page, full), page);
}

CachingAllocator::Grown CachingAllocator::grow_expandable(const Request& request) {
  prepare();  // a flush before us may have used up what the request had
  Grown found = find_room(request);
  if (found.outcome != Growth::kDone) return found;
  Block* block = found.block;
  if (!block->is_mapped) {
    if (auto mapped = map_block(*block, std::min(block->size, request.rounded)); !mapped) {
      return {.outcome = Growth::kDeviceFailed, .status = mapped.error()};
    }
  }
  while (block->size < request.rounded) {
    Block* next = block->next;
    const std::uint64_t missing = std::min(request.rounded - block->size, next->size);
    if (auto mapped = map_block(*next, missing); !mapped) {
      return {.outcome = Growth::kDeviceFailed, .status = mapped.error()};
    }
    block = next;  // it has absorbed the block before it
  }
  block->index->erase(*block);
  return {.outcome = Growth::kDone, .block = block};
}

// The first run of free and unmapped blocks that is long enough, lowest address first; or a new
// segment, which is one unmapped block.
CachingAllocator::Grown CachingAllocator::find_room(const Request& request) {
  BlockPool& pool = *request.pool;
  const auto has_room = [&](const Block* block) {
    std::uint64_t bytes = 0;
    for (; bytes < request.rounded && block != nullptr && block->is_free(); block = block->next) {
      bytes += block->size;
    }
    return bytes >= request.rounded;
  };
  for (auto it = pool.unmapped.lower_bound({.stream = request.stream});
       it != pool.unmapped.end() && it->stream == request.stream;
       ++it) {
    Block* block = it->block;
    if (block->prev != nullptr && block->prev->is_free()) block = block->prev;
    if (has_room(block)) return {.outcome = Growth::kDone, .block = block};
  }

  internal::CachingState& s = *state_;
  const std::uint64_t page = pool.is_small ? kSmallSegmentBytes : s.config.large_segment_bytes;
  const std::uint64_t size = reservation_bytes(s.config, device_.properties().total_bytes, page);
  if (size < request.rounded) return {.outcome = Growth::kNoRoom};
  // Host memory first, so that a failure changes nothing.
  auto segment = std::make_unique<internal::ExpandableSegment>();
  segment->pages.resize(size / page, PageHandle::kNone);
  s.expandable_segments.reserve(s.expandable_segments.size() + 1);
  s.blocks.prepare(1);
  UnmappedSet::node_type node = make_node();
  const auto address = device_.reserve_addresses(size);
  if (!address) return {.outcome = Growth::kDeviceFailed, .status = address.error()};

  segment->address = *address;
  segment->page_bytes = page;
  segment->stream = request.stream;
  Block& block = s.blocks.take();
  block.address = *address;
  block.size = size;
  block.stream = request.stream;
  block.pool = &pool;
  block.index = request.index;
  block.expandable = segment.get();
  block.tie = s.next_tie();
  block.is_mapped = false;
  insert_unmapped(pool.unmapped, std::move(node), block);
  s.expandable_segments.push_back(std::move(segment));
  return {.outcome = Growth::kDone, .block = &block};
}

// Pages [first, last) of the segment, created one by one as PyTorch does, then mapped at once.
DeviceResult<void> CachingAllocator::map_pages(internal::ExpandableSegment& segment,
                                               std::size_t first,
                                               std::size_t last) {
  std::vector<PageHandle> pages;
  pages.reserve(last - first);
  state_->stray_pages.reserve(state_->stray_pages.size() + (last - first));
  const auto roll_back = [&] {
    for (const PageHandle page : pages) {
      if (!device_.release_pages(page)) state_->stray_pages.push_back(page);
    }
  };
  for (std::size_t i = first; i < last; ++i) {
    const auto page = device_.create_pages(segment.page_bytes);
    if (!page) {
      roll_back();
      return Unexpected(page.error());
    }
    pages.push_back(*page);
  }
  const DeviceAddress at = segment.address + first * segment.page_bytes;
  if (auto mapped = device_.map_pages(at, pages); !mapped) {
    roll_back();
    return mapped;
  }
  std::ranges::copy(pages, segment.pages.begin() + static_cast<std::ptrdiff_t>(first));
  return {};
}

// Gives an unmapped block memory for at least `size_bytes` at its front, rounded up to pages, and
// merges it with its free neighbours into the free set.
DeviceResult<void> CachingAllocator::map_block(Block& block, std::uint64_t size_bytes) {
  internal::CachingState& s = *state_;
  internal::ExpandableSegment& segment = *block.expandable;
  BlockPool& pool = *block.pool;
  s.blocks.prepare(2);
  block.index->prepare(1);
  const std::uint64_t first = (block.address - segment.address) / segment.page_bytes;
  const std::uint64_t mapped_bytes = round_up(size_bytes, segment.page_bytes);
  if (auto mapped = map_pages(segment, first, first + mapped_bytes / segment.page_bytes); !mapped) {
    return mapped;
  }

  UnmappedSet::node_type node =
      pool.unmapped.extract({.stream = block.stream, .address = block.address});
  block.is_mapped = true;
  if (mapped_bytes < block.size) {
    Block& rest = internal::take_beside(
        s.blocks, block, block.address + mapped_bytes, block.size - mapped_bytes);
    rest.is_mapped = false;
    rest.prev = &block;
    rest.next = block.next;
    if (rest.next != nullptr) rest.next->prev = &rest;
    block.next = &rest;
    block.size = mapped_bytes;
    insert_unmapped(pool.unmapped, std::move(node), rest);
  }
  const DeviceAddress mapped_at = block.address;
  merge_neighbours(block);
  insert_free(block);
  record_segment(Action::kSegmentMap,
                 {.address = mapped_at,
                  .size_bytes = mapped_bytes,
                  .stream = block.stream,
                  .pool = pool.id(),
                  .is_small = pool.is_small});
  return {};
}

// Takes the whole pages inside a free block away from it; what sticks out at either end stays
// mapped and free. When the device refuses, or cannot say that its work is over, nothing changes.
void CachingAllocator::unmap_block(Block& block) {
  internal::CachingState& s = *state_;
  internal::ExpandableSegment& segment = *block.expandable;
  BlockPool& pool = *block.pool;
  const std::uint64_t offset = block.address - segment.address;
  const std::uint64_t first = (offset + segment.page_bytes - 1) / segment.page_bytes;
  const std::uint64_t last = (offset + block.size) / segment.page_bytes;
  if (first >= last) return;

  s.blocks.prepare(2);
  block.index->prepare(2);
  s.stray_pages.reserve(s.stray_pages.size() + (last - first));
  UnmappedSet::node_type node = make_node();
  if (!wait_for_stream(block.stream)) return;
  const DeviceAddress start = segment.address + first * segment.page_bytes;
  const std::uint64_t size = (last - first) * segment.page_bytes;
  if (auto unmapped = device_.unmap_pages(start, size); !unmapped && !is_gone(unmapped.error())) {
    return;
  }
  for (std::size_t i = first; i < last; ++i) {
    const auto released = device_.release_pages(segment.pages[i]);
    if (!released && !is_gone(released.error())) s.stray_pages.push_back(segment.pages[i]);
    segment.pages[i] = PageHandle::kNone;
  }

  block.index->erase(block);
  const auto keep = [&](DeviceAddress address, std::uint64_t bytes, Block* prev, Block* next) {
    Block& rest = internal::take_beside(s.blocks, block, address, bytes);
    rest.prev = prev;
    rest.next = next;
    if (prev != nullptr) prev->next = &rest;
    if (next != nullptr) next->prev = &rest;
    insert_free(rest);
  };
  const std::uint64_t before = start - block.address;
  const std::uint64_t after = block.size - before - size;
  if (before > 0) keep(block.address, before, block.prev, &block);
  if (after > 0) keep(start + size, after, &block, block.next);
  block.address = start;
  block.size = size;
  block.is_mapped = false;
  merge_neighbours(block);
  insert_unmapped(pool.unmapped, std::move(node), block);
  record_segment(Action::kSegmentUnmap,
                 {.address = start,
                  .size_bytes = size,
                  .stream = block.stream,
                  .pool = pool.id(),
                  .is_small = pool.is_small});
}

// Gives the addresses of a segment back that has no page left; `block` covers all of it.
void CachingAllocator::release_expandable(Block& block) {
  internal::CachingState& s = *state_;
  internal::ExpandableSegment* segment = block.expandable;
  s.stray_reservations.reserve(s.stray_reservations.size() + 1);
  const auto released = device_.release_addresses(segment->address);
  if (!released && !is_gone(released.error())) s.stray_reservations.push_back(segment->address);
  block.pool->unmapped.erase({.stream = block.stream, .address = block.address});
  s.blocks.give_back(block);
  std::erase_if(s.expandable_segments, [&](const auto& entry) { return entry.get() == segment; });
}

// Segments whose first pages the device did not have. PyTorch keeps their addresses for good; a
// flush does too, so that the request behind it finds them.
void CachingAllocator::release_empty_segments() {
  if (acts_as_capturing()) return;
  std::vector<Block*> empty;
  const auto collect = [&](const BlockPool& pool) {
    for (const internal::UnmappedKey& key : pool.unmapped) {
      if (!key.block->is_split()) empty.push_back(key.block);
    }
  };
  collect(state_->small);
  collect(state_->large);
  for (const auto& [id, pool] : state_->private_pools) {
    collect(pool->small);
    collect(pool->large);
  }
  for (Block* block : empty) release_expandable(*block);
}

}  // namespace headroom::memory
