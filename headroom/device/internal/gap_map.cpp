#include "headroom/device/internal/gap_map.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"

namespace headroom::device::internal {
namespace {

std::size_t size_class(std::uint64_t size_bytes) noexcept {
  return static_cast<std::size_t>(std::bit_width(size_bytes)) - 1;
}

}  // namespace

GapMap::GapMap(DeviceAddress begin, DeviceAddress end) : begin_(begin), end_(end) {
  HEADROOM_CHECK(begin < end, "an arena without addresses");
  insert(begin, end);
}

std::optional<DeviceAddress> GapMap::highest(std::uint64_t size_bytes,
                                             std::uint64_t alignment) const noexcept {
  std::optional<DeviceAddress> best;
  for (std::size_t n = size_class(size_bytes); n < starts_.size(); ++n) {
    for (auto it = starts_[n].rbegin(); it != starts_[n].rend(); ++it) {
      if (best && *it < *best) break;
      const DeviceAddress end = gaps_.find(*it)->second;
      if (end - *it < size_bytes) continue;
      const DeviceAddress address = round_down(end - size_bytes, alignment);
      if (address < *it) continue;
      best = address;
      break;
    }
  }
  return best;
}

std::optional<DeviceAddress> GapMap::lowest(std::uint64_t size_bytes,
                                            std::uint64_t alignment) const noexcept {
  std::optional<DeviceAddress> best;
  for (std::size_t n = size_class(size_bytes); n < starts_.size(); ++n) {
    for (const DeviceAddress start : starts_[n]) {
      if (best && start > *best) break;
      const DeviceAddress end = gaps_.find(start)->second;
      const auto address = checked_round_up(start, alignment);
      if (!address || *address > end || end - *address < size_bytes) continue;
      best = *address;
      break;
    }
  }
  return best;
}

void GapMap::take(DeviceAddress address, std::uint64_t size_bytes) {
  const DeviceAddress first = std::max(address, begin_);
  const DeviceAddress last = std::min(address + size_bytes, end_);
  if (first >= last) return;
  auto gap = gaps_.upper_bound(first);
  HEADROOM_CHECK(gap != gaps_.begin(), "addresses are taken twice");
  --gap;
  const DeviceAddress gap_end = gap->second;
  HEADROOM_CHECK(last <= gap_end, "addresses are taken twice");
  if (last < gap_end) insert(last, gap_end);
  if (first == gap->first) {
    erase(gap);
    return;
  }
  try {
    resize(gap, first);
  } catch (...) {
    if (last < gap_end) erase(gaps_.find(last));
    throw;
  }
}

void GapMap::give_back(DeviceAddress address, std::uint64_t size_bytes) {
  const DeviceAddress first = std::max(address, begin_);
  DeviceAddress last = std::min(address + size_bytes, end_);
  if (first >= last) return;
  const auto above = gaps_.lower_bound(first);
  const bool joins_above = above != gaps_.end() && above->first == last;
  HEADROOM_CHECK(above == gaps_.end() || above->first >= last, "unused addresses are given back");
  if (joins_above) last = above->second;
  const auto below = above == gaps_.begin() ? gaps_.end() : std::prev(above);
  if (below != gaps_.end() && below->second == first) {
    resize(below, last);
  } else {
    insert(first, last);
  }
  if (joins_above) erase(above);
}

void GapMap::insert(DeviceAddress start, DeviceAddress end) {
  const auto gap = gaps_.emplace(start, end).first;
  try {
    starts_[size_class(end - start)].insert(start);
  } catch (...) {
    gaps_.erase(gap);
    throw;
  }
}

void GapMap::erase(std::map<DeviceAddress, DeviceAddress>::iterator gap) noexcept {
  starts_[size_class(gap->second - gap->first)].erase(gap->first);
  gaps_.erase(gap);
}

void GapMap::resize(std::map<DeviceAddress, DeviceAddress>::iterator gap, DeviceAddress end) {
  const std::size_t before = size_class(gap->second - gap->first);
  const std::size_t after = size_class(end - gap->first);
  if (before != after) {
    starts_[after].insert(gap->first);
    starts_[before].erase(gap->first);
  }
  gap->second = end;
}

}  // namespace headroom::device::internal
