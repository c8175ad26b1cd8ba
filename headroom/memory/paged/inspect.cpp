// A PagedAllocator seen from outside: snapshots, the account, the bound, invariants.
#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/block_info.h"
#include "headroom/memory/internal/slab_walk.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using internal::Page;
using internal::PageClass;
using internal::PagedState;

namespace {

// The bytes of a free block that are whole pages: those can go back, or elsewhere.
std::uint64_t whole_page_bytes(const internal::PagedBlock& block) {
  std::uint64_t bytes = 0;
  if (block.arena->is_private()) return bytes;
  for_each_free_page(
      *block.arena, block, [&](const Page& page) { bytes += page.pages->page_bytes; });
  return bytes;
}

std::uint64_t loose_bytes(const internal::PageTable& table) noexcept {
  std::uint64_t bytes = 0;
  for (const PageClass& pages : table.classes()) {
    bytes += pages.loose.size() * pages.page_bytes;
  }
  return bytes;
}

// Of a private pool.
std::uint64_t mapped_bytes(const internal::PageArena& arena) noexcept {
  std::uint64_t bytes = arena.source != nullptr ? arena.size : 0;
  for (const internal::PoolHandle& handle : arena.handles) bytes += handle.size;
  return bytes;
}

template <class Function>
void for_each_hole(const internal::PageTable& table, Function&& function) {
  for (const internal::PageArena& arena : table.arenas()) {
    for (const internal::PagedBlock* block = arena.first; block != nullptr; block = block->next) {
      if (is_hole(block)) function(*block);
    }
  }
}

}  // namespace

std::optional<BlockInfo> PagedAllocator::find_block_locked(DeviceAddress address) const {
  if (state_->slabs.owns(address)) {
    const auto block = state_->slabs.find(address);
    if (!block || block->is_pending) return std::nullopt;
    return BlockInfo{.address = address,
                     .size_bytes = block->size_bytes,
                     .requested_bytes = block->requested_bytes,
                     .state = BlockState::kAllocated,
                     .category = block->context.category,
                     .annotation = block->context.annotation};
  }
  const Block* block = state_->active.find(address);
  if (block == nullptr || !block->is_allocated) return std::nullopt;
  return block_info(*block);
}

namespace {

// Its addresses lead to bytes that are its own.
bool is_seen(const internal::PagedBlock* block) noexcept {
  return block != nullptr && block->is_mapped && block->is_of_user();
}

// The mapped run around a block, as segments() lists it.
void add_run(const internal::PagedBlock& block, BlockPlace& place) {
  const internal::PagedBlock* head = &block;
  while (is_seen(head->prev)) head = head->prev;
  place.segment_address = head->address;
  for (; is_seen(head); head = head->next) place.segment_bytes += head->size;
}

}  // namespace

std::optional<BlockPlace> PagedAllocator::locate_locked(DeviceAddress address) const {
  if (state_->slabs.owns(address)) {
    const DeviceAddress start = state_->slabs.block_around(address);
    const std::optional<BlockInfo> block = find_block_locked(start);
    if (!block) return std::nullopt;
    return BlockPlace{.block = *block,
                      .stream = state_->slabs.find(start)->stream,
                      .segment_address = round_down(start, internal::kSlabPageBytes),
                      .segment_bytes = internal::kSlabPageBytes};
  }
  const Block* found = nullptr;
  state_->active.for_each([&](const Block& block) {
    if (block.is_allocated && address - block.address < block.size) found = &block;
  });
  if (found == nullptr) return std::nullopt;
  BlockPlace place{
      .block = block_info(*found), .stream = found->stream, .pool = found->arena->pool};
  add_run(*found, place);
  return place;
}

// Free pages of the stream can be put together to one block, whatever lies between them.
AllocatorCore::CoreAccount PagedAllocator::core_account(StreamId stream) const {
  CoreAccount account{.is_expandable = true, .page_bytes = state_->options.page_bytes};
  for_each_hole(state_->table, [&](const Block& block) {
    if (!block.arena->pool.is_default()) account.cached_private_bytes += block.size;
    if (block.stream != stream) {
      account.cached_stream_bytes += block.size;
      return;
    }
    const std::uint64_t soft = whole_page_bytes(block);
    account.cached_soft_bytes += soft;
    account.cached_hard_bytes += block.size - soft;
    account.largest_cached_bytes = std::max(account.largest_cached_bytes, block.size - soft);
  });
  // The ends of sleeping blocks, in pages that something else needs.
  for (const auto& [address, sleeper] : state_->sleepers.all) {
    state_->sleep.for_each_backed(*sleeper.block, [&](DeviceAddress begin, DeviceAddress end) {
      account.cached_hard_bytes += end - begin;
    });
  }
  account.cached_soft_bytes += loose_bytes(state_->table);
  account.cached_hard_bytes += state_->slabs.page_bytes() - state_->slabs.live_bytes();
  account.largest_cached_bytes = std::max(account.largest_cached_bytes, account.cached_soft_bytes);
  return account;
}

std::vector<AllocatorCore::LiveBlock> PagedAllocator::live_blocks() const {
  std::vector<LiveBlock> blocks = internal::held_blocks<LiveBlock>(state_->active);
  state_->slabs.for_each_block([&](const internal::SlabBlock& block) {
    if (block.is_pending) return;
    blocks.push_back({.requested_bytes = block.requested_bytes,
                      .size_bytes = block.size_bytes,
                      .context = block.context});
  });
  return blocks;
}

std::vector<SegmentInfo> PagedAllocator::segments_locked() const {
  std::vector<SegmentInfo> segments = state_->slabs.segments();
  for (const PageArena& arena : state_->table.arenas()) {
    const bool is_slab = arena.kind == internal::ArenaKind::kSlab;
    DeviceAddress shown_to = 0;
    const auto show = [&](BlockInfo info) {
      if (shown_to != info.address) {
        segments.push_back({.address = info.address,
                            .stream = arena.stream(),
                            .pool = arena.pool,
                            .is_small = is_slab,
                            .is_expandable = true});
      }
      shown_to = info.address + info.size_bytes;
      segments.back().size_bytes += info.size_bytes;
      segments.back().blocks.push_back(std::move(info));
    };
    for (const Block* block = arena.first; block != nullptr; block = block->next) {
      // The pages that slabs are in are segments of their own.
      if (is_seen(block) && !(is_slab && block->is_allocated)) show(block_info(*block));
      if (block->holder != internal::BlockHolder::kSleeper) continue;
      state_->sleep.for_each_backed(*block, [&](DeviceAddress begin, DeviceAddress end) {
        show({.address = begin, .size_bytes = end - begin});
      });
    }
  }
  std::ranges::sort(segments, {}, &SegmentInfo::address);
  return segments;
}

// --- The bound -----------------------------------------------------------------------------------

PagedBound PagedAllocator::bound() const {
  const std::lock_guard lock(mutex_);
  pause_threads();
  const PagedBound bound = bound_locked();
  resume_threads();
  return bound;
}

std::uint64_t PagedAllocator::live_pages_bytes() const {
  const PagedState& s = *state_;
  std::uint64_t free_pages = loose_bytes(s.table);
  for_each_hole(s.table, [&](const Block& hole) { free_pages += whole_page_bytes(hole); });
  return reserved_bytes() - free_pages;
}

PagedBound PagedAllocator::bound_locked() const {
  const PagedState& s = *state_;
  PagedBound bound{.reserved_bytes = reserved_bytes(),
                   .live_pages_bytes = live_pages_bytes(),
                   .unsettled_bytes = s.budget.unsettled_bytes()};
  bound.slab_residue_bytes = s.slabs.page_bytes() - s.slabs.live_bytes();
  bound.live_pages_bytes -= bound.slab_residue_bytes;
  bound.cushion_bytes = saturating_subtract(s.budget.allowed_bytes(),
                                            bound.live_pages_bytes + bound.slab_residue_bytes);
  return bound;
}

// --- Invariants ----------------------------------------------------------------------------------

std::optional<std::string> PagedAllocator::check_core_invariants() const {
  const PagedState& s = *state_;
  if (auto problem = s.table.check()) return problem;
  std::uint64_t pages = 0;
  for (const PageClass& c : s.table.classes()) {
    pages += c.count * c.page_bytes;
  }
  if (auto problem = s.sleep.check()) return problem;
  if (auto problem = s.slabs.check()) return problem;
  std::uint64_t active = 0;
  std::uint64_t allocated = 0;
  std::uint64_t asleep = 0;
  s.slabs.for_each_block([&](const internal::SlabBlock& block) {
    active += block.size_bytes;
    if (!block.is_pending) allocated += block.size_bytes;
  });
  for (const PageArena& arena : s.table.arenas()) {
    if (arena.is_private()) pages += mapped_bytes(arena);
    if (arena.kind == internal::ArenaKind::kSlab) continue;
    for (const Block* block = arena.first; block != nullptr; block = block->next) {
      const BlockState state = block_state(*block);
      if (!block->is_of_user()) continue;
      if (state == BlockState::kAllocated) allocated += block->size;
      if (state == BlockState::kAllocated || state == BlockState::kPendingFree)
        active += block->size;
    }
  }
  if (pages != reserved_bytes()) return "reserved is not the sum of the pages";
  if (active != static_cast<std::uint64_t>(stats_.active_bytes.all.current)) {
    return "active is not the sum of its blocks";
  }
  if (allocated != static_cast<std::uint64_t>(stats_.allocated_bytes.all.current)) {
    return "allocated is not the sum of its blocks";
  }
  for (const auto& [address, sleeper] : s.sleepers.all) asleep += sleeper.block_bytes();
  if (asleep != static_cast<std::uint64_t>(stats_.sleeping_bytes.current)) {
    return "sleeping is not the sum of its blocks";
  }
  if (!bound_locked().is_kept()) return "reserved is above the bound";
  return std::nullopt;
}

}  // namespace headroom::memory
