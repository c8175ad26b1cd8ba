#include "headroom/device/internal/ledger.h"

#include <iterator>
#include <string>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/device/internal/ids.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

using Ranges = std::map<DeviceAddress, std::uint64_t>;

// The range that starts at or below `address`, if any.
template <class Map>
typename Map::const_iterator at_or_below(const Map& map, DeviceAddress address) noexcept {
  auto it = map.upper_bound(address);
  return it == map.begin() ? map.end() : std::prev(it);
}

bool overlaps(const Ranges& ranges, DeviceAddress address, std::uint64_t size_bytes) noexcept {
  const auto next = ranges.lower_bound(address);
  if (next != ranges.end() && next->first - address < size_bytes) return true;
  const auto below = at_or_below(ranges, address);
  return below != ranges.end() && address - below->first < below->second;
}

// Whether one of `ranges` holds all of [address, address + size).
bool holds(const Ranges& ranges, DeviceAddress address, std::uint64_t size_bytes) noexcept {
  const auto below = at_or_below(ranges, address);
  if (below == ranges.end()) return false;
  const std::uint64_t offset = address - below->first;
  return offset <= below->second && size_bytes <= below->second - offset;
}

}  // namespace

bool Ledger::owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept {
  if (holds(segments_, address, size_bytes)) return true;
  auto it = at_or_below(mappings_, address);
  DeviceAddress at = address;
  std::uint64_t left = size_bytes;
  while (it != mappings_.end() && it->first <= at && at - it->first < it->second.size_bytes) {
    const std::uint64_t here = it->second.size_bytes - (at - it->first);
    if (left <= here) return true;
    at += here;
    left -= here;
    ++it;
  }
  return false;
}

DeviceResult<void> Ledger::check_room(std::uint64_t size_bytes) const noexcept {
  const std::uint64_t free_bytes = limits_.capacity_bytes - used_bytes_;
  if (size_bytes > free_bytes) {
    return fail(StatusCode::kOutOfMemory,
                "past the device's capacity; bytes asked for against bytes free",
                size_bytes,
                free_bytes);
  }
  return {};
}

bool Ledger::overlaps_anything(DeviceAddress address, std::uint64_t size_bytes) const noexcept {
  return overlaps(segments_, address, size_bytes) || overlaps(reservations_, address, size_bytes);
}

DeviceResult<void> Ledger::add_segment(DeviceAddress address, std::uint64_t size_bytes) {
  if (auto room = check_room(size_bytes); !room) return room;
  if (address == 0 || !checked_add(address, size_bytes) || overlaps_anything(address, size_bytes)) {
    return fail(StatusCode::kInvalidArgument, "the address is taken", address);
  }
  segments_.emplace(address, size_bytes);
  used_bytes_ += size_bytes;
  return {};
}

DeviceResult<std::uint64_t> Ledger::segment_size(DeviceAddress address) const noexcept {
  const auto it = segments_.find(address);
  if (it == segments_.end()) {
    return fail(StatusCode::kUnknownHandle, "no segment starts at this address", address);
  }
  return it->second;
}

void Ledger::remove_segment(DeviceAddress address) noexcept {
  const auto it = segments_.find(address);
  HEADROOM_CHECK(it != segments_.end(), "a segment is removed that segment_size did not find");
  used_bytes_ -= it->second;
  segments_.erase(it);
}

DeviceResult<void> Ledger::check_reservation(std::uint64_t size_bytes) const noexcept {
  const std::uint64_t left = limits_.max_reservation_bytes - reserved_bytes_;
  if (size_bytes > left) {
    return fail(StatusCode::kOutOfAddressSpace,
                "past what this device may reserve; bytes asked for against bytes left",
                size_bytes,
                left);
  }
  return {};
}

DeviceResult<void> Ledger::add_reservation(DeviceAddress address, std::uint64_t size_bytes) {
  if (auto room = check_reservation(size_bytes); !room) return room;
  if (address == 0 || address % limits_.granularity_bytes != 0 ||
      !checked_add(address, size_bytes) || overlaps_anything(address, size_bytes)) {
    return fail(StatusCode::kInvalidArgument, "the address is taken or not aligned", address);
  }
  reservations_.emplace(address, size_bytes);
  reserved_bytes_ += size_bytes;
  return {};
}

DeviceResult<std::uint64_t> Ledger::reservation_size(DeviceAddress address) const noexcept {
  const auto it = reservations_.find(address);
  if (it == reservations_.end()) {
    return fail(StatusCode::kUnknownHandle, "no reservation starts at this address", address);
  }
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first - address < it->second) {
    return fail(StatusCode::kInvalidArgument, "pages are still mapped in it", mapping->first);
  }
  return it->second;
}

void Ledger::remove_reservation(DeviceAddress address) noexcept {
  const auto it = reservations_.find(address);
  HEADROOM_CHECK(it != reservations_.end(), "a reservation is removed that was not found before");
  reserved_bytes_ -= it->second;
  reservations_.erase(it);
}

DeviceResult<PageHandle> Ledger::add_pages(std::uint64_t size_bytes, std::uint64_t backing) {
  const auto handle = static_cast<PageHandle>(next_id());
  if (auto added = add_pages(handle, size_bytes, backing); !added) {
    return Unexpected(added.error());
  }
  return handle;
}

DeviceResult<void> Ledger::add_pages(PageHandle handle,
                                     std::uint64_t size_bytes,
                                     std::uint64_t backing) {
  if (auto room = check_room(size_bytes); !room) return room;
  const bool is_new =
      pages_.emplace(handle, PageRecord{.size_bytes = size_bytes, .backing = backing}).second;
  if (!is_new) return fail(StatusCode::kInvalidArgument, "the handle exists", to_integer(handle));
  used_bytes_ += size_bytes;
  return {};
}

DeviceResult<PageRecord> Ledger::pages(PageHandle handle) const noexcept {
  const auto it = pages_.find(handle);
  if (it == pages_.end() || it->second.is_released) {
    return fail(StatusCode::kUnknownHandle,
                "not a page handle of this device, or released",
                to_integer(handle));
  }
  return it->second;
}

DeviceResult<std::optional<PageRecord>> Ledger::release_pages(PageHandle handle) noexcept {
  if (auto known = pages(handle); !known) return Unexpected(known.error());
  const auto it = pages_.find(handle);
  it->second.is_released = true;
  if (it->second.mappings > 0) return std::optional<PageRecord>{};
  const PageRecord record = it->second;
  used_bytes_ -= record.size_bytes;
  pages_.erase(it);
  return std::optional(record);
}

DeviceResult<std::vector<Mapping>> Ledger::plan_mappings(
    DeviceAddress address, std::span<const PageHandle> handles) const {
  if (address % limits_.granularity_bytes != 0) {
    return fail(StatusCode::kInvalidArgument,
                "the address is not aligned to the granularity",
                address,
                limits_.granularity_bytes);
  }
  if (handles.size() > limits_.max_mappings - mappings_.size()) {
    return fail(StatusCode::kTooManyMappings,
                "more mappings than the device allows at once",
                mappings_.size() + handles.size(),
                limits_.max_mappings);
  }
  std::vector<Mapping> plan;
  plan.reserve(handles.size());
  DeviceAddress at = address;
  for (const PageHandle handle : handles) {
    const auto record = pages(handle);
    if (!record) return Unexpected(record.error());
    plan.push_back({.address = at, .size_bytes = record->size_bytes, .handle = handle});
    const auto next_at = checked_add(at, record->size_bytes);
    if (!next_at) return fail(StatusCode::kInvalidArgument, "the range wraps around", address);
    at = *next_at;
  }
  if (!holds(reservations_, address, at - address)) {
    return fail(StatusCode::kInvalidArgument, "the range is not inside one reservation", address);
  }
  const auto next = mappings_.lower_bound(address);
  const auto below = at_or_below(mappings_, address);
  if ((next != mappings_.end() && next->first < at) ||
      (below != mappings_.end() && address - below->first < below->second.size_bytes)) {
    return fail(StatusCode::kInvalidArgument, "part of the range is mapped already", address);
  }
  return plan;
}

DeviceResult<std::vector<Mapping>> Ledger::map(DeviceAddress address,
                                               std::span<const PageHandle> handles) {
  auto plan = plan_mappings(address, handles);
  if (!plan) return plan;
  // Nodes are made first, so that running out of memory here leaves the ledger as it was.
  std::map<DeviceAddress, Mapping> fresh;
  for (const Mapping& mapping : *plan) fresh.emplace(mapping.address, mapping);
  for (const Mapping& mapping : *plan) ++pages_.find(mapping.handle)->second.mappings;
  mappings_.merge(fresh);
  return plan;
}

DeviceResult<std::vector<Mapping>> Ledger::mappings_in(DeviceAddress address,
                                                       std::uint64_t size_bytes) const {
  const auto end = checked_add(address, size_bytes);
  if (!end) return fail(StatusCode::kInvalidArgument, "the range wraps around", address);
  const auto below = at_or_below(mappings_, address);
  if (below != mappings_.end() && below->first < address &&
      address - below->first < below->second.size_bytes) {
    return fail(StatusCode::kInvalidArgument, "the range starts inside a mapping", address);
  }
  std::vector<Mapping> found;
  for (auto it = mappings_.lower_bound(address); it != mappings_.end() && it->first < *end; ++it) {
    if (it->second.size_bytes > *end - it->first) {
      return fail(StatusCode::kInvalidArgument, "the range ends inside a mapping", *end);
    }
    found.push_back(it->second);
  }
  if (found.empty()) {
    return fail(StatusCode::kUnknownHandle, "nothing is mapped in the range", address, size_bytes);
  }
  return found;
}

void Ledger::unmap(std::span<const Mapping> mappings, std::vector<PageRecord>& dead) noexcept {
  for (const Mapping& mapping : mappings) {
    mappings_.erase(mapping.address);
    const auto it = pages_.find(mapping.handle);
    HEADROOM_CHECK(it != pages_.end(), "a mapping names a handle that is gone");
    if (--it->second.mappings > 0 || !it->second.is_released) continue;
    used_bytes_ -= it->second.size_bytes;
    HEADROOM_CHECK(dead.size() < dead.capacity(), "the caller made no room for dead handles");
    dead.push_back(it->second);
    pages_.erase(it);
  }
}

std::optional<std::string> Ledger::check_invariants() const {
  std::uint64_t used = 0;
  for (const auto& [address, size] : segments_) used += size;
  std::unordered_map<PageHandle, std::uint64_t> counts;
  DeviceAddress last_end = 0;
  for (const auto& [address, mapping] : mappings_) {
    if (address < last_end) return "two mappings overlap";
    last_end = address + mapping.size_bytes;
    if (!holds(reservations_, address, mapping.size_bytes)) return "a mapping is in no reservation";
    ++counts[mapping.handle];
  }
  for (const auto& [handle, record] : pages_) {
    used += record.size_bytes;
    const auto count = counts.find(handle);
    if (record.mappings != (count == counts.end() ? 0 : count->second)) {
      return "a handle's count of mappings is wrong";
    }
    if (record.is_released && record.mappings == 0) return "a dead handle is still kept";
    counts.erase(handle);
  }
  if (!counts.empty()) return "a mapping names a handle that is gone";
  if (used != used_bytes_) return "used_bytes is not the sum of segments and handles";
  if (used > limits_.capacity_bytes) return "more is used than the capacity";
  return std::nullopt;
}

}  // namespace headroom::device::internal
