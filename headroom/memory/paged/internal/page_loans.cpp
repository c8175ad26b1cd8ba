// Parts of pages that are used elsewhere, in PageTable.
#include <algorithm>
#include <iterator>

#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

void PageTable::prepare_loans(std::size_t count) {
  constexpr std::size_t kBlocks = 6;  // cut for one, at both places
  blocks_.prepare(count * kBlocks);
  if (spare_loans_.size() < count) spare_loans_.resize(count);
  for (PageArena& arena : arenas_) {
    if (!arena.is_private()) arena.unbacked.reserve(arena.unbacked.size() + 2 * count);
  }
}

PagedBlock& PageTable::lend(PagedBlock& hole,
                            PagePlace place,
                            std::uint64_t begin,
                            std::uint64_t end) noexcept {
  PageArena& arena = *place.arena;
  PageArena& home_arena = *hole.arena;
  Page& page = *arena.slots[place.slot].page;
  const DeviceAddress home = home_arena.address_of(page.home.slot);
  loans_.splice(loans_.end(), spare_loans_, spare_loans_.begin());
  PageLoan& loan = loans_.back();
  loan = {.page = &page, .place = place, .begin = begin, .end = end};
  loan.self = std::prev(loans_.end());
  // At home: what lies before the part and behind it stays free.
  home_arena.free->erase(hole);
  if (hole.address < home + begin) {
    PagedBlock& front = cut_front(hole, home + begin - hole.address);
    home_arena.free->insert(front);
    for_each_free_page(home_arena, front, [&](Page& other) { other.cover = &front; });
  }
  loan.at_home = &hole;
  if (home + end < hole.address + hole.size) {
    loan.at_home = &cut_front(hole, home + end - hole.address);
    home_arena.free->insert(hole);
  }
  loan.at_home->is_allocated = true;
  loan.at_home->holder = BlockHolder::kLoan;
  host_.pages_left(home_arena, home + begin, end - begin);
  // At the other place: the part is a hole, and the rest is nobody's.
  const std::uint64_t span = page.pages->span;
  PagedBlock* part = &carve_backed(arena, {.first = place.slot, .last = place.slot + span});
  part->freed_at = loan.at_home->freed_at;
  if (loan.is_head()) {
    loan.foreign = &cut_front(*part, begin);
  } else {
    loan.foreign = part;
    part = &cut_front(*part, end);
  }
  loan.foreign->is_allocated = true;
  loan.foreign->holder = BlockHolder::kForeign;
  for (std::uint64_t i = place.slot; i < place.slot + span; ++i) {
    arena.slots[i].loan = &loan;
    arena.slots[i].idle_since = 0;
    arena.slots[i].rest = rest_number_;
  }
  --stale_;
  host_.pages_arrived(arena, arena.address_of(place.slot) + begin, end - begin);
  return file_hole(*part);
}

// The hole that the part lies in at the other place; null while somebody uses some of it.
PagedBlock* PageTable::idle_hole(const PageLoan& loan) noexcept {
  const DeviceAddress at = loan.place.arena->address_of(loan.place.slot);
  PagedBlock* const hole = loan.is_head() ? loan.foreign->next : loan.foreign->prev;
  const bool is_whole = is_hole(hole) && hole->address <= at + loan.begin &&
                        hole->address + hole->size >= at + loan.end;
  return is_whole ? hole : nullptr;
}

void PageTable::take_back(PageLoan& loan, PagedBlock& hole) noexcept {
  PageArena& arena = *loan.place.arena;
  const DeviceAddress at = arena.address_of(loan.place.slot);
  const std::uint64_t span = loan.page->pages->span;
  // There: the part and the rest of the page are one unbacked block again.
  arena.free->erase(hole);
  PagedBlock* part = &hole;
  if (hole.address < at + loan.begin) {
    arena.free->insert(cut_front(hole, at + loan.begin - hole.address));
  }
  if (at + loan.end < hole.address + hole.size) {
    part = &cut_front(hole, at + loan.end - hole.address);
    arena.free->insert(hole);
  }
  const std::uint64_t freed_at = part->freed_at;
  host_.pages_left(arena, at + loan.begin, loan.end - loan.begin);
  loan.foreign->is_allocated = false;
  loan.foreign->holder = BlockHolder::kUser;
  PagedBlock& whole = loan.is_head() ? *loan.foreign : *part;
  absorb_next(whole);
  file_unbacked(whole);
  for (std::uint64_t i = loan.place.slot; i < loan.place.slot + span; ++i) {
    arena.slots[i].loan = nullptr;
    arena.slots[i].idle_since = freed_at;
    arena.slots[i].rest = rest_number_;
  }
  ++stale_;
  // At home it is free.
  PagedBlock& part_at_home = *loan.at_home;
  part_at_home.is_allocated = false;
  part_at_home.holder = BlockHolder::kUser;
  part_at_home.freed_at = std::max(part_at_home.freed_at, freed_at);
  clocks_.note_free(*part_at_home.arena->clock, part_at_home.freed_at);
  host_.pages_arrived(*part_at_home.arena, part_at_home.address, part_at_home.size);
  file_free(part_at_home);
}

bool PageTable::take_back_if_idle(PageLoan& loan) {
  PagedBlock* const hole = idle_hole(loan);
  if (hole == nullptr) return false;
  prepare_loans(1);
  take_back(loan, *hole);
  spare_loans_.splice(spare_loans_.end(), loans_, loan.self);
  return true;
}

std::size_t PageTable::take_back_idle() {
  std::size_t count = 0;
  for (auto it = loans_.begin(); it != loans_.end();) {
    PageLoan& loan = *it++;
    count += take_back_if_idle(loan) ? 1 : 0;
  }
  return count;
}

void PageTable::take_back_at(PageArena& arena, DeviceAddress begin, DeviceAddress end) noexcept {
  const SlotRange touched = slots_touched(arena, begin, end);
  try {
    for (const std::uint64_t slot : {touched.first, touched.last - 1}) {
      if (PageLoan* const loan = arena.slots[slot].loan) take_back_if_idle(*loan);
    }
  } catch (...) {  // take_back_idle() tries again
  }
}

}  // namespace headroom::memory::internal
