// All that decides what a PagedAllocator does next, as one number. Addresses count from their
// arena's begin, times by their order: the same state elsewhere, or later, has the same number.
#include "headroom/base/fingerprint.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "headroom/memory/internal/paged_state.h"

namespace headroom::memory {
namespace {

using internal::Block;
using internal::Page;
using internal::PageArena;
using internal::PageSlot;
using internal::PageStore;

// Pages have no names of their own: they are numbered as they are met.
class PageNumbers {
 public:
  std::uint64_t of(const Page* page) {
    return page == nullptr ? 0 : numbers_.try_emplace(page, numbers_.size() + 1).first->second;
  }

 private:
  std::unordered_map<const Page*, std::uint64_t> numbers_{};
};

void add_blocks(const PageArena& arena, Fingerprint& print) {
  print.add(static_cast<std::uint64_t>(arena.kind)).add(static_cast<std::uint64_t>(arena.stream()));
  for (const Block* block = arena.first; block != nullptr; block = block->next) {
    print.add(block->size).add((block->is_mapped ? 2U : 0U) + (block->is_free() ? 1U : 0U));
  }
  // A search looks at the first few of a bin.
  arena.free->for_each([&](const Block& block) { print.add(block.address - arena.base); });
}

// Mappings that no decision knows of are left out.
void add_slots(const PageArena& arena,
               const PageStore& store,
               PageNumbers& numbers,
               Fingerprint& print) {
  print.add(arena.top);
  for (std::uint64_t i = 0; i < arena.top; ++i) {
    const PageSlot slot = store.seen(arena, i);
    print.add(numbers.of(slot.page));
    if (slot.page == nullptr) continue;
    print.add(slot.page->pages->span).add(is_at_home(arena, slot) ? 1 : 0);
  }
}

// Free pages move in the order in which their blocks became free.
void add_ages(const std::list<PageArena>& arenas, Fingerprint& print) {
  struct Aged {
    std::uint64_t age = 0;
    std::uint64_t arena = 0;
    std::uint64_t offset = 0;
  };
  std::vector<Aged> free;
  std::uint64_t number = 0;
  for (const PageArena& arena : arenas) {
    arena.free->for_each([&](const Block& block) {
      free.push_back({block.gc_base, number, block.address - arena.base});
    });
    ++number;
  }
  std::ranges::stable_sort(free, {}, &Aged::age);
  for (std::size_t i = 0; i < free.size(); ++i) {
    const bool is_as_old = i > 0 && free[i].age == free[i - 1].age;
    print.add(free[i].arena).add(free[i].offset).add(is_as_old ? 1 : 0);
  }
}

}  // namespace

std::uint64_t PagedAllocator::core_fingerprint() const {
  const internal::PagedState& s = *state_;
  Fingerprint print;
  PageNumbers numbers;
  for (const PageArena& arena : s.store.arenas()) {
    add_blocks(arena, print);
    add_slots(arena, s.store, numbers, print);
  }
  add_ages(s.store.arenas(), print);
  for (const internal::PageClass& pages : s.store.classes()) {
    print.add(pages.count);
    for (const Page* page : pages.loose) print.add(numbers.of(page));
  }
  s.slabs.add_to(print);
  print.add(s.peak_live).add(s.peak_needed).add(s.unsettled).add(s.keeps_apart ? 1 : 0);
  print.add(static_cast<std::uint64_t>(stats_.live_bytes.peak)).add(s.cushion_end());
  return print.value();
}

}  // namespace headroom::memory
