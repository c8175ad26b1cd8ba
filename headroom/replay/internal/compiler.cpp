#include "headroom/replay/internal/compiler.h"

#include <algorithm>
#include <iterator>

#include "headroom/base/checked.h"

namespace headroom::replay::internal {

using memory::PoolId;
using trace::Action;
using trace::Events;

namespace {

constexpr std::uint8_t kUnsaid = UINT8_MAX;

}  // namespace

bool gives_anything_back(const Events& events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (gives_back(events.action(i))) return true;
  }
  return false;
}

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
  return static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(found - pools_.begin(), kUnsaid - 1));
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

}  // namespace headroom::replay::internal
