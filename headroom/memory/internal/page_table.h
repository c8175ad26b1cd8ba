// Where a paged allocator's physical pages are: pages, the slots of addresses that map them, and
// the arenas made of slots.
//
//   slots     | p3 | p7 | -- | p1 | p3 | ...      one page of physical memory may be mapped at
//   blocks    | held |  free  | unbacked | ...    several slots, but at one of them it is at home
//
// Slots are as long as the smallest page; larger pages span several, and lie at multiples of two. A
// page is at home where its bytes count: in slots that a held block or a free, backed block covers.
// Other slots that still map it are stale: reading through them shows somebody else's bytes. When
// the page is free, such a slot can have it back without a call of the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/internal/block.h"
#include "headroom/memory/internal/free_bins.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct PageArena;
struct PageClass;

// Where a page is mapped: so many slots from `slot` on, as the page spans.
struct PagePlace {
  PageArena* arena = nullptr;
  std::uint64_t slot = 0;

  friend bool operator==(const PagePlace&, const PagePlace&) = default;
};

// One physical handle. It is mapped whole or not at all.
struct Page {
  device::PageHandle handle = device::PageHandle::kNone;
  PageClass* pages = nullptr;
  PagePlace home{};                 // arena null: at home nowhere, and so free
  std::vector<PagePlace> mapped{};  // every place that maps it, its home included
  // As of the search `mark`: the free block around its home.
  Block* cover = nullptr;
  std::uint64_t mark = 0;
};

struct PageSlot {
  Page* page = nullptr;     // what is mapped here
  std::uint64_t first = 0;  // the slot where that mapping begins
  // The clock of the last free here before the page went elsewhere: once the stream has passed
  // it, nobody uses the stale mapping.
  std::uint64_t idle_since = 0;
  std::uint64_t rest = 0;  // the last rest before the page came, or went elsewhere
};

// What a stream has finished, in the allocator's clock of frees.
struct StreamClock {
  StreamId stream = StreamId::kDefault;
  std::uint64_t done = 0;    // every use of what was freed by then has ended
  std::uint64_t marked = 0;  // the newest mark
  struct Mark {
    std::uint64_t at = 0;
    device::EventId event = device::EventId::kNone;
  };
  std::deque<Mark> marks{};
};

// The sizes of pages. Whole ones are the rule. Halves leave less unused at the ends of a block, at
// twice the calls; large ones are for large blocks; slab arenas have their own.
enum class PageSize : std::uint8_t { kHalf, kWhole, kLarge, kSlab };
inline constexpr std::size_t kPageSizes = 4;

// The pages of one size.
struct PageClass {
  PageSize size = PageSize::kWhole;
  std::uint64_t page_bytes = 0;
  std::uint64_t span = 1;  // in slots
  std::deque<Page> all{};
  std::vector<Page*> unused{};  // records without a handle
  std::vector<Page*> loose{};   // pages at home nowhere
  std::uint64_t count = 0;      // that exist
};

// What an arena is for: blocks that live and die together are kept together.
enum class ArenaKind : std::uint8_t { kNormal, kLarge, kSlab, kPrivate };

// A range of addresses of one stream; or, in a private pool, one handle with a range of its own.
struct PageArena {
  ArenaKind kind = ArenaKind::kNormal;
  DeviceAddress base = 0;
  std::uint64_t size = 0;
  std::uint64_t slot_bytes = 0;
  StreamClock* clock = nullptr;
  PoolId pool{};
  FreeBins* free = nullptr;        // of the blocks that are backed
  FreeBins own_free{};             // where no pool shares one among its arenas
  std::vector<Block*> unbacked{};  // by address
  std::vector<PageSlot> slots{};   // up to the last ever mapped
  std::uint64_t top = 0;           // the slot behind those that count as ever mapped
  Block* first = nullptr;
  device::PageHandle handle = device::PageHandle::kNone;  // of a private pool's arena

  [[nodiscard]] StreamId stream() const noexcept { return clock->stream; }
  [[nodiscard]] DeviceAddress address_of(std::uint64_t slot) const noexcept {
    return base + slot * slot_bytes;
  }
  [[nodiscard]] DeviceAddress end() const noexcept { return base + size; }
  [[nodiscard]] bool is_private() const noexcept { return kind == ArenaKind::kPrivate; }
};

// Slots [first, last).
struct SlotRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  [[nodiscard]] std::uint64_t size() const noexcept { return last > first ? last - first : 0; }
};

// The slots that lie wholly in [begin, end).
[[nodiscard]] inline SlotRange slots_within(const PageArena& arena,
                                            DeviceAddress begin,
                                            DeviceAddress end) noexcept {
  const std::uint64_t slot = arena.slot_bytes;
  return {.first = (begin - arena.base + slot - 1) / slot, .last = (end - arena.base) / slot};
}

// The slots that [begin, end) touches.
[[nodiscard]] inline SlotRange slots_touched(const PageArena& arena,
                                             DeviceAddress begin,
                                             DeviceAddress end) noexcept {
  const std::uint64_t slot = arena.slot_bytes;
  return {.first = (begin - arena.base) / slot, .last = (end - arena.base + slot - 1) / slot};
}

// Whether what is mapped at a slot is at home there.
[[nodiscard]] inline bool is_at_home(const PageArena& arena, const PageSlot& slot) noexcept {
  return slot.page != nullptr && slot.page->home.arena == &arena &&
         slot.page->home.slot == slot.first;
}

// Calls function(page) for every page that lies wholly in a free block: those can go elsewhere.
template <class Function>
void for_each_free_page(const PageArena& arena, const Block& block, Function&& function) {
  const SlotRange whole = slots_within(arena, block.address, block.address + block.size);
  // Slot by slot, although pages span several: so the next page's place does not wait for this one.
  for (std::uint64_t i = whole.first; i < whole.last; ++i) {
    const PageSlot& slot = arena.slots[i];
    if (slot.first == i && i + slot.page->pages->span <= whole.last) function(*slot.page);
  }
}

}  // namespace headroom::memory::internal
