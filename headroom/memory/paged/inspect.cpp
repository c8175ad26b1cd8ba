// What can be seen of a PagedAllocator: snapshots, the account, the bound, invariants.
#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/internal/block_info.h"
#include "headroom/memory/internal/paged_state.h"

namespace headroom::memory {

using internal::Page;
using internal::PageClass;
using internal::PagedState;
using internal::PagePlace;
using internal::PageSlot;
using internal::SlotRange;

namespace {

// The bytes of a free block that are whole pages: those can go back, or elsewhere.
std::uint64_t whole_page_bytes(const internal::Block& block) {
  std::uint64_t bytes = 0;
  if (block.arena->is_private()) return bytes;
  for_each_free_page(
      *block.arena, block, [&](const Page& page) { bytes += page.pages->page_bytes; });
  return bytes;
}

std::uint64_t loose_bytes(const internal::PageStore& store) noexcept {
  std::uint64_t bytes = 0;
  for (const PageClass& pages : store.classes()) {
    bytes += pages.loose.size() * pages.page_bytes;
  }
  return bytes;
}

template <class Function>
void for_each_free_block(const internal::PageStore& store, Function&& function) {
  for (const internal::PageArena& arena : store.arenas()) {
    for (const internal::Block* block = arena.first; block != nullptr; block = block->next) {
      if (block->is_mapped && block->is_free()) function(*block);
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

// The mapped run around a block, as segments() lists it.
void add_run(const internal::Block& block, BlockPlace& place) {
  const internal::Block* head = &block;
  while (head->prev != nullptr && head->prev->is_mapped) head = head->prev;
  place.segment_address = head->address;
  for (; head != nullptr && head->is_mapped; head = head->next) place.segment_bytes += head->size;
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
  for_each_free_block(state_->store, [&](const Block& block) {
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
  account.cached_soft_bytes += loose_bytes(state_->store);
  account.cached_hard_bytes += state_->slabs.page_bytes() - state_->slabs.live_bytes();
  account.largest_cached_bytes = std::max(account.largest_cached_bytes, account.cached_soft_bytes);
  return account;
}

std::vector<AllocatorCore::LiveBlock> PagedAllocator::live_blocks() const {
  std::vector<LiveBlock> blocks;
  blocks.reserve(state_->active.size());
  state_->active.for_each([&](const Block& block) {
    if (!block.is_allocated) return;
    blocks.push_back(
        {.requested_bytes = block.requested, .size_bytes = block.size, .context = block.context});
  });
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
  for (const PageArena& arena : state_->store.arenas()) {
    const bool is_slab = arena.kind == internal::ArenaKind::kSlab;
    const Block* previous = nullptr;
    for (const Block* block = arena.first; block != nullptr; block = block->next) {
      // The pages that slabs are in are segments of their own.
      const bool is_shown = block->is_mapped && !(is_slab && block->is_allocated);
      if (is_shown) {
        if (previous == nullptr) {
          segments.push_back({.address = block->address,
                              .stream = arena.stream(),
                              .pool = arena.pool,
                              .is_small = is_slab,
                              .is_expandable = true});
        }
        segments.back().size_bytes += block->size;
        segments.back().blocks.push_back(block_info(*block));
      }
      previous = is_shown ? block : nullptr;
    }
  }
  std::ranges::sort(segments, {}, &SegmentInfo::address);
  return segments;
}

// --- The bound -----------------------------------------------------------------------------------

PagedBound PagedAllocator::bound() const {
  const std::lock_guard lock(mutex_);
  hold_threads();
  const PagedBound bound = bound_locked();
  release_threads();
  return bound;
}

std::uint64_t PagedAllocator::live_pages_bytes() const {
  const PagedState& s = *state_;
  std::uint64_t free_pages = loose_bytes(s.store);
  for_each_free_block(s.store, [&](const Block& block) { free_pages += whole_page_bytes(block); });
  return reserved_bytes() - free_pages;
}

PagedBound PagedAllocator::bound_locked() const {
  const PagedState& s = *state_;
  PagedBound bound{.reserved_bytes = reserved_bytes(),
                   .live_pages_bytes = live_pages_bytes(),
                   .unsettled_bytes = s.unsettled};
  bound.slab_residue_bytes = s.slabs.page_bytes() - s.slabs.live_bytes();
  bound.live_pages_bytes -= bound.slab_residue_bytes;
  const std::uint64_t allowed = std::max(s.cushion_end(), s.peak_needed);
  bound.cushion_bytes =
      saturating_subtract(allowed, bound.live_pages_bytes + bound.slab_residue_bytes);
  return bound;
}

// --- Invariants ----------------------------------------------------------------------------------

namespace {

std::optional<std::string> check_arena_blocks(const internal::PageArena& arena) {
  DeviceAddress at = arena.base;
  const internal::Block* previous = nullptr;
  for (const internal::Block* block = arena.first; block != nullptr; block = block->next) {
    if (block->prev != previous) return "neighbours do not point at one another";
    if (block->address != at) return "the blocks of an arena leave a gap";
    if (block->size == 0 || block->size % kMinBlockBytes != 0) {
      return "a block's size is no multiple of 512";
    }
    if (block->arena != &arena) return "a block is filed wrongly";
    if (previous != nullptr && previous->is_mapped == block->is_mapped &&
        (!block->is_mapped || (previous->is_free() && block->is_free()))) {
      return "two free neighbours were not merged";
    }
    at += block->size;
    previous = block;
  }
  if (at != arena.base + arena.size) return "the blocks of an arena do not fill it";
  return std::nullopt;
}

// A slot has its page at home exactly where blocks are backed.
std::optional<std::string> check_arena_slots(const internal::PageArena& arena) {
  std::vector<bool> is_backed(arena.slots.size(), true);
  for (const internal::Block* block : arena.unbacked) {
    if (block->is_mapped) return "the list of unbacked blocks holds one that is backed";
    const SlotRange range = slots_within(arena, block->address, block->address + block->size);
    if (arena.address_of(range.first) != block->address ||
        arena.address_of(range.last) != block->address + block->size) {
      return "an unbacked block is not made of whole slots";
    }
    for (std::uint64_t i = range.first; i < std::min<std::uint64_t>(range.last, is_backed.size());
         ++i) {
      is_backed[i] = false;
    }
  }
  for (std::uint64_t i = 0; i < arena.slots.size(); ++i) {
    const PageSlot& slot = arena.slots[i];
    if (is_backed[i] != is_at_home(arena, slot)) {
      return "a slot's page is not at home where its block is backed";
    }
    const auto is_here = [&](const PagePlace& place) {
      return place.arena == &arena && place.slot == slot.first && place.slot <= i &&
             i < place.slot + slot.page->pages->span;
    };
    if (slot.page != nullptr && std::ranges::count_if(slot.page->mapped, is_here) != 1) {
      return "a page does not know of a slot that maps it";
    }
  }
  const auto count_unbacked = [&] {
    std::size_t n = 0;
    for (const internal::Block* b = arena.first; b != nullptr; b = b->next)
      n += b->is_mapped ? 0 : 1;
    return n;
  };
  if (count_unbacked() != arena.unbacked.size()) return "an unbacked block is in no list";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> internal::PageStore::check() const {
  for (const PageArena& arena : arenas_) {
    if (auto problem = check_arena_blocks(arena)) return problem;
    if (auto problem = arena.free->check()) return problem;
    if (arena.is_private()) continue;
    if (auto problem = check_arena_slots(arena)) return problem;
  }
  std::uint64_t stale = 0;
  std::uint64_t out_of_place = 0;
  for (const PageClass& pages : classes_) {
    std::uint64_t count = 0;
    for (const Page& page : pages.all) {
      if (page.handle == device::PageHandle::kNone) continue;
      ++count;
      const bool is_home = page.home.arena != nullptr;
      stale += page.mapped.size() - (is_home ? 1 : 0);
      out_of_place += is_home && is_out_of_place(page) ? 1 : 0;
      if (is_home == (std::ranges::count(pages.loose, &page) > 0)) {
        return "a page is at home and loose, or neither";
      }
    }
    if (count != pages.count) return "pages are miscounted";
  }
  if (stale != stale_) return "stale mappings are miscounted";
  if (out_of_place != large_in_normal_) return "large pages among small blocks are miscounted";
  return std::nullopt;
}

std::optional<std::string> PagedAllocator::check_core_invariants() const {
  const PagedState& s = *state_;
  if (auto problem = s.store.check()) return problem;
  std::uint64_t pages = 0;
  for (const PageClass& c : s.store.classes()) {
    pages += c.count * c.page_bytes;
  }
  if (auto problem = s.slabs.check()) return problem;
  std::uint64_t active = 0;
  std::uint64_t allocated = 0;
  s.slabs.for_each_block([&](const internal::SlabBlock& block) {
    active += block.size_bytes;
    if (!block.is_pending) allocated += block.size_bytes;
  });
  for (const PageArena& arena : s.store.arenas()) {
    if (arena.is_private()) pages += arena.size;
    if (arena.kind == internal::ArenaKind::kSlab) continue;
    for (const Block* block = arena.first; block != nullptr; block = block->next) {
      const BlockState state = block_state(*block);
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
  if (!bound_locked().holds()) return "reserved is above the bound";
  return std::nullopt;
}

}  // namespace headroom::memory
