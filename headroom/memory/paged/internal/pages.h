// Pages, the slots of addresses that map them, and the arenas made of slots: the records that a
// PageTable keeps. ../types.h has the words and a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/paged/internal/free_bins.h"
#include "headroom/memory/paged/internal/paged_block.h"
#include "headroom/memory/paged/internal/stream_clocks.h"
#include "headroom/memory/paged/types.h"
#include "headroom/memory/pool.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct PageArena;
struct PageClass;

// A place where a page is, or may be: from `slot` on, as many slots as the page spans.
struct PagePlace {
  PageArena* arena = nullptr;
  std::uint64_t slot = 0;

  friend bool operator==(const PagePlace&, const PagePlace&) = default;
};

// One physical handle. Larger pages than a slot span several, and lie at multiples of two slots.
struct Page {
  device::PageHandle handle = device::PageHandle::kNone;
  PageClass* pages = nullptr;
  PagePlace home{};                 // arena null: loose
  std::vector<PagePlace> mapped{};  // every place that maps it, its home included
  // As of the search with the number `mark`: the page is free, and `cover` is the hole around its
  // home. See PageTable::is_free.
  PagedBlock* cover = nullptr;
  std::uint64_t mark = 0;
};

// A part of a page that is used at another place than the page's home: the free end of one page as
// the begin of a block, or the free front of another as its end. Both places map the page, and each
// uses bytes that the other does not.
struct PageLoan {
  Page* page = nullptr;
  PagePlace place{};        // where the part is used, at its own offset in the page
  std::uint64_t begin = 0;  // the part, in bytes from the begin of the page
  std::uint64_t end = 0;
  PagedBlock* at_home = nullptr;  // the part, at home: BlockHolder::kLoan
  PagedBlock* foreign = nullptr;  // the rest, at the other place: BlockHolder::kForeign

  std::list<PageLoan>::iterator self{};  // in the table's list

  [[nodiscard]] bool is_head() const noexcept { return begin > 0; }
};

// `first` of a slot whose page was given back while a block sleeps there: see PageSleep.
inline constexpr std::uint64_t kAsleep = UINT64_MAX;

struct PageSlot {
  Page* page = nullptr;     // the page that is mapped here
  std::uint64_t first = 0;  // the slot where that mapping begins
  // The clock of the last free here before the page went elsewhere: once the stream has passed
  // it, nobody uses the stale mapping.
  std::uint64_t idle_since = 0;
  std::uint64_t rest = 0;    // the number of the last rest before the page came, or went elsewhere
  PageLoan* loan = nullptr;  // a part of the page is used here, although it is at home elsewhere
};

// The pages of one size.
struct PageClass {
  PageSize size = PageSize::kWhole;
  std::uint64_t page_bytes = 0;
  std::uint64_t span = 1;  // in slots
  std::deque<Page> all{};
  std::vector<Page*> unused{};  // records without a handle
  std::vector<Page*> loose{};
  std::uint64_t count = 0;  // how many exist
};

// Memory of a private pool, mapped in one piece. `handle` is none while only the mapping is left.
struct PoolHandle {
  DeviceAddress address = 0;
  std::uint64_t size = 0;
  device::PageHandle handle = device::PageHandle::kNone;
};

// A range of addresses of one stream; or, in a private pool, a range that grows by handles.
struct PageArena {
  ArenaKind kind = ArenaKind::kNormal;
  DeviceAddress base = 0;
  std::uint64_t size = 0;
  std::uint64_t slot_bytes = 0;
  StreamClock* clock = nullptr;
  PoolId pool{};
  FreeBins* free = nullptr;             // the holes
  bool is_listed = false;               // among PageTable::with_holes(); a private one need not be
  std::uint32_t number = 0;             // in the order of their making
  FreeBins own_free{};                  // where no pool shares one among its arenas
  std::vector<PagedBlock*> unbacked{};  // by address
  std::vector<PageSlot> slots{};        // up to the last that was ever mapped
  std::uint64_t top = 0;                // the slot behind those that count as ever mapped
  PagedBlock* first = nullptr;
  PagedBlock* last = nullptr;
  std::vector<PoolHandle> handles{};              // of a private pool's arena, by address, or ...
  std::shared_ptr<const SegmentSource> source{};  // ... whose memory that is
  std::uint64_t room = 0;                         // addresses behind the arena, for its growth

  [[nodiscard]] StreamId stream() const noexcept { return clock->stream; }
  [[nodiscard]] DeviceAddress address_of(std::uint64_t slot) const noexcept {
    return base + slot * slot_bytes;
  }
  [[nodiscard]] DeviceAddress end() const noexcept { return base + size; }
  [[nodiscard]] bool is_private() const noexcept { return kind == ArenaKind::kPrivate; }
};

// A page and the place where it is to be at home.
struct NewHome {
  std::uint64_t slot = 0;
  PageClass* pages = nullptr;
  Page* page = nullptr;  // in a plan null where it is to be created
};

// The first memory of a new arena of a private pool.
struct PrivateRange {
  DeviceAddress base = 0;
  std::uint64_t size = 0;
  std::uint64_t room = 0;
  device::PageHandle handle = device::PageHandle::kNone;
  StreamClock* clock = nullptr;
  PoolId pool{};
  FreeBins* free = nullptr;
  std::shared_ptr<const SegmentSource> source{};
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

// Whether the page that is mapped at a slot is at home there.
[[nodiscard]] inline bool is_at_home(const PageArena& arena, const PageSlot& slot) noexcept {
  return slot.page != nullptr && slot.page->home.arena == &arena &&
         slot.page->home.slot == slot.first;
}

[[nodiscard]] inline bool is_asleep(const PageSlot& slot) noexcept { return slot.first == kAsleep; }

// A large page in the arena of small blocks.
[[nodiscard]] inline bool is_out_of_place(const Page& page) noexcept {
  return page.pages->size == PageSize::kLarge && page.home.arena->kind == ArenaKind::kNormal;
}

[[nodiscard]] inline bool is_hole(const PagedBlock* block) noexcept {
  return block != nullptr && block->is_mapped && block->is_free();
}

// Nobody uses a byte of its addresses, or may still use one.
[[nodiscard]] inline bool is_vacant(const PageArena& arena) noexcept {
  for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
    if (!block->is_free()) return false;
  }
  return true;
}

// Calls function(page) for every page that lies wholly in a hole: those can go elsewhere.
template <class Function>
void for_each_free_page(const PageArena& arena, const PagedBlock& hole, Function&& function) {
  const SlotRange whole = slots_within(arena, hole.address, hole.address + hole.size);
  // Slot by slot, although pages span several: so the next page's place does not wait for this one.
  for (std::uint64_t i = whole.first; i < whole.last; ++i) {
    const PageSlot& slot = arena.slots[i];
    if (slot.first == i && i + slot.page->pages->span <= whole.last) function(*slot.page);
  }
}

}  // namespace headroom::memory::internal
