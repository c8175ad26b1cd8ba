#include "headroom/memory/paged/internal/page_ends.h"

#include <algorithm>

namespace headroom::memory::internal {

namespace {

// Ends shorter than this spare too little for the call that it takes to map their page.
constexpr std::uint64_t kLeastEnd = 16 * kMinBlockBytes;

// Where pages are free and the block has another place as well, what such a page counts, as a part
// of the bytes that are left of a tail.
constexpr std::uint64_t kPagesToWaste = 8;

std::uint64_t span_of(const PageEnd& end) noexcept {
  return end.page == nullptr ? 0 : end.page->pages->span;
}

// A page that spans two slots lies at an even one.
bool fits_at(const PageEnd& end, std::uint64_t slot) noexcept {
  return end.page == nullptr || slot % end.page->pages->span == 0;
}

}  // namespace

// The ends of one stream's pages: what is queued there runs in order, so nobody has to wait.
void PageEnds::collect(const StreamClock& clock) {
  heads_.clear();
  tails_.clear();
  for (const PageArena* with_holes : table_.with_holes()) {
    const PageArena& arena = *with_holes;
    const bool is_of_blocks = arena.kind == ArenaKind::kNormal || arena.kind == ArenaKind::kLarge;
    if (!is_of_blocks || arena.clock != &clock) continue;
    arena.free->for_each([&](PagedBlock& hole) {
      const DeviceAddress end = hole.address + hole.size;
      const SlotRange touched = slots_touched(arena, hole.address, end);
      const auto page_at = [&](std::uint64_t i) -> Page* {
        const PageSlot& slot = arena.slots[i];
        const bool is_small = slot.page->pages->size != PageSize::kLarge;
        return slot.loan == nullptr && is_small ? slot.page : nullptr;
      };
      if (Page* const page = page_at(touched.first)) {
        const DeviceAddress begin = arena.address_of(page->home.slot);
        const DeviceAddress page_end = begin + page->pages->page_bytes;
        if (hole.address > begin && end >= page_end && page_end - hole.address >= kLeastEnd) {
          heads_.push_back({.hole = &hole, .page = page, .bytes = page_end - hole.address});
        }
      }
      if (Page* const page = page_at(touched.last - 1)) {
        const DeviceAddress begin = arena.address_of(page->home.slot);
        const DeviceAddress page_end = begin + page->pages->page_bytes;
        if (hole.address <= begin && end < page_end && end - begin >= kLeastEnd) {
          tails_.push_back({.hole = &hole, .page = page, .bytes = end - begin});
        }
      }
    });
  }
  std::ranges::stable_sort(tails_, {}, &PageEnd::bytes);
}

// The best tail for what is left of the window behind a head.
void PageEnds::consider(const PageEnd& head,
                        std::uint64_t rest,
                        std::uint64_t slot_bytes,
                        Choice& best) const {
  const auto take = [&](const PageEnd& tail, std::uint64_t bytes) {
    const std::uint64_t slots = (rest - bytes) / slot_bytes;
    if (span_of(head) + slots + span_of(tail) == 0) return;
    // Pages of two slots lie at even ones: there must be a place for both.
    if (span_of(head) == 2 && span_of(tail) == 2 && slots % 2 != 0) return;
    // The pages between the ends, which may have to be created, count most; then the bytes that the
    // block leaves of the tail, which are harder to use once they lie between two blocks.
    const std::uint64_t waste = tail.bytes - bytes;
    const std::uint64_t cost = slots * slot_bytes / (any_waste_ ? 1 : kPagesToWaste) + waste;
    if (cost >= best.cost) return;
    best = {.head = head, .tail = tail, .middle_slots = slots, .waste = waste, .cost = cost};
    best.tail.bytes = bytes;
  };
  std::uint64_t bytes = rest % slot_bytes;
  if (bytes == 0 && head.page != nullptr) take({}, 0);
  constexpr int kLooks = 4;
  for (int slots = 0; slots < 2 && bytes <= rest; ++slots, bytes += slot_bytes) {
    if (bytes < kLeastEnd) continue;
    auto tail = std::ranges::lower_bound(tails_, bytes, {}, &PageEnd::bytes);
    for (int looks = 0; looks < kLooks && tail != tails_.end(); ++looks, ++tail) {
      if (tail->page != head.page) take(*tail, bytes);
    }
  }
}

PageEnds::Choice PageEnds::choose(std::uint64_t size, std::uint64_t slot_bytes) const {
  Choice best;
  consider({}, size, slot_bytes, best);
  for (const PageEnd& head : heads_) {
    if (head.bytes < size) consider(head, size - head.bytes, slot_bytes, best);
  }
  return best;
}

// The cost of mapping the window from a slot on, about in microseconds of the driver; nothing
// where it cannot be.
std::optional<std::uint64_t> PageEnds::cost_at(const PageArena& arena,
                                               const Choice& choice,
                                               std::uint64_t first) const {
  const std::uint64_t tail_slot = first + span_of(choice.head) + choice.middle_slots;
  const std::uint64_t last = tail_slot + span_of(choice.tail);
  if (!fits_at(choice.head, first) || !fits_at(choice.tail, tail_slot)) return std::nullopt;
  constexpr std::uint64_t kUnmap = 20;
  constexpr std::uint64_t kMap = 32;
  std::uint64_t cost = 0;
  for (std::uint64_t i = first; i < last; ++i) {
    if (table_.is_in_the_way(arena, i)) return std::nullopt;
    const PageSlot slot = table_.seen(arena, i);
    // A page that could be revived must not reach over an end.
    const bool is_border = i == first + span_of(choice.head) || i == tail_slot;
    if (is_border && slot.page != nullptr && slot.first != i) return std::nullopt;
    const bool has_it = (choice.head.page != nullptr && i == first &&
                         slot.page == choice.head.page && slot.first == i) ||
                        (choice.tail.page != nullptr && i == tail_slot &&
                         slot.page == choice.tail.page && slot.first == i);
    if (!has_it) cost += kMap + (slot.page != nullptr ? kUnmap : 0) + (i >= arena.top ? kMap : 0);
  }
  return cost;
}

std::optional<EndsWindow> PageEnds::place(const PageArena& arena, const Choice& choice) const {
  const std::uint64_t slots = span_of(choice.head) + choice.middle_slots + span_of(choice.tail);
  std::uint64_t best = UINT64_MAX;
  std::uint64_t best_first = 0;
  constexpr int kMostLooks = 256;
  int looks = 0;
  const auto consider_at = [&](std::uint64_t first, SlotRange vacant) {
    if (first < vacant.first || first + slots > vacant.last) return;
    const auto cost = cost_at(arena, choice, first);
    if (!cost || *cost >= best) return;
    best = *cost;
    best_first = first;
  };
  for (const PagedBlock* block : arena.unbacked) {
    const SlotRange vacant = slots_within(arena, block->address, block->address + block->size);
    const bool is_last = block->address + block->size == arena.end();
    if (vacant.size() < slots || (++looks > kMostLooks && !is_last)) continue;
    for (std::uint64_t shift = 0; shift < 2; ++shift) {
      consider_at(vacant.first + shift, vacant);
      if (is_last) {
        consider_at(std::max(vacant.first, arena.top) + shift, vacant);
      } else {
        consider_at(vacant.last - slots - std::min(shift, vacant.size() - slots), vacant);
      }
    }
  }
  if (best == UINT64_MAX) return std::nullopt;
  EndsWindow window{.head = choice.head, .tail = choice.tail, .head_slot = best_first};
  window.middle.first = best_first + span_of(choice.head);
  window.middle.last = window.middle.first + choice.middle_slots;
  window.tail_slot = window.middle.last;
  window.begin = arena.address_of(window.middle.first) - choice.head.bytes;
  return window;
}

std::optional<EndsWindow> PageEnds::best_window(const PageArena& arena,
                                                std::uint64_t size,
                                                std::uint64_t most_waste) {
  any_waste_ = most_waste == UINT64_MAX;
  collect(*arena.clock);
  const Choice choice = choose(size, arena.slot_bytes);
  if (choice.cost == UINT64_MAX || choice.waste >= most_waste) return std::nullopt;
  return place(arena, choice);
}

}  // namespace headroom::memory::internal
