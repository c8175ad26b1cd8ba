#include "headroom/analysis/internal/large_space.h"

#include <algorithm>
#include <iterator>

namespace headroom::analysis::internal {

LargeSpace::Segments::const_iterator LargeSpace::segment_of(DeviceAddress address) const {
  auto found = segments_.upper_bound(address);
  if (found == segments_.begin()) return segments_.end();
  --found;
  return address - found->first < found->second ? found : segments_.end();
}

LargeSpace::Blocks::iterator LargeSpace::insert(DeviceAddress address,
                                                std::uint64_t rounded,
                                                std::uint32_t owner) {
  if (segment_of(address) == segments_.end()) return blocks_.end();
  const auto block =
      blocks_.insert_or_assign(address, Extent{.rounded = rounded, .size = rounded, .owner = owner})
          .first;
  settle(block);
  return block;
}

void LargeSpace::insert_known(DeviceAddress address, const Extent& extent) {
  if (segment_of(address) != segments_.end()) blocks_.insert_or_assign(address, extent);
}

void LargeSpace::settle(Blocks::iterator block) {
  const auto segment = segment_of(block->first);
  if (segment == segments_.end()) return;
  std::uint64_t room = segment->second - (block->first - segment->first);
  const auto next = std::next(block);
  if (next != blocks_.end()) room = std::min(room, next->first - block->first);
  // Never smaller: what was seen once stays.
  block->second.size = std::max(block->second.size, rule_.size_in(room, block->second.rounded));
}

}  // namespace headroom::analysis::internal
