// The parts of PageTable that are inline: nearly every allocation cuts a hole, and every free files
// one. page_table.h includes it.
#pragma once

#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

inline PagedBlock& PageTable::cut_front(PagedBlock& block, std::uint64_t size_bytes) noexcept {
  PagedBlock& front = blocks_.take_used();
  front.address = block.address;
  front.size = size_bytes;
  front.requested = 0;
  front.stream = block.stream;
  front.arena = block.arena;
  front.context = {};
  front.is_mapped = block.is_mapped;
  front.freed_at = block.freed_at;
  front.prev = block.prev;
  if (front.prev != nullptr) {
    front.prev->next = &front;
  } else {
    block.arena->first = &front;
  }
  front.next = &block;
  block.prev = &front;
  block.address += size_bytes;
  block.size -= size_bytes;
  return front;
}

// The neighbour behind a block becomes part of it.
inline void PageTable::absorb_next(PagedBlock& block) noexcept {
  PagedBlock& next = *block.next;
  block.size += next.size;
  block.freed_at = block.freed_at > next.freed_at ? block.freed_at : next.freed_at;
  block.next = next.next;
  (block.next != nullptr ? block.next->prev : block.arena->last) = &block;
  blocks_.give_back(next);
}

inline void PageTable::file_free(PagedBlock& block) noexcept {
  PageArena& arena = *block.arena;
  FreeBins& free = *arena.free;
  if (!arena.is_listed) [[unlikely]] {
    arena.is_listed = true;
    with_holes_.push_back(&arena);  // there is room: see prepare_arena
  }
  PagedBlock* result = &block;
  if (is_hole(block.next)) {
    free.erase(*block.next);
    absorb_next(block);
  }
  if (is_hole(block.prev)) {
    result = block.prev;
    free.erase(*result);
    absorb_next(*result);
  }
  free.insert(*result);
}

}  // namespace headroom::memory::internal
