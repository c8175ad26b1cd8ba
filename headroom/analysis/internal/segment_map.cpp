#include "headroom/analysis/internal/segment_map.h"

#include <algorithm>
#include <iterator>

#include "headroom/base/checked.h"

namespace headroom::analysis::internal {
namespace {

using memory::SegmentInfo;

DeviceAddress end_of(const SegmentInfo& segment) { return segment.address + segment.size_bytes; }

bool may_join(const SegmentInfo& a, const SegmentInfo& b) {
  return a.is_expandable && b.is_expandable && a.stream == b.stream && end_of(a) == b.address;
}

}  // namespace

bool SegmentMap::add(const SegmentInfo& segment) {
  return segments_.emplace(segment.address, segment).second;
}

bool SegmentMap::remove(DeviceAddress address) {
  unknown_.erase(address);
  return segments_.erase(address) != 0;
}

void SegmentMap::add_range(const SegmentInfo& range) {
  const auto [at, is_new] = segments_.emplace(range.address, range);
  if (!is_new) return;
  unknown_.insert(range.address);
  // A fact about a neighbour holds for the whole run.
  const auto join = [&](auto left, auto right) {
    SegmentInfo joined = is_kind_known(left->first) ? left->second : right->second;
    const bool is_known = is_kind_known(left->first) || is_kind_known(right->first);
    joined.address = left->first;
    joined.size_bytes = left->second.size_bytes + right->second.size_bytes;
    unknown_.erase(right->first);
    if (is_known) unknown_.erase(left->first);
    segments_.erase(right);
    left->second = joined;
  };
  if (const auto next = std::next(at);
      next != segments_.end() && may_join(at->second, next->second)) {
    join(at, next);
  }
  if (at == segments_.begin()) return;
  if (const auto left = std::prev(at); may_join(left->second, at->second)) join(left, at);
}

bool SegmentMap::remove_range(DeviceAddress address, std::uint64_t size_bytes) {
  const DeviceAddress end = checked_add(address, size_bytes).value_or(UINT64_MAX);
  std::uint64_t removed = 0;
  auto at = segments_.upper_bound(address);
  if (at != segments_.begin()) --at;
  while (at != segments_.end() && at->first < end) {
    const SegmentInfo run = at->second;
    const DeviceAddress from = std::max(address, run.address);
    const DeviceAddress to = std::min(end, end_of(run));
    if (!run.is_expandable || from >= to) {
      ++at;
      continue;
    }
    removed += to - from;
    const bool is_known = is_kind_known(run.address);
    unknown_.erase(run.address);
    at = segments_.erase(at);
    const auto keep = [&](DeviceAddress first, DeviceAddress last) {
      if (first >= last) return;
      SegmentInfo rest = run;
      rest.address = first;
      rest.size_bytes = last - first;
      segments_.emplace(first, rest);
      if (!is_known) unknown_.insert(first);
    };
    keep(run.address, from);
    keep(to, end_of(run));
  }
  return removed == size_bytes;
}

}  // namespace headroom::analysis::internal
