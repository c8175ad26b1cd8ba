#include "headroom/memory/paged/internal/page_rests.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "headroom/base/fingerprint.h"

namespace headroom::memory::internal {

namespace {

// Steps that end in turn with one of a few sets of blocks: batches that are loaded ahead.
constexpr std::size_t kMostRests = 4;

}  // namespace

std::uint64_t PageRests::fingerprint_of_blocks() const {
  Fingerprint print;
  for (const PageArena& arena : table_.arenas()) {
    if (arena.is_private()) continue;
    print.add(arena.base);
    for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
      if (block->is_mapped && !block->is_free()) print.add(block->address).add(block->size);
    }
  }
  return print.value();
}

void PageRests::rest() {
  // Pages of one stream follow one another in its order; with several, somebody would have to wait.
  if (clocks_.is_capturing() || clocks_.size() > 1) return;
  table_.take_back_idle();
  search_.begin();
  const std::uint64_t blocks = fingerprint_of_blocks();
  const auto known = std::ranges::find_if(rests_, [&](const Rest& rest) {
    return rest.blocks == blocks && rest.version == table_.version();
  });
  if (known == rests_.end()) {
    remember(blocks);
  } else {
    return_to(*known);
  }
  order_holes();
  table_.begin_rest();  // from here on only what happens counts
}

void PageRests::remember(std::uint64_t blocks) {
  std::erase_if(rests_, [&](const Rest& rest) { return rest.version != table_.version(); });
  if (rests_.size() == kMostRests) rests_.pop_front();
  Rest& rest = rests_.emplace_back(Rest{.blocks = blocks, .version = table_.version()});
  table_.for_each_page([&](const Page& page) { rest.homes.push_back(page.home); });
  for (const PageArena& arena : table_.arenas()) rest.tops.push_back(arena.top);
}

void PageRests::return_to(const Rest& rest) {
  std::vector<Page*> leaving;
  std::map<DeviceAddress, std::vector<NewHome>> arriving;  // by arena
  std::map<DeviceAddress, PageArena*> arenas;
  bool is_possible = true;
  std::size_t i = 0;
  table_.for_each_page([&](Page& page) {
    const PagePlace& home = rest.homes[i++];
    if (page.home == home) return;
    is_possible = is_possible && table_.is_free(page);
    if (page.home.arena != nullptr) leaving.push_back(&page);
    if (home.arena == nullptr) return;
    arenas[home.arena->base] = home.arena;
    arriving[home.arena->base].push_back({.slot = home.slot, .pages = page.pages, .page = &page});
  });
  if (!is_possible) return;
  table_.make_loose(leaving);
  for (auto& [base, homes] : arriving) mover_.bring_home(*arenas[base], std::move(homes));
  auto top = rest.tops.begin();
  for (PageArena& arena : table_.arenas()) {
    if (top != rest.tops.end()) arena.top = *top++;
  }
}

// By address and all as old as the newest of them: that is how long none was used, at least.
void PageRests::order_holes() {
  std::uint64_t newest = 0;
  for (PageArena& arena : table_.arenas()) {
    if (arena.is_private()) continue;
    arena.free->for_each([&](const PagedBlock& hole) { newest = std::max(newest, hole.freed_at); });
  }
  std::vector<PagedBlock*> holes;
  for (PageArena& arena : table_.arenas()) {
    if (arena.is_private()) continue;
    holes.clear();
    arena.free->for_each([&](PagedBlock& hole) { holes.push_back(&hole); });
    std::ranges::sort(holes, std::greater<>(), &PagedBlock::address);
    for (PagedBlock* hole : holes) {
      arena.free->erase(*hole);
      hole->freed_at = newest;
      arena.free->insert(*hole);
    }
  }
  for (PageClass& pages : table_.classes()) {
    pages.loose.clear();
    for (Page& page : pages.all) {
      if (page.handle != device::PageHandle::kNone && page.home.arena == nullptr) {
        pages.loose.push_back(&page);
      }
    }
  }
}

}  // namespace headroom::memory::internal
