// Which window of addresses to back: the one that lacks the fewest pages.
#include <algorithm>

#include "headroom/memory/internal/page_store.h"

namespace headroom::memory::internal {

namespace {

// What a slot of a window costs, about in microseconds of the driver. Every page that holds nothing
// now costs a little too, so that windows which begin and end in pages in use are preferred.
constexpr std::uint64_t kEmptyPage = 16;
constexpr std::uint64_t kMap = 32;
constexpr std::uint64_t kUnmapAndMap = 52;
// In steps that repeat themselves it is to be mapped again in each.
constexpr std::uint64_t kUnmapEachStep = 200;
// Addresses never used before are endless, but each page mapped there is one more mapping to keep.
constexpr std::uint64_t kMapFresh = 65;

struct Run {
  const Block* first = nullptr;
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
};

bool is_vacant(const Block* block) noexcept {
  return block != nullptr && (!block->is_mapped || block->is_free());
}

// The run of vacant blocks around an unbacked one; nothing where an earlier unbacked block of the
// same run exists. Vacant neighbours alternate: backed, unbacked, backed.
std::optional<Run> run_that_starts_at(const Block& unbacked) noexcept {
  const Block* first = &unbacked;
  if (is_vacant(first->prev)) {
    first = first->prev;
    if (is_vacant(first->prev)) return std::nullopt;
  }
  const Block* last = &unbacked;
  while (is_vacant(last->next)) last = last->next;
  return Run{.first = first, .begin = first->address, .end = last->address + last->size};
}

}  // namespace

void PageStore::poll(StreamClock& clock) noexcept {
  while (!clock.marks.empty()) {
    const StreamClock::Mark& mark = clock.marks.front();
    const auto ready = device_.query_event(mark.event);
    if (!(ready ? *ready : is_gone(ready.error()))) return;
    (void)device_.release_event(mark.event);
    clock.done = mark.at;
    clock.marks.pop_front();
  }
}

// From here on it can be asked whether the stream has passed what was freed until now.
void PageStore::mark_moment(StreamClock& clock) {
  constexpr std::size_t kMostMarks = 8;
  if (clock.marked == clock_ || clock.marks.size() >= kMostMarks) return;
  clock.marks.push_back({.at = clock_});
  const auto event = device_.record_event(clock.stream);
  if (event) {
    clock.marks.back().event = *event;
    clock.marked = clock_;
    return;
  }
  clock.marks.pop_back();
  // A stream that is unknown now has been released, and has no work left that we could wait for.
  if (is_gone(event.error()) || event.error() == device::StatusCode::kUnknownHandle) {
    clock.done = clock_;
    clock.marked = clock_;
  }
}

void PageStore::mark_moments() {
  if (is_capturing_) return;
  for (StreamClock& clock : clocks_) {
    poll(clock);
    mark_moment(clock);
    poll(clock);
  }
}

namespace {

// The bytes of a free block in whole pages that hold something else too. The pages at its two ends
// may be such.
std::uint64_t stuck_in_whole_pages(const PageArena& arena, const Block& block) noexcept {
  const auto stuck_at = [&](std::uint64_t slot) -> std::uint64_t {
    const Page& page = *arena.slots[slot].page;
    if (page.pages->size != PageSize::kWhole) return 0;
    const DeviceAddress begin = arena.address_of(page.home.slot);
    const DeviceAddress end = begin + page.pages->page_bytes;
    const DeviceAddress last = block.address + block.size;
    if (begin >= block.address && end <= last) return 0;
    return std::min(end, last) - std::max(begin, block.address);
  };
  const SlotRange touched = slots_touched(arena, block.address, block.address + block.size);
  const PageSlot& first = arena.slots[touched.first];
  const PageSlot& last = arena.slots[touched.last - 1];
  return stuck_at(touched.first) + (first.page == last.page ? 0 : stuck_at(touched.last - 1));
}

}  // namespace

// Large pages that small blocks were put into, for want of others, and that hold nothing any more
// are at home nowhere from now on: else small blocks would be put there again, and keep them.
void PageStore::take_back_large() {
  if (large_in_normal_ == 0) return;
  std::vector<Page*> leaving;
  for (PageArena& arena : arenas_) {
    if (arena.kind != ArenaKind::kNormal) continue;
    arena.free->for_each([&](Block& block) {
      if (block.size < of(PageSize::kLarge).page_bytes) return;
      // What is at home nowhere may go to any stream, so this one must have passed its last use.
      if (clocks_.size() > 1 && block.gc_base > arena.clock->done) return;
      for_each_free_page(arena, block, [&](Page& page) {
        if (page.pages->size != PageSize::kLarge) return;
        page.cover = &block;
        leaving.push_back(&page);
      });
    });
  }
  if (leaving.empty()) return;
  blocks_.prepare(2 * leaving.size() + 4);
  for (PageArena& arena : arenas_) {
    if (arena.kind == ArenaKind::kNormal) {
      arena.unbacked.reserve(arena.unbacked.size() + leaving.size() + 2);
    }
  }
  std::vector<Page*>& loose = of(PageSize::kLarge).loose;
  loose.reserve(loose.size() + leaving.size());
  const std::vector<Page*> left = leaving;
  leave_homes(leaving);
  loose.insert(loose.end(), left.begin(), left.end());
}

void PageStore::begin_search() {
  if (!is_capturing_) take_back_large();
  mark_moments();
  mark_ += 2;  // the odd number after it marks what a plan has taken
  covers_.clear();
  covers_sorted_for_ = nullptr;
  stuck_bytes_ = 0;
  std::uint64_t stuck_in_whole = 0;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    arena.free->for_each([&](Block& block) {
      std::uint64_t free_pages = 0;
      for_each_free_page(arena, block, [&](Page& page) {
        page.mark = mark_;
        page.cover = &block;
        free_pages += page.pages->page_bytes;
      });
      if (free_pages > 0) covers_.push_back(&block);
      stuck_bytes_ += block.size - free_pages;
      stuck_in_whole += stuck_in_whole_pages(arena, block);
    });
  }
  for (PageClass& pages : classes_) {
    for (Page* page : pages.loose) page->mark = mark_;
  }
  wants_halves_ = of(PageSize::kWhole).span > 1 && host_.wants_halves(stuck_in_whole);
}

// Whether a slot can have the page that it maps: free, and not at home elsewhere in the window.
bool PageStore::can_have(const PageArena& arena,
                         const PageSlot& slot,
                         SlotRange window) const noexcept {
  if (!is_free(*slot.page)) return false;
  if (is_at_home(arena, slot)) return true;
  const PagePlace& home = slot.page->home;
  const bool is_in_window = home.arena == &arena && home.slot < window.last &&
                            window.first < home.slot + slot.page->pages->span;
  return !is_capturing_ && !is_in_window;
}

std::optional<std::uint64_t> PageStore::window_cost(const PageArena& arena,
                                                    const PageWindow& window,
                                                    std::uint64_t best) const {
  const SlotRange touched = slots_touched(arena, window.begin, window.end);
  const SlotRange vacant = slots_within(arena, window.run_begin, window.run_end);
  std::uint64_t cost = 0;
  // A slot that is not wholly vacant holds a part of a block in use: it is backed.
  const std::uint64_t last = std::min(touched.last, vacant.last);
  for (std::uint64_t i = std::max(touched.first, vacant.first); i < last; ++i) {
    if (i >= arena.top) {
      cost += kEmptyPage + kMapFresh;
    } else if (const PageSlot slot = seen(arena, i); slot.page == nullptr) {
      if (is_in_the_way(arena, i)) return std::nullopt;
      cost += kEmptyPage + kMap;
    } else if (can_have(arena, slot, touched)) {
      cost += kEmptyPage;
    } else if (!is_at_home(arena, slot)) {
      if (!may_unmap(arena, slot)) return std::nullopt;
      cost += kEmptyPage + (rest_number_ == 0 ? kUnmapAndMap : kUnmapEachStep);
    }
    if (cost >= best) return std::nullopt;
  }
  return cost;
}

std::optional<PageWindow> PageStore::best_window(const PageArena& arena,
                                                 std::uint64_t size_bytes) const {
  std::optional<PageWindow> found;
  std::uint64_t best = UINT64_MAX;
  const DeviceAddress top = fresh_address(arena);
  for (const Block* unbacked : arena.unbacked) {
    const std::optional<Run> run = run_that_starts_at(*unbacked);
    if (!run || run->end - run->begin < size_bytes) continue;
    DeviceAddress last_begin = 0;
    const auto consider = [&](DeviceAddress begin) {
      if (begin < run->begin || begin > run->end - size_bytes || begin == last_begin) return;
      last_begin = begin;
      const PageWindow window{
          .begin = begin, .end = begin + size_bytes, .run_begin = run->begin, .run_end = run->end};
      if (const auto cost = window_cost(arena, window, best)) {
        best = *cost;
        found = window;
      }
    };
    const bool is_tail = run->end == arena.end();
    consider(run->begin);
    if (!is_tail) consider(run->end - size_bytes);
    for (const Block* block = run->first; block != nullptr && block->address < run->end;
         block = block->next) {
      if (!block->is_mapped) continue;
      consider(block->address);
      consider(block->address + block->size - std::min(size_bytes, block->address + block->size));
    }
    if (is_tail) consider(top);
  }
  return found;
}

std::optional<PageWindow> PageStore::fresh_window(const PageArena& arena,
                                                  std::uint64_t size_bytes) const {
  const DeviceAddress begin = fresh_address(arena);
  const DeviceAddress end = arena.end();
  if (end < begin || end - begin < size_bytes) return std::nullopt;
  return PageWindow{.begin = begin, .end = begin + size_bytes, .run_begin = begin, .run_end = end};
}

std::uint64_t PageStore::bytes_touched(const Block& block,
                                       DeviceAddress begin,
                                       DeviceAddress end) noexcept {
  const SlotRange touched = slots_touched(*block.arena, begin, end);
  std::uint64_t bytes = 0;
  for_each_free_page(*block.arena, block, [&](const Page& page) {
    const std::uint64_t first = page.home.slot;
    if (first < touched.last && touched.first < first + page.pages->span) {
      bytes += page.pages->page_bytes;
    }
  });
  return bytes;
}

}  // namespace headroom::memory::internal
