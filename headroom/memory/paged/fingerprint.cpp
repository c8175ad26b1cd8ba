// All that decides what a PagedAllocator does next, as one number. Addresses count from their
// arena's begin, times by their order: the same state elsewhere, or later, has the same number.
#include "headroom/base/fingerprint.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {
namespace {

using internal::Page;
using internal::PageArena;
using internal::PagedBlock;
using internal::PageSlot;
using internal::PageTable;

// Pages have no names of their own: they are numbered in the order in which they are met.
class PageNumbers {
 public:
  std::uint64_t number(const Page* page) {
    return page == nullptr ? 0 : numbers_.try_emplace(page, numbers_.size() + 1).first->second;
  }

 private:
  std::unordered_map<const Page*, std::uint64_t> numbers_{};
};

void add_blocks(const PageArena& arena, Fingerprint& print) {
  print.add(static_cast<std::uint64_t>(arena.kind)).add(static_cast<std::uint64_t>(arena.stream()));
  for (const PagedBlock* block = arena.first; block != nullptr; block = block->next) {
    print.add(block->size)
        .add((block->is_of_user() ? 0U : 4U) + (block->is_mapped ? 2U : 0U) +
             (block->is_free() ? 1U : 0U));
  }
  // A search looks at the first few of a bin.
  arena.free->for_each([&](const PagedBlock& block) { print.add(block.address - arena.base); });
}

// Mappings that no decision knows of are left out.
void add_slots(const PageArena& arena,
               const PageTable& table,
               PageNumbers& numbers,
               Fingerprint& print) {
  print.add(arena.top);
  for (std::uint64_t i = 0; i < arena.top; ++i) {
    const PageSlot slot = table.seen(arena, i);
    print.add(numbers.number(slot.page));
    if (slot.page == nullptr) continue;
    print.add(slot.page->pages->span)
        .add((is_at_home(arena, slot) ? 1U : 0U) + (slot.loan != nullptr ? 2U : 0U));
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
    arena.free->for_each([&](const PagedBlock& block) {
      free.push_back({block.freed_at, number, block.address - arena.base});
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
  for (const PageArena& arena : s.table.arenas()) {
    add_blocks(arena, print);
    add_slots(arena, s.table, numbers, print);
  }
  add_ages(s.table.arenas(), print);
  for (const internal::PageClass& pages : s.table.classes()) {
    print.add(pages.count);
    for (const Page* page : pages.loose) print.add(numbers.number(page));
  }
  s.slabs.add_to(print);
  print.add(s.budget.peak_live())
      .add(s.budget.peak_needed())
      .add(s.budget.unsettled_bytes())
      .add(s.budget.keeps_apart() ? 1 : 0);
  print.add(s.tight_until > s.clocks.now() ? s.tight_until - s.clocks.now() : 0);
  print.add(static_cast<std::uint64_t>(stats_.live_bytes.peak)).add(s.budget.cushion_end());
  return print.value();
}

}  // namespace headroom::memory
