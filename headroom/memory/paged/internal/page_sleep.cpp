#include "headroom/memory/paged/internal/page_sleep.h"

#include <algorithm>
#include <iterator>

#include "headroom/base/check.h"

namespace headroom::memory::internal {

using device::DeviceResult;

namespace {

// How many pages are mapped with one call.
constexpr std::size_t kMostInRun = 64;

bool is_sleeper(const PagedBlock& block) noexcept { return block.holder == BlockHolder::kSleeper; }

// The first block that touches the bytes behind `begin`, from one further on.
PagedBlock& first_behind(PagedBlock& from, DeviceAddress begin) noexcept {
  PagedBlock* block = &from;
  while (block->address > begin) block = block->prev;
  return *block;
}

// Whether function(block) holds for every block that touches [begin, end); `from` is one of them.
template <class Function>
bool all_touching(PagedBlock& from, DeviceAddress begin, DeviceAddress end, Function&& function) {
  for (const PagedBlock* block = &first_behind(from, begin);
       block != nullptr && block->address < end;
       block = block->next) {
    if (!function(*block)) return false;
  }
  return true;
}

}  // namespace

PageSleep::Pages::const_iterator PageSleep::first_touching(DeviceAddress address) const noexcept {
  auto it = pages_.upper_bound(address);
  if (it != pages_.begin() && std::prev(it)->second.end() > address) --it;
  return it;
}

std::vector<SleepingPage> PageSleep::touched_by(const PagedBlock& block) const {
  std::vector<SleepingPage> touched;
  for (auto it = first_touching(block.address);
       it != pages_.end() && it->first < block.address + block.size;
       ++it) {
    touched.push_back(it->second);
  }
  return touched;
}

// --- To sleep ------------------------------------------------------------------------------------

void PageSleep::give_back(PagedBlock& sleeper) noexcept {
  PageArena& arena = *sleeper.arena;
  const SlotRange touched = slots_touched(arena, sleeper.address, sleeper.address + sleeper.size);
  const auto may_go = [](const PagedBlock& block) { return is_sleeper(block) || is_hole(&block); };
  for (std::uint64_t i = touched.first; i < touched.last; ++i) {
    const PageSlot slot = arena.slots[i];
    if (!is_at_home(arena, slot) || (slot.first != i && i != touched.first)) continue;
    const DeviceAddress begin = arena.address_of(slot.first);
    if (!all_touching(sleeper, begin, begin + slot.page->pages->page_bytes, may_go)) continue;
    try {
      give_back(*slot.page, sleeper);
    } catch (...) {  // Without host memory it stays.
      return;
    }
  }
}

// Of one page; throws bad_alloc before anything has changed.
void PageSleep::give_back(Page& page, PagedBlock& sleeper) {
  const DeviceAddress begin = page.home.arena->address_of(page.home.slot);
  std::size_t holes = 0;
  (void)all_touching(sleeper, begin, begin + page.pages->page_bytes, [&](const PagedBlock& block) {
    holes += is_sleeper(block) ? 0 : 1;
    return true;
  });
  blocks_.prepare(2 * holes);
  page.pages->loose.reserve(page.pages->all.size());
  pages_.try_emplace(
      begin, SleepingPage{.arena = page.home.arena, .slot = page.home.slot, .pages = page.pages});
  if (!unmap(page)) {
    pages_.erase(begin);
    return;
  }
  fall_asleep(page, sleeper);
  const auto released = device_.release_pages(page.handle);
  if (!released && !is_gone(released.error())) return;  // loose: it serves somebody else
  table_.remove_page(page);
  budget_.set_device_is_short(false);
}

// Its home last, so that a page which the device does not unmap everywhere stays what it is.
bool PageSleep::unmap(Page& page) noexcept {
  while (!page.mapped.empty()) {
    const auto stale = std::ranges::find_if(
        page.mapped, [&](const PagePlace& place) { return place != page.home; });
    const PagePlace place = stale != page.mapped.end() ? *stale : page.home;
    const auto unmapped =
        device_.unmap_pages(place.arena->address_of(place.slot), page.pages->page_bytes);
    if (!unmapped && !is_gone(unmapped.error())) return false;
    table_.remove_mapping(page, place);
  }
  return true;
}

// A page that is at home there, but mapped nowhere any more.
void PageSleep::fall_asleep(Page& page, PagedBlock& sleeper) noexcept {
  PageArena& arena = *page.home.arena;
  const SleepingPage place{.arena = &arena, .slot = page.home.slot, .pages = page.pages};
  table_.large_out_of_place_ -= is_out_of_place(page) ? 1 : 0;
  make_gaps(sleeper, place);
  for (std::uint64_t i = 0; i < page.pages->span; ++i) {
    arena.slots[place.slot + i] = {.first = kAsleep};
  }
  page.home = {};
  page.pages->loose.push_back(&page);
  ++table_.version_;
  table_.begin_search();  // what the last one found is not so any more
  table_.host_.pages_left(arena, place.begin(), page.pages->page_bytes);
}

void PageSleep::make_gaps(PagedBlock& sleeper, const SleepingPage& page) noexcept {
  FreeBins& free = *page.arena->free;
  PagedBlock* block = &first_behind(sleeper, page.begin());
  while (block != nullptr && block->address < page.end()) {
    PagedBlock* gap = block;
    block = block->next;
    if (is_sleeper(*gap)) continue;
    free.erase(*gap);
    if (gap->address < page.begin()) {
      free.insert(table_.cut_front(*gap, page.begin() - gap->address));
    }
    if (gap->address + gap->size > page.end()) {
      PagedBlock& rest = *gap;
      gap = &table_.cut_front(rest, page.end() - rest.address);
      free.insert(rest);
    }
    gap->is_allocated = true;
    gap->holder = BlockHolder::kGap;
  }
}

// --- Awake again ---------------------------------------------------------------------------------

std::uint64_t PageSleep::missing_bytes(std::span<PagedBlock* const> sleepers) const {
  std::uint64_t bytes = 0;
  DeviceAddress counted = 0;  // blocks come by address, and neighbours share pages
  for (const PagedBlock* sleeper : sleepers) {
    for (const SleepingPage& page : touched_by(*sleeper)) {
      if (page.begin() < counted) continue;
      bytes += page.pages->page_bytes;
      counted = page.end();
    }
  }
  return bytes;
}

DeviceResult<void> PageSleep::bring_back(std::span<PagedBlock* const> sleepers) {
  for (PagedBlock* const sleeper : sleepers) {
    const std::vector<SleepingPage> pages = touched_by(*sleeper);
    for (std::size_t first = 0; first < pages.size();) {
      std::size_t last = first + 1;
      while (last < pages.size() && last - first < kMostInRun &&
             pages[last].begin() == pages[last - 1].end()) {
        ++last;
      }
      const auto run = std::span(pages).subspan(first, last - first);
      if (auto brought = bring_run(run, *sleeper); !brought) return brought;
      first = last;
    }
  }
  return {};
}

// Neighbours, in one call. What was created for nothing is loose.
DeviceResult<void> PageSleep::bring_run(std::span<const SleepingPage> run, PagedBlock& sleeper) {
  std::vector<Page*> made;
  made.reserve(run.size());
  handles_.clear();
  handles_.reserve(run.size());
  for (const SleepingPage& place : run) {
    table_.prepare_page(*place.pages);
    const auto handle = device_.create_pages(place.pages->page_bytes, {.exportable = true});
    if (!handle) return Unexpected(handle.error());
    made.push_back(&table_.add_page(*place.pages, *handle));
    handles_.push_back(*handle);
  }
  if (auto mapped = device_.map_pages(run.front().begin(), handles_); !mapped) return mapped;
  for (std::size_t i = 0; i < run.size(); ++i) awake(*made[i], run[i], sleeper);
  return {};
}

void PageSleep::awake(Page& page, const SleepingPage& place, PagedBlock& sleeper) noexcept {
  PageArena& arena = *place.arena;
  table_.add_mapping(page, {&arena, place.slot});
  page.home = {&arena, place.slot};
  --table_.stale_;
  table_.large_out_of_place_ += is_out_of_place(page) ? 1 : 0;
  std::erase(page.pages->loose, &page);
  pages_.erase(place.begin());
  table_.host_.pages_arrived(arena, place.begin(), page.pages->page_bytes);
  const DeviceAddress end = place.end();
  PagedBlock* block = &first_behind(sleeper, place.begin());
  while (block != nullptr && block->address < end) {
    PagedBlock& gap = *block;
    // A hole behind the page may be joined to the last gap in it, and is not to be looked at then.
    block = gap.address + gap.size < end ? gap.next : nullptr;
    if (gap.holder != BlockHolder::kGap) continue;
    gap.is_allocated = false;
    gap.holder = BlockHolder::kUser;
    gap.freed_at = clocks_.stamp(*arena.clock);
    table_.file_free(gap);
  }
}

// --- Freed meanwhile -----------------------------------------------------------------------------

void PageSleep::leave(PagedBlock& sleeper) {
  PageArena& arena = *sleeper.arena;
  const DeviceAddress begin = sleeper.address;
  const DeviceAddress end = begin + sleeper.size;
  const bool has_loans = sleeper.has_loans;
  const std::vector<SleepingPage> pages = touched_by(sleeper);
  std::vector<PagedBlock*> gaps;
  gaps.reserve(pages.size());
  blocks_.prepare(2 * pages.size() + 2);
  arena.unbacked.reserve(arena.unbacked.size() + pages.size() + 2);

  sleeper.has_loans = false;
  sleeper.stream_uses.clear();
  sleeper.requested = 0;
  sleeper.context = {};
  sleeper.holder = BlockHolder::kGap;
  const auto make_hole = [&](PagedBlock& block) {
    block.is_allocated = false;
    block.holder = BlockHolder::kUser;
    block.freed_at = clocks_.stamp(*arena.clock);
    table_.file_free(block);
  };
  PagedBlock* rest = &sleeper;
  for (const SleepingPage& page : pages) {
    if (rest->address < page.begin()) {
      make_hole(table_.cut_front(*rest, page.begin() - rest->address));
    }
    PagedBlock* gap = rest;
    if (rest->address + rest->size > page.end()) {
      gap = &table_.cut_front(*rest, page.end() - rest->address);
      gap->is_allocated = true;
      gap->holder = BlockHolder::kGap;
    } else {
      rest = nullptr;
    }
    gaps.push_back(gap);
  }
  if (rest != nullptr) make_hole(*rest);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto is_gap = [](const PagedBlock& block) { return !is_sleeper(block); };
    if (all_touching(*gaps[i], pages[i].begin(), pages[i].end(), is_gap)) {
      drop(pages[i], *gaps[i]);
    }
  }
  if (has_loans) table_.take_back_at(arena, begin, end);
}

// A page that is missing and that nobody misses: its slots are unbacked as others are.
void PageSleep::drop(const SleepingPage& page, PagedBlock& inside) noexcept {
  PagedBlock& first = first_behind(inside, page.begin());
  while (first.address + first.size < page.end()) {
    first.next->is_allocated = false;
    first.next->holder = BlockHolder::kUser;
    table_.absorb_next(first);
  }
  HEADROOM_ASSERT(first.address == page.begin() && first.address + first.size == page.end(),
                  "gaps lie in one page each");
  first.is_allocated = false;
  first.holder = BlockHolder::kUser;
  for (std::uint64_t i = 0; i < page.pages->span; ++i) page.arena->slots[page.slot + i] = {};
  pages_.erase(page.begin());
  table_.file_unbacked(first);
}

// --- Rules ---------------------------------------------------------------------------------------

std::optional<std::string> PageSleep::check_page(const SleepingPage& page) const {
  std::size_t sleepers = 0;
  for (const PagedBlock* block = page.arena->first; block != nullptr; block = block->next) {
    if (block->address + block->size <= page.begin() || block->address >= page.end()) continue;
    sleepers += is_sleeper(*block) ? 1 : 0;
    if (!is_sleeper(*block) && block->holder != BlockHolder::kGap) {
      return "a page sleeps although something awake touches it";
    }
  }
  if (sleepers == 0) return "a page sleeps that no sleeping block touches";
  for (std::uint64_t i = page.slot; i < page.slot + page.pages->span; ++i) {
    if (!is_asleep(page.arena->slots[i])) return "a slot does not know that its page sleeps";
  }
  return std::nullopt;
}

std::optional<std::string> PageSleep::check_arena(const PageArena& arena) const {
  for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
    if (block->holder != BlockHolder::kGap) continue;
    const auto around = first_touching(block->address);
    if (around == pages_.end() || around->second.begin() > block->address ||
        around->second.end() < block->address + block->size) {
      return "a gap does not lie in a page that sleeps";
    }
  }
  return std::nullopt;
}

std::optional<std::string> PageSleep::check() const {
  std::uint64_t slots = 0;
  for (const auto& [begin, page] : pages_) {
    if (page.begin() != begin) return "a page that sleeps is filed wrongly";
    if (auto problem = check_page(page)) return problem;
    slots += page.pages->span;
  }
  for (const PageArena& arena : table_.arenas()) {
    if (auto problem = check_arena(arena)) return problem;
    slots -= static_cast<std::uint64_t>(std::ranges::count_if(arena.slots, is_asleep));
  }
  if (slots != 0) return "slots that sleep are miscounted";
  return std::nullopt;
}

}  // namespace headroom::memory::internal
