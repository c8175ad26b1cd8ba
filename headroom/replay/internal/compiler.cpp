#include "headroom/replay/internal/compiler.h"

#include <algorithm>
#include <iterator>

namespace headroom::replay::internal {

using memory::PoolId;
using trace::Action;
using trace::Events;

namespace {

constexpr std::uint8_t kUnsaid = UINT8_MAX;

}  // namespace

// --- Pools ---------------------------------------------------------------------------------------

PoolRoutes::PoolRoutes(const Program& program) : program_(program) {
  const trace::DetailsTable& details = program.trace->details;
  for (std::uint32_t i = 0; i < details.size(); ++i) {
    of_details_.push_back(details[i].pool ? number(*details[i].pool) : kUnsaid);
  }
  add_places(program);
}

// Pools past the 254th share the last number: nobody has so many.
std::uint8_t PoolRoutes::number(PoolId id) {
  const auto found = std::ranges::find(pools_, id);
  if (found == pools_.end() && pools_.size() < kUnsaid) {
    pools_.push_back(id);
    return static_cast<std::uint8_t>(pools_.size() - 1);
  }
  return static_cast<std::uint8_t>(
      std::min<std::ptrdiff_t>(found - pools_.begin(), kUnsaid - 1));
}

void PoolRoutes::add_places(const Program& program) {
  const trace::DeviceTrace& device = *program.device;
  for (const trace::Segment& segment : program.trace->segments) {
    if (segment.device != device.device || segment.rank != device.rank || segment.is_host) continue;
    if (!segment.pool || segment.pool->is_default()) continue;
    places_.push_back({.address = segment.address,
                       .end = segment.address + segment.size_bytes,
                       .pool = number(*segment.pool)});
  }
  if (places_.empty()) return;
  std::ranges::sort(places_, {}, &Place::address);
  const Events& events = device.events;
  for (Place& place : places_) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const bool is_here = events.address(i) >= place.address && events.address(i) < place.end;
      if (is_here && takes_memory(events.action(i))) place.since_event = i;
    }
  }
}

std::uint8_t PoolRoutes::pool_of(std::size_t event) const {
  const Events& events = program_.device->events;
  const std::uint8_t said = of_details_[events.details(event)];
  if (said != kUnsaid) return said;
  const DeviceAddress address = events.address(event);
  const auto behind = std::ranges::upper_bound(places_, address, {}, &Place::address);
  if (behind == places_.begin()) return 0;
  const Place& place = *std::prev(behind);
  return address < place.end && event > place.since_event ? place.pool : 0;
}

// --- The limit -----------------------------------------------------------------------------------

RecordedLimit find_limit(const Program& program) {
  RecordedLimit limit;
  if (program.config.memory_fraction != 1.0) limit.fraction = program.config.memory_fraction;
  const Events& events = program.device->events;
  std::uint64_t reserved = program.start.reserved_bytes;
  limit.reached_bytes = reserved;
  std::uint64_t at_failure = 0;  // what could be had at the first one, where the device was full
  std::optional<std::uint64_t> before_map;  // reserved when the request at hand began to map
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::uint64_t size = events.size_bytes(i);
    switch (events.action(i)) {
      case Action::kSegmentMap:
        if (!before_map) before_map = reserved;
        [[fallthrough]];
      case Action::kSegmentAlloc:
        reserved += size;
        limit.reached_bytes = std::max(limit.reached_bytes, reserved);
        break;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        reserved -= std::min(reserved, size);
        before_map.reset();
        break;
      case Action::kAlloc:
        // A limit is asked for a whole segment even where a page or two are missing.
        if (before_map) {
          const std::uint64_t rounded = memory::rounded_size(size, program.config);
          const std::uint64_t asked = memory::new_segment_size(rounded, program.config);
          limit.reached_bytes = std::max(limit.reached_bytes, *before_map + asked);
        }
        before_map.reset();
        break;
      case Action::kOutOfMemory: {
        const std::uint64_t asked = memory::new_segment_size(size, program.config);
        if (!limit.refused_bytes) {
          limit.free_bytes = events.address(i);
          limit.was_device_full = *limit.free_bytes < asked;
          if (limit.was_device_full) at_failure = reserved + *limit.free_bytes;
        }
        limit.refused_bytes =
            std::min(limit.refused_bytes.value_or(UINT64_MAX), reserved + asked);
        before_map.reset();
        break;
      }
      default:
        break;
    }
  }
  if (limit.refused_bytes && !limit.fraction) {
    limit.floor_bytes = std::max(limit.reached_bytes, at_failure);
  }
  return limit;
}

}  // namespace headroom::replay::internal
