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

// --- The limit -----------------------------------------------------------------------------------

namespace {

// Follows the reserved bytes through the events.
class LimitFinder {
 public:
  explicit LimitFinder(const Program& program)
      : program_(program), reserved_(program.start.reserved_bytes), most_reserved_(reserved_) {
    out_.reached_bytes = reserved_;
    const double fraction = program.config.memory_fraction;
    if (fraction != 1.0) out_.fraction = fraction;
  }

  RecordedLimit run() {
    const Events& events = program_.device->events;
    for (std::size_t i = 0; i < events.size(); ++i) step(events, i);
    if (out_.refused_bytes && !out_.fraction) {
      out_.floor_bytes =
          out_.was_device_full ? std::max(most_reserved_, at_failure_) : out_.reached_bytes;
    }
    return out_;
  }

 private:
  void step(const Events& events, std::size_t i) {
    const std::uint64_t size = events.size_bytes(i);
    switch (events.action(i)) {
      case Action::kSegmentMap:
        if (!before_map_) before_map_ = reserved_;
        [[fallthrough]];
      case Action::kSegmentAlloc:
        reserved_ += size;
        most_reserved_ = std::max(most_reserved_, reserved_);
        out_.reached_bytes = std::max(out_.reached_bytes, reserved_);
        break;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        reserved_ -= std::min(reserved_, size);
        before_map_.reset();
        break;
      case Action::kAlloc:
        // A limit is asked for a whole segment even where a page or two are missing.
        if (before_map_) {
          out_.reached_bytes = std::max(out_.reached_bytes, *before_map_ + segment_for(size));
        }
        before_map_.reset();
        break;
      case Action::kOutOfMemory:
        fail(size, events.address(i));
        before_map_.reset();
        break;
      default:
        break;
    }
  }

  void fail(std::uint64_t size, std::uint64_t free_bytes) {
    const std::uint64_t asked = segment_for(size);
    if (!out_.refused_bytes) {
      out_.free_bytes = free_bytes;
      out_.was_device_full = free_bytes < std::max(asked, pages_for(size));
      at_failure_ = reserved_ + free_bytes;
    }
    out_.refused_bytes = std::min(out_.refused_bytes.value_or(UINT64_MAX), reserved_ + asked);
  }

  [[nodiscard]] std::uint64_t segment_for(std::uint64_t size) const {
    const std::uint64_t rounded = memory::rounded_size(size, program_.config);
    return memory::new_segment_size(rounded, program_.config);
  }

  [[nodiscard]] std::uint64_t pages_for(std::uint64_t size) const {
    const bool is_small = size <= memory::kSmallBytes;
    return round_up(size,
                    is_small ? memory::kSmallSegmentBytes : program_.config.large_segment_bytes);
  }

  const Program& program_;
  RecordedLimit out_;
  std::uint64_t reserved_;
  std::uint64_t most_reserved_;
  std::uint64_t at_failure_ = 0;  // what could be had at the first one, where the device was full
  std::optional<std::uint64_t> before_map_;  // reserved when the request at hand began to map
};

}  // namespace

RecordedLimit find_limit(const Program& program) { return LimitFinder(program).run(); }

}  // namespace headroom::replay::internal
