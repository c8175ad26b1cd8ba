#include "headroom/trace/record/internal/live_entries.h"

#include <algorithm>
#include <iterator>

namespace headroom::trace::internal {

void LiveEntries::apply(std::span<const Entry> entries) {
  for (const Entry& entry : entries) apply(entry);
}

void LiveEntries::apply(const Entry& entry) {
  const std::uint64_t number = next_++;
  switch (entry.action) {
    case Action::kAlloc:
      blocks_[entry.address] = {.taken = {.entry = entry, .number = number}};
      break;
    case Action::kFreeRequested:
      if (const auto block = blocks_.find(entry.address); block != blocks_.end()) {
        block->second.freed = Numbered{.entry = entry, .number = number};
      }
      break;
    case Action::kFreeCompleted:
      blocks_.erase(entry.address);
      break;
    case Action::kSegmentAlloc:
    case Action::kSegmentMap:
      cut(entry.address, entry.address + entry.size_bytes);
      segments_[entry.address] = {.entry = entry, .number = number};
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      cut(entry.address, entry.address + entry.size_bytes);
      break;
    default:
      break;
  }
}

// What lies around the range stays: an unmapping may take a part of what was mapped at once.
void LiveEntries::cut(DeviceAddress first, DeviceAddress last) {
  auto segment = segments_.lower_bound(first);
  if (segment != segments_.begin()) segment = std::prev(segment);
  while (segment != segments_.end() && segment->first < last) {
    const Numbered old = segment->second;
    const DeviceAddress begin = old.entry.address;
    const DeviceAddress end = begin + old.entry.size_bytes;
    if (end <= first) {
      ++segment;
      continue;
    }
    segment = segments_.erase(segment);
    if (begin < first) {
      Numbered before = old;
      before.entry.size_bytes = first - begin;
      segments_[begin] = before;
    }
    if (end > last) {
      Numbered after = old;
      after.entry.address = last;
      after.entry.size_bytes = end - last;
      segments_[last] = after;
    }
  }
}

std::vector<Entry> LiveEntries::all() const {
  std::vector<Numbered> numbered;
  numbered.reserve(segments_.size() + blocks_.size());
  for (const auto& [address, segment] : segments_) numbered.push_back(segment);
  for (const auto& [address, block] : blocks_) {
    numbered.push_back(block.taken);
    if (block.freed) numbered.push_back(*block.freed);
  }
  std::ranges::sort(numbered, {}, &Numbered::number);
  std::vector<Entry> entries;
  entries.reserve(numbered.size());
  for (const Numbered& one : numbered) entries.push_back(one.entry);
  return entries;
}

}  // namespace headroom::trace::internal
