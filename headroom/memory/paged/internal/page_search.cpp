#include "headroom/memory/paged/internal/page_search.h"

#include <algorithm>

namespace headroom::memory::internal {

namespace {

// The cost of a slot of a window, about in microseconds of the driver. Every page that holds
// nothing now costs a little too, so that windows which begin and end in pages in use are
// preferred.
constexpr std::uint64_t kEmptyPage = 16;
constexpr std::uint64_t kMap = 32;
constexpr std::uint64_t kUnmapAndMap = 52;
// In steps that repeat themselves it is to be mapped again in each.
constexpr std::uint64_t kUnmapEachStep = 200;
// Addresses never used before are endless, but each page mapped there is one more mapping to keep.
constexpr std::uint64_t kMapFresh = 65;

struct Run {
  const PagedBlock* first = nullptr;
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
};

bool is_vacant(const PagedBlock* block) noexcept {
  return block != nullptr && (!block->is_mapped || block->is_free());
}

// The run of vacant blocks around an unbacked one; nothing where an earlier unbacked block of the
// same run exists. Vacant neighbours alternate: backed, unbacked, backed.
std::optional<Run> run_that_starts_at(const PagedBlock& unbacked) noexcept {
  const PagedBlock* first = &unbacked;
  if (is_vacant(first->prev)) {
    first = first->prev;
    if (is_vacant(first->prev)) return std::nullopt;
  }
  const PagedBlock* last = &unbacked;
  while (is_vacant(last->next)) last = last->next;
  return Run{.first = first, .begin = first->address, .end = last->address + last->size};
}

// The bytes of a free block in whole pages that hold something else too. The pages at its two ends
// may be such.
std::uint64_t stuck_in_whole_pages(const PageArena& arena, const PagedBlock& block) noexcept {
  const auto stuck_at = [&](std::uint64_t slot) -> std::uint64_t {
    const Page& page = *arena.slots[slot].page;
    if (page.pages->size != PageSize::kWhole || arena.slots[slot].loan != nullptr) return 0;
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
void PageSearch::take_back_large() {
  if (table_.large_out_of_place() == 0) return;
  std::vector<Page*> leaving;
  for (PageArena& arena : table_.arenas()) {
    if (arena.kind != ArenaKind::kNormal) continue;
    arena.free->for_each([&](PagedBlock& block) {
      if (block.size < table_.class_of(PageSize::kLarge).page_bytes) return;
      // A loose page may go to any stream, so this one must have passed its last use.
      if (clocks_.size() > 1 && block.freed_at > arena.clock->done) return;
      for_each_free_page(arena, block, [&](Page& page) {
        if (page.pages->size != PageSize::kLarge) return;
        page.cover = &block;
        leaving.push_back(&page);
      });
    });
  }
  table_.make_loose(leaving);
}

void PageSearch::begin() {
  if (!clocks_.is_capturing()) take_back_large();
  clocks_.mark_moments();
  table_.begin_search();
  covers_.clear();
  covers_sorted_for_ = nullptr;
  stuck_bytes_ = 0;
  free_page_bytes_ = 0;
  std::uint64_t stuck_in_whole = 0;
  for (const PageArena* arena : table_.with_holes()) {
    arena->free->for_each([&](PagedBlock& block) {
      std::uint64_t free_pages = 0;
      for_each_free_page(*arena, block, [&](Page& page) {
        table_.mark_free(page);
        page.cover = &block;
        free_pages += page.pages->page_bytes;
      });
      if (free_pages > 0) covers_.push_back(&block);
      stuck_bytes_ += block.size - free_pages;
      free_page_bytes_ += free_pages;
      stuck_in_whole += stuck_in_whole_pages(*arena, block);
    });
  }
  for (PageClass& pages : table_.classes()) {
    for (Page* page : pages.loose) table_.mark_free(*page);
    free_page_bytes_ += pages.loose.size() * pages.page_bytes;
  }
  wants_halves_ = table_.has_halves() && budget_.wants_halves(stuck_in_whole);
}

const std::vector<PagedBlock*>& PageSearch::covers_for(const StreamClock& own) {
  if (covers_sorted_for_ == &own) return covers_;
  std::ranges::sort(covers_, [&](const PagedBlock* a, const PagedBlock* b) {
    const bool is_own_a = a->arena->clock == &own;
    const bool is_own_b = b->arena->clock == &own;
    if (is_own_a != is_own_b) return is_own_a;
    if (a->freed_at != b->freed_at) return a->freed_at < b->freed_at;
    return a->address > b->address;
  });
  covers_sorted_for_ = &own;
  return covers_;
}

// Whether a slot can have the page that it maps: free, and not at home elsewhere in the window.
bool PageSearch::can_have(const PageArena& arena,
                          const PageSlot& slot,
                          SlotRange window) const noexcept {
  if (!table_.is_free(*slot.page)) return false;
  if (is_at_home(arena, slot)) return true;
  const PagePlace& home = slot.page->home;
  const bool is_in_window = home.arena == &arena && home.slot < window.last &&
                            window.first < home.slot + slot.page->pages->span;
  return !clocks_.is_capturing() && !is_in_window;
}

std::optional<std::uint64_t> PageSearch::window_cost(const PageArena& arena,
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
    } else if (const PageSlot slot = table_.seen(arena, i); slot.page == nullptr) {
      if (table_.is_in_the_way(arena, i)) return std::nullopt;
      cost += kEmptyPage + kMap;
    } else if (can_have(arena, slot, touched)) {
      cost += kEmptyPage;
    } else if (!is_at_home(arena, slot)) {
      if (!table_.may_unmap(arena, slot)) return std::nullopt;
      cost += kEmptyPage + (table_.rest_number() == 0 ? kUnmapAndMap : kUnmapEachStep);
    }
    if (cost >= best) return std::nullopt;
  }
  return cost;
}

std::optional<PageWindow> PageSearch::best_window(const PageArena& arena,
                                                  std::uint64_t size_bytes) const {
  std::optional<PageWindow> found;
  std::uint64_t best = UINT64_MAX;
  const DeviceAddress top = table_.fresh_address(arena);
  for (const PagedBlock* unbacked : arena.unbacked) {
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
    for (const PagedBlock* block = run->first; block != nullptr && block->address < run->end;
         block = block->next) {
      if (!block->is_mapped) continue;
      consider(block->address);
      consider(block->address + block->size - std::min(size_bytes, block->address + block->size));
    }
    if (is_tail) consider(top);
  }
  return found;
}

std::optional<PageWindow> PageSearch::fresh_window(const PageArena& arena,
                                                   std::uint64_t size_bytes) const {
  const DeviceAddress begin = table_.fresh_address(arena);
  const DeviceAddress end = arena.end();
  if (end < begin || end - begin < size_bytes) return std::nullopt;
  return PageWindow{.begin = begin, .end = begin + size_bytes, .run_begin = begin, .run_end = end};
}

std::uint64_t free_page_bytes_touched(const PagedBlock& hole,
                                      DeviceAddress begin,
                                      DeviceAddress end) noexcept {
  const SlotRange touched = slots_touched(*hole.arena, begin, end);
  std::uint64_t bytes = 0;
  for_each_free_page(*hole.arena, hole, [&](const Page& page) {
    const std::uint64_t first = page.home.slot;
    if (first < touched.last && touched.first < first + page.pages->span) {
      bytes += page.pages->page_bytes;
    }
  });
  return bytes;
}

}  // namespace headroom::memory::internal
