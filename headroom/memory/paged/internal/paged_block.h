// PagedBlock: a part of an arena of PagedAllocator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/block_store.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct PageArena;

// Who holds a block that is allocated.
enum class BlockHolder : std::uint8_t {
  kUser,
  kLoan,     // its bytes are used through another place: see PageLoan
  kForeign,  // at that other place: its addresses lead to bytes which do not belong there
  kSleeper,  // it sleeps: its addresses are the user's, and may have no memory
  kGap,      // addresses beside a sleeping block, in a page that was given back
};

// Finding, cutting and joining blocks touches the first cache line; handing one out and taking it
// back touches the second as well.
struct alignas(64) PagedBlock {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  // Neighbours in the same arena.
  PagedBlock* prev = nullptr;
  PagedBlock* next = nullptr;
  // Of a free block: the next in the bin of its size, and the pointer that points to this one.
  PagedBlock* next_free = nullptr;
  PagedBlock** free_link = nullptr;
  // Streams besides its own that use the block, and how many events were recorded for them when it
  // was freed.
  StreamUses stream_uses{};
  std::uint32_t event_count = 0;
  bool is_allocated = false;
  bool is_mapped = true;  // backed: every slot that it touches is the home of a page, or on loan
  BlockHolder holder = BlockHolder::kUser;
  bool has_loans = false;  // it begins or ends in a part of a page that is at home elsewhere

  std::uint64_t requested = 0;
  StreamId stream = StreamId::kDefault;
  PageArena* arena = nullptr;  // null: it stands for a slab block that other streams use
  AllocationContext context{};
  std::uint64_t freed_at = 0;  // the clock of frees when it, or the last part of it, became free

  // Nobody holds it and no stream may still be using it.
  [[nodiscard]] bool is_free() const noexcept {
    return !is_allocated && event_count == 0 && stream_uses.empty();
  }
  [[nodiscard]] bool is_of_user() const noexcept { return holder == BlockHolder::kUser; }
  void start_over() noexcept {
    requested = 0;
    prev = nullptr;
    next = nullptr;
    is_mapped = true;
    context = {};
  }
};
static_assert(offsetof(PagedBlock, requested) == 64 && sizeof(PagedBlock) == 128,
              "the fields that are touched most fill one cache line");

}  // namespace headroom::memory::internal
