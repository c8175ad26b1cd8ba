// Giving pages back to the device, in PageMover.
#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/paged/internal/page_mover.h"

namespace headroom::memory::internal {

bool PageMover::can_unmap_all(const Page& page) const noexcept {
  if (clocks_.is_capturing()) return false;
  return std::ranges::all_of(page.mapped, [&](const PagePlace& place) {
    const std::uint64_t since =
        place == page.home ? page.cover->freed_at : place.arena->slots[place.slot].idle_since;
    return since <= place.arena->clock->done;
  });
}

// Of a free page that nobody uses through any mapping. What fails on the way leaves it loose.
bool PageMover::release_page(Page& page) noexcept {
  if (page.home.arena != nullptr) {
    try {
      table_.make_loose({&page});
    } catch (...) {
      return false;
    }
  }
  while (!page.mapped.empty()) {
    if (!unmap(page, page.mapped.back())) return false;
  }
  const auto released = device_.release_pages(page.handle);
  if (!released && !is_gone(released.error())) return false;
  table_.remove_page(page);
  budget_.set_device_is_short(false);
  return true;
}

bool PageMover::make_room(const PageArena& arena, std::uint64_t wanted_bytes, bool in_cushion) {
  const auto fits_after = [&](std::uint64_t released) {
    return budget_.room_in_limit(released) >= wanted_bytes &&
           (!in_cushion || budget_.room_in_cushion(released) >= wanted_bytes);
  };
  if (fits_after(0)) return true;
  if (clocks_.is_capturing()) return false;
  std::vector<Page*> pages = pages_to_replace(arena);
  // Little more goes back than is created instead: what reserve() took is not for this.
  const std::uint64_t most = saturating_add(wanted_bytes, budget_.reserved_bytes() / 16);
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (!fits_after(bytes)) {
    if (count == pages.size() || bytes >= most) return false;
    bytes += pages[count++]->pages->page_bytes;
  }
  pages.resize(count);
  for (Page* page : pages) (void)release_page(*page);
  search_.begin();
  return fits_after(0);
}

// Free pages of sizes that do not fit everywhere in the arena, and that nobody uses; those that
// were free for longest first.
std::vector<Page*> PageMover::pages_to_replace(const PageArena& arena) {
  const bool is_slab = arena.kind == ArenaKind::kSlab;
  const PageClass& fitting = table_.class_of(is_slab               ? PageSize::kSlab
                                             : table_.has_halves() ? PageSize::kHalf
                                                                   : PageSize::kWhole);
  std::vector<Page*> pages;
  const auto add = [&](Page& page) {
    if (page.pages != &fitting && can_unmap_all(page)) pages.push_back(&page);
  };
  for (PageClass& loose : table_.classes()) {
    for (Page* page : loose.loose) add(*page);
  }
  for (const PagedBlock* cover : search_.covers()) for_each_free_page(*cover->arena, *cover, add);
  std::ranges::stable_sort(pages, {}, [](const Page* page) {
    return page->home.arena == nullptr ? 0 : page->cover->freed_at;
  });
  return pages;
}

void PageMover::release_some(PageClass& pages, std::uint64_t most_bytes, std::uint64_t& released) {
  for (Page& page : pages.all) {
    if (released + pages.page_bytes > most_bytes) return;
    const bool exists = page.handle != device::PageHandle::kNone;
    if (!exists || !table_.is_free(page) || !can_unmap_all(page)) continue;
    if (release_page(page)) released += pages.page_bytes;
  }
}

// The largest first: the fewest calls of the device for the bytes.
std::uint64_t PageMover::release_free(std::uint64_t most_bytes) {
  std::uint64_t released = 0;
  if (clocks_.is_capturing()) return released;
  for (const PageSize size :
       {PageSize::kLarge, PageSize::kWhole, PageSize::kHalf, PageSize::kSlab}) {
    release_some(table_.class_of(size), most_bytes, released);
  }
  return released;
}

void PageMover::release_loose() noexcept {
  if (clocks_.is_capturing()) return;
  for (PageClass& pages : table_.classes()) {
    for (std::size_t i = pages.loose.size(); i-- > 0;) {
      Page& page = *pages.loose[i];
      if (can_unmap_all(page)) (void)release_page(page);
    }
  }
}

std::uint64_t PageMover::unmap_stale(std::uint64_t most) {
  std::uint64_t count = 0;
  if (clocks_.is_capturing()) return count;
  // In steps that repeat themselves the mappings that decisions know of stay, unless all have to
  // go.
  const bool keeps_seen = table_.rest_number() > 0 && most < UINT64_MAX;
  for (PageArena& arena : table_.arenas()) {
    if (arena.is_private()) continue;
    for (std::uint64_t i = 0; i < arena.slots.size() && count < most; ++i) {
      const PageSlot slot = arena.slots[i];
      if (slot.page == nullptr || slot.loan != nullptr || is_at_home(arena, slot)) continue;
      if (keeps_seen && slot.rest == table_.rest_number()) continue;
      if (slot.idle_since > arena.clock->done) continue;
      count += unmap(*slot.page, {&arena, slot.first}) ? 1 : 0;
    }
  }
  return count;
}

void PageMover::release_all() noexcept {
  for (PageArena& arena : table_.arenas()) {
    if (arena.source != nullptr) continue;  // not the device's
    const bool has_any =
        arena.is_private() ||
        std::ranges::any_of(arena.slots, [](const PageSlot& slot) { return slot.page != nullptr; });
    if (has_any) (void)device_.unmap_pages(arena.base, arena.size);
    for (const PoolHandle& handle : arena.handles) (void)device_.release_pages(handle.handle);
  }
  for (const PageClass& pages : table_.classes()) {
    for (const Page& page : pages.all) {
      if (page.handle != device::PageHandle::kNone) (void)device_.release_pages(page.handle);
    }
  }
}

}  // namespace headroom::memory::internal
