#include "headroom/analysis/lifetimes.h"

#include "headroom/analysis/internal/address_table.h"
#include "headroom/analysis/internal/large_space.h"
#include "headroom/base/check.h"
#include "headroom/trace/settings.h"

namespace headroom::analysis {
namespace {

using internal::AddressTable;
using internal::BlockRule;
using internal::LargeSpace;

// The events in order, with the blocks that are open.
class Pairing {
 public:
  Pairing(const Trace& trace, const DeviceTrace& device, const StartState& start)
      : trace_(trace),
        device_(device),
        start_(start),
        rule_(recorded_config(trace)),
        large_(rule_) {
    out_.anomalies.contradictions = start.contradictions;
    out_.of_event.assign(device.events.size(), kNoEvent);
    out_.all.reserve(start.live.size() + device.events.size() / 3);
    for (const memory::SegmentInfo& segment : start.segments) {
      if (!segment.is_small && !segment.is_expandable) {
        large_.add_segment(segment.address, segment.size_bytes);
      }
    }
    for (const StartBlock& block : start.live) add_initial(block);
  }

  Lifetimes run() {
    const Events& events = device_.events;
    for (std::size_t i = 0; i < events.size(); ++i) step(events, static_cast<std::uint32_t>(i));
    if (start_.has_final_state) compare_with_end();
    return std::move(out_);
  }

 private:
  std::uint32_t open(const Lifetime& lifetime) {
    const auto id = static_cast<std::uint32_t>(out_.all.size());
    out_.all.push_back(lifetime);
    open_.insert(lifetime.address, id);
    return id;
  }

  void add_initial(const StartBlock& block) {
    const std::uint32_t id = open({.address = block.address,
                                   .requested_bytes = block.requested_bytes,
                                   .block_bytes = block.size_bytes,
                                   .stack = block.stack,
                                   .details = block.details,
                                   .is_pending_at_start = block.is_pending});
    if (!rule_.may_have_tail(block.size_bytes)) return;
    large_.insert_known(block.address, {block.size_bytes, block.size_bytes, id});
  }

  void step(const Events& events, std::uint32_t i) {
    switch (events.action(i)) {
      case Action::kAlloc:
        allocate(events, i);
        break;
      case Action::kFreeRequested:
        request_free(events.address(i), i);
        break;
      case Action::kFreeCompleted:
        complete_free(events.address(i), i);
        break;
      case Action::kSegmentAlloc:
        if (events.size_bytes(i) > memory::kSmallSegmentBytes) {
          large_.add_segment(events.address(i), events.size_bytes(i));
        }
        break;
      case Action::kSegmentFree:
        large_.remove_segment(events.address(i));
        break;
      default:
        break;
    }
  }

  void allocate(const Events& events, std::uint32_t i) {
    const DeviceAddress address = events.address(i);
    const std::uint32_t older = open_.find(address);
    if (older != AddressTable::kNone) {
      // Where completions are not recorded, the request was the end.
      const bool was_freed = out_.all[older].free_event != kNoEvent;
      if (!was_freed) {
        ++out_.anomalies.allocs_at_live_address;
        out_.odd_ends.push_back({.event = i, .lifetime = older});
      }
      close(older, was_freed ? out_.all[older].free_event : i);
    }
    const std::uint64_t rounded = rule_.rounded(events.size_bytes(i));
    const std::uint32_t id = open({.address = address,
                                   .requested_bytes = events.size_bytes(i),
                                   .block_bytes = rounded,
                                   .alloc_event = i,
                                   .stack = events.stack(i),
                                   .details = events.details(i)});
    out_.of_event[i] = id;
    if (!rule_.may_have_tail(rounded)) return;
    const auto block = large_.insert(address, rounded, id);
    if (block != large_.blocks().end()) out_.all[id].block_bytes = block->second.size;
  }

  void request_free(DeviceAddress address, std::uint32_t i) {
    const std::uint32_t id = open_.find(address);
    if (id == AddressTable::kNone) {
      ++out_.anomalies.frees_of_nothing;
      return;
    }
    out_.all[id].free_event = i;
    out_.of_event[i] = id;
  }

  void complete_free(DeviceAddress address, std::uint32_t i) {
    const std::uint32_t id = open_.find(address);
    if (id == AddressTable::kNone) {
      ++out_.anomalies.frees_of_nothing;
      return;
    }
    out_.of_event[i] = id;
    close(id, i);
  }

  void close(std::uint32_t id, std::uint32_t event) {
    Lifetime& lifetime = out_.all[id];
    lifetime.end_event = event;
    open_.erase(lifetime.address);
    if (lifetime.block_bytes > memory::kSmallBytes) large_.erase(lifetime.address);
  }

  void compare_with_end() {
    AddressTable at_end(open_.size());
    for (const Segment& segment : trace_.segments) {
      if (segment.device != device_.device || segment.rank != device_.rank ||
          segment.is_host != device_.is_host) {
        continue;
      }
      DeviceAddress at = segment.address;
      for (const Block& block : segment.blocks) {
        const DeviceAddress address = block.address.value_or(at);
        at = address + block.size_bytes;
        if (block.state != memory::BlockState::kInactive) at_end.insert(address, 0);
      }
    }
    std::vector<std::uint32_t> missing;
    open_.for_each([&](DeviceAddress address, std::uint32_t id) {
      if (at_end.find(address) == AddressTable::kNone) missing.push_back(id);
    });
    for (const std::uint32_t id : missing) {
      if (out_.all[id].free_event != kNoEvent) {
        close(id, out_.all[id].free_event);
      } else {
        ++out_.anomalies.missing_at_end;
      }
    }
  }

  const Trace& trace_;
  const DeviceTrace& device_;
  const StartState& start_;
  BlockRule rule_;
  LargeSpace large_;
  AddressTable open_{1024};
  Lifetimes out_;
};

}  // namespace

Lifetimes pair_lifetimes(const Trace& trace, const DeviceTrace& device, const StartState& start) {
  HEADROOM_CHECK(device.events.size() < kNoEvent, "more events than a 32-bit number counts");
  return Pairing(trace, device, start).run();
}

}  // namespace headroom::analysis
