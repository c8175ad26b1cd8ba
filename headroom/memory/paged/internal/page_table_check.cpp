// The rules of ../types.h, checked, in PageTable.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

namespace {

std::optional<std::string> check_blocks(const PageArena& arena) {
  DeviceAddress at = arena.base;
  const PagedBlock* previous = nullptr;
  for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
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

// A slot is a home, or on loan, exactly where a held block or a hole touches it: everywhere but in
// unbacked blocks.
std::optional<std::string> check_slots(const PageArena& arena) {
  std::vector<bool> is_backed(arena.slots.size(), true);
  for (const PagedBlock* block : arena.unbacked) {
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
    if (is_asleep(slot)) {
      if (slot.page != nullptr || !is_backed[i]) return "a slot that sleeps is backed or unbacked";
      continue;
    }
    if (is_backed[i] != (is_at_home(arena, slot) || slot.loan != nullptr)) {
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
  std::size_t unbacked = 0;
  for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
    unbacked += block->is_mapped ? 0 : 1;
    const DeviceAddress end = block->address + block->size;
    if (block->is_mapped && slots_touched(arena, block->address, end).last > arena.slots.size()) {
      return "a backed block lies where no page was ever mapped";
    }
  }
  if (unbacked != arena.unbacked.size()) return "an unbacked block is in no list";
  return std::nullopt;
}

}  // namespace

namespace {

// Whether every slot of the place maps the page, from there on.
bool is_mapped_at(const Page& page, const PagePlace& place) {
  for (std::uint64_t i = place.slot; i < place.slot + page.pages->span; ++i) {
    if (i >= place.arena->slots.size()) return false;
    const PageSlot& slot = place.arena->slots[i];
    if (slot.page != &page || slot.first != place.slot) return false;
  }
  return true;
}

std::optional<std::string> problem_of(const Page& page) {
  for (const PagePlace& place : page.mapped) {
    if (!is_mapped_at(page, place)) return "a slot does not know of the page that it maps";
  }
  const bool has_home = page.home.arena != nullptr;
  if (has_home && std::ranges::count(page.mapped, page.home) != 1) {
    return "a page is not mapped where it is at home";
  }
  if (has_home == (std::ranges::count(page.pages->loose, &page) > 0)) {
    return "a page is at home and loose, or neither";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> PageTable::check_pages() const {
  std::uint64_t stale = 0;
  std::uint64_t out_of_place = 0;
  for (const PageClass& pages : classes_) {
    std::uint64_t count = 0;
    for (const Page& page : pages.all) {
      if (page.handle == device::PageHandle::kNone) continue;
      ++count;
      const bool has_home = page.home.arena != nullptr;
      stale += page.mapped.size() - (has_home ? 1 : 0);
      out_of_place += has_home && is_out_of_place(page) ? 1 : 0;
      if (auto problem = problem_of(page)) return problem;
    }
    if (count != pages.count) return "pages are miscounted";
  }
  if (stale != stale_ + loans_.size()) return "stale mappings are miscounted";
  if (out_of_place != large_out_of_place_) return "large pages among small blocks are miscounted";
  return std::nullopt;
}

namespace {

std::optional<std::string> problem_of(const PageLoan& loan) {
  const Page& page = *loan.page;
  if (page.home.arena == nullptr || page.home == loan.place) return "a lent page has no home";
  const DeviceAddress home = page.home.arena->address_of(page.home.slot);
  const DeviceAddress at = loan.place.arena->address_of(loan.place.slot);
  const bool is_head = loan.is_head();
  if (loan.begin >= loan.end || loan.end > page.pages->page_bytes ||
      (is_head ? loan.end != page.pages->page_bytes : loan.end == page.pages->page_bytes)) {
    return "a loan is not one end of its page";
  }
  if (loan.at_home->address != home + loan.begin || loan.at_home->size != loan.end - loan.begin) {
    return "a part that is lent is not held at home";
  }
  if (loan.foreign->address != (is_head ? at : at + loan.end) ||
      loan.foreign->size != (is_head ? loan.begin : page.pages->page_bytes - loan.end)) {
    return "the addresses beside a lent part are not held";
  }
  for (std::uint64_t i = 0; i < page.pages->span; ++i) {
    const PageSlot& slot = loan.place.arena->slots[loan.place.slot + i];
    if (slot.loan != &loan || slot.page != &page || slot.first != loan.place.slot) {
      return "a slot does not know of its loan";
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> PageTable::check_loans() const {
  std::size_t held = 0;
  for (const PageArena& arena : arenas_) {
    for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
      const bool is_lent =
          block->holder == BlockHolder::kLoan || block->holder == BlockHolder::kForeign;
      held += is_lent ? 1 : 0;
      if (!block->is_of_user() && !block->is_allocated)
        return "a lent or sleeping block is not held";
    }
  }
  if (held != 2 * loans_.size()) return "a loan does not hold one block at each place";
  for (const PageLoan& loan : loans_) {
    if (auto problem = problem_of(loan)) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> PageTable::check() const {
  for (const PageArena& arena : arenas_) {
    if (auto problem = check_blocks(arena)) return problem;
    if (auto problem = arena.free->check()) return problem;
    if (arena.is_private()) continue;
    if (auto problem = check_slots(arena)) return problem;
    const bool is_found = std::ranges::find(with_holes_, &arena) != with_holes_.end();
    if (arena.is_listed != is_found || (!arena.free->empty() && !is_found)) {
      return "the list of arenas with holes is not true";
    }
  }
  if (auto problem = check_pages()) return problem;
  return check_loans();
}

}  // namespace headroom::memory::internal
