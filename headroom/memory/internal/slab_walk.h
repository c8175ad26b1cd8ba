// Goes through the pages and blocks of a SlabHeap. For reports and checks, with the lock.
#pragma once

#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {

template <class Function>
void SlabHeap::for_each_page(Function&& function) const {
  const std::uint64_t chunks = (region_bytes_.load() + kChunkBytes - 1) / kChunkBytes;
  for (std::uint64_t i = 0; i < chunks; ++i) {
    const Chunk* const chunk = chunks_[i].load();
    if (chunk == nullptr) continue;
    for (const auto& entry : chunk->pages) {
      const SlabPage* const page = entry.load();
      if (page != nullptr && page->owner != nullptr) function(*page);
    }
  }
}

template <class Function>
void SlabHeap::for_each_block(Function&& function) const {
  for_each_page([&](const SlabPage& page) {
    if (page.is_empty()) return;
    for (std::size_t i = 0; i < SlabPage::kSlots; ++i) {
      const SlotWord word(page.word_at(i));
      if (word.state() != SlotState::kHeld && word.state() != SlotState::kPending) continue;
      function(describe(page.address + i * kMinBlockBytes, page, word));
    }
  });
}

}  // namespace headroom::memory::internal
