// All that decides what a CachingAllocator does next, as one number. Segments count in the order
// in which searches prefer them, so that their addresses do not matter where those do not decide.
#include "headroom/base/fingerprint.h"

#include <algorithm>
#include <vector>

#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/caching/internal/caching_state.h"

namespace headroom::memory {

using internal::Block;
using internal::BlockPool;

std::uint64_t CachingAllocator::core_fingerprint() const {
  const internal::CachingState& s = *state_;
  std::vector<const Block*> heads;
  const auto add_head = [&](const Block& block) {
    if (block.prev == nullptr) heads.push_back(&block);
  };
  s.active.for_each(add_head);
  const auto add_pool = [&](const BlockPool& pool) {
    pool.for_each_free(add_head);
    for (const internal::UnmappedKey& key : pool.unmapped) add_head(*key.block);
  };
  add_pool(s.small);
  add_pool(s.large);
  for (const auto& [id, pool] : s.private_pools) {
    add_pool(pool->small);
    add_pool(pool->large);
  }
  std::ranges::sort(heads, [](const Block* a, const Block* b) {
    return a->tie != b->tie ? a->tie < b->tie : a->address < b->address;
  });
  // Ages matter to garbage collection alone, and grow in steps that are otherwise the same.
  const bool has_ages = s.config.garbage_collection_threshold > 0;
  Fingerprint print;
  for (const Block* head : heads) {
    print.add(head->pool->is_small ? 1 : 0).add(head->pool->id().user);
    print.add(static_cast<std::uint64_t>(head->stream));
    for (const Block* block = head; block != nullptr; block = block->next) {
      print.add(block->size).add((block->is_mapped ? 2U : 0U) + (block->is_free() ? 1U : 0U));
      if (has_ages && block->is_free()) print.add(block->pool->searches - block->gc_base);
    }
  }
  return print.value();
}

}  // namespace headroom::memory
