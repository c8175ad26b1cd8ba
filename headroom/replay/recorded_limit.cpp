#include "headroom/replay/recorded_limit.h"

#include <algorithm>

#include "headroom/base/checked.h"
#include "headroom/memory/config.h"
#include "headroom/trace/settings.h"

namespace headroom::replay {

using trace::Action;
using trace::Events;

namespace {

// Follows the reserved bytes through the events.
class LimitFinder {
 public:
  LimitFinder(const trace::Trace& trace,
              const trace::DeviceTrace& device,
              std::uint64_t reserved_at_start)
      : device_(device), config_(trace::recorded_config(trace)), reserved_(reserved_at_start) {
    out_.most_reserved_bytes = reserved_;
    out_.reached_bytes = reserved_;
    out_.said_bytes = trace::recorded_device(trace, device).limit_bytes;
    const double fraction = config_.memory_fraction;
    if (fraction != 1.0) out_.fraction = fraction;
  }

  RecordedLimit run() {
    const Events& events = device_.events;
    for (std::size_t i = 0; i < events.size(); ++i) step(events, i);
    if (out_.refused_bytes && !out_.fraction) {
      out_.floor_bytes = out_.was_device_full ? std::max(out_.most_reserved_bytes, at_failure_)
                                              : out_.reached_bytes;
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
        out_.most_reserved_bytes = std::max(out_.most_reserved_bytes, reserved_);
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
    out_.card_at_least_bytes =
        std::max(out_.card_at_least_bytes, saturating_add(reserved_, free_bytes));
    if (!out_.refused_bytes) {
      out_.free_bytes = free_bytes;
      out_.was_device_full = free_bytes < std::max(asked, pages_for(size));
      at_failure_ = reserved_ + free_bytes;
    }
    out_.refused_bytes = std::min(out_.refused_bytes.value_or(UINT64_MAX), reserved_ + asked);
  }

  [[nodiscard]] std::uint64_t segment_for(std::uint64_t size) const {
    const std::uint64_t rounded = memory::rounded_size(size, config_);
    return memory::new_segment_size(rounded, config_);
  }

  [[nodiscard]] std::uint64_t pages_for(std::uint64_t size) const {
    const bool is_small = size <= memory::kSmallBytes;
    return round_up(size, is_small ? memory::kSmallSegmentBytes : config_.large_segment_bytes);
  }

  const trace::DeviceTrace& device_;
  memory::AllocatorConfig config_;
  RecordedLimit out_;
  std::uint64_t reserved_;
  std::uint64_t at_failure_ = 0;  // what could be had at the first one, where the device was full
  std::optional<std::uint64_t> before_map_;  // reserved when the request at hand began to map
};

}  // namespace

RecordedLimit recorded_limit(const trace::Trace& trace,
                             const trace::DeviceTrace& device,
                             const analysis::StartState& start) {
  return LimitFinder(trace, device, start.reserved_bytes).run();
}

}  // namespace headroom::replay
