// Rests: the ends of steps that repeat themselves.
//
// Where pages lie when a step begins decides which of them it moves, and so where they lie when it
// ends. Left alone this wanders: of training runs some need another page after a hundred steps. So
// at the end of a step free pages go back to where they were at the end of an earlier one. The
// places map them still, as those that the step moves them to will, so nothing is asked of the
// device; and once a step creates no page, no later one does.
#include <algorithm>
#include <map>

#include "headroom/base/fingerprint.h"
#include "headroom/memory/internal/page_store.h"

namespace headroom::memory::internal {

namespace {

// Steps that end in turn with one of a few sets of blocks: batches that are loaded ahead.
constexpr std::size_t kMostRests = 4;

}  // namespace

template <class Function>
void PageStore::for_each_page(Function&& function) {
  for (PageClass& pages : classes_) {
    for (Page& page : pages.all) {
      if (page.handle != device::PageHandle::kNone) function(page);
    }
  }
}

std::uint64_t PageStore::blocks_in_use() const {
  Fingerprint print;
  for (const PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    print.add(arena.base);
    for (const Block* block = arena.first; block != nullptr; block = block->next) {
      if (block->is_mapped && !block->is_free()) print.add(block->address).add(block->size);
    }
  }
  return print.value();
}

void PageStore::rest() {
  // Pages of one stream follow one another in its order; with several, somebody would have to wait.
  if (is_capturing_ || clocks_.size() > 1) return;
  begin_search();
  const std::uint64_t blocks = blocks_in_use();
  const auto known = std::ranges::find_if(rests_, [&](const Rest& rest) {
    return rest.blocks == blocks && rest.version == pages_version_;
  });
  if (known == rests_.end()) {
    note_rest(blocks);
  } else {
    return_to(*known);
  }
  order_free();
  ++rest_number_;  // from here on only what happens counts
}

void PageStore::note_rest(std::uint64_t blocks) {
  std::erase_if(rests_, [&](const Rest& rest) { return rest.version != pages_version_; });
  if (rests_.size() == kMostRests) rests_.pop_front();
  Rest& rest = rests_.emplace_back(Rest{.blocks = blocks, .version = pages_version_});
  for_each_page([&](const Page& page) { rest.homes.push_back(page.home); });
  for (const PageArena& arena : arenas_) rest.tops.push_back(arena.top);
}

void PageStore::return_to(const Rest& rest) {
  std::vector<Page*> leaving;
  std::map<DeviceAddress, std::vector<Return>> arriving;  // by arena
  bool is_possible = true;
  std::size_t i = 0;
  for_each_page([&](Page& page) {
    const PagePlace& home = rest.homes[i++];
    if (page.home == home) return;
    is_possible = is_possible && is_free(page);
    if (page.home.arena != nullptr) leaving.push_back(&page);
    if (home.arena != nullptr) arriving[home.arena->base].push_back({&page, home});
  });
  if (!is_possible) return;
  blocks_.prepare(2 * leaving.size() + 4);
  for (PageClass& pages : classes_) pages.loose.reserve(pages.all.size());
  for (PageArena& arena : arenas_) {
    if (!arena.is_private()) arena.unbacked.reserve(arena.unbacked.size() + leaving.size() + 2);
  }
  const std::vector<Page*> left = leaving;
  leave_homes(leaving);
  for (Page* page : left) page->pages->loose.push_back(page);
  for (const auto& [base, returns] : arriving) bring_home(*returns.front().home.arena, returns);
  auto top = rest.tops.begin();
  for (PageArena& arena : arenas_) {
    if (top != rest.tops.end()) arena.top = *top++;
  }
}

// Pages that are at home nowhere, to places of one arena that nobody has.
void PageStore::bring_home(PageArena& arena, const std::vector<Return>& returns) {
  Plan plan{.arena = &arena};
  for (const Return& one : returns) {
    plan.needs.push_back({.slot = one.home.slot, .pages = one.page->pages, .page = one.page});
    plan.taken.push_back(one.page);
  }
  revive_mapped(plan);
  for (const Need& need : plan.needs) {
    for (std::uint64_t i = need.slot; i < need.slot + need.pages->span; ++i) {
      if (is_in_the_way(arena, i)) return;
    }
  }
  for (Page* page : plan.taken) page->mark = mark_ + 1;
  prepare_commit(plan);
  auto done = unmap_stale(plan);
  if (done) done = map_needs(plan);
  if (done) {
    (void)commit(plan);
  } else {
    forget(plan);
  }
}

// By address and all as old as the newest of them: that is how long none was used, at least.
void PageStore::order_free() {
  std::uint64_t newest = 0;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    arena.free->for_each([&](const Block& block) { newest = std::max(newest, block.gc_base); });
  }
  std::vector<Block*> free;
  for (PageArena& arena : arenas_) {
    if (arena.is_private()) continue;
    free.clear();
    arena.free->for_each([&](Block& block) { free.push_back(&block); });
    std::ranges::sort(free, std::greater<>(), &Block::address);
    for (Block* block : free) {
      arena.free->erase(*block);
      block->gc_base = newest;
      arena.free->insert(*block);
    }
  }
  for (PageClass& pages : classes_) {
    pages.loose.clear();
    for (Page& page : pages.all) {
      if (page.handle != device::PageHandle::kNone && page.home.arena == nullptr) {
        pages.loose.push_back(&page);
      }
    }
  }
}

}  // namespace headroom::memory::internal
