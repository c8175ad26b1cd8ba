#include "headroom/analysis/start_state.h"

#include <algorithm>
#include <iterator>

#include "headroom/analysis/internal/address_table.h"
#include "headroom/analysis/internal/large_space.h"
#include "headroom/analysis/internal/segment_map.h"
#include "headroom/trace/settings.h"

namespace headroom::analysis {
namespace {

using internal::AddressTable;
using internal::BlockRule;
using internal::LargeSpace;
using memory::BlockState;
using memory::SegmentInfo;

// The state, walked from the end of the recording to its beginning.
class Undo {
 public:
  Undo(const Trace& trace, const DeviceTrace& device)
      : trace_(trace), device_(device), rule_(recorded_config(trace)), large_(rule_) {
    for (const Segment& segment : trace.segments) {
      if (is_of(segment, device)) add_final(segment);
    }
  }

  StartState run() {
    const Events& events = device_.events;
    for (std::size_t i = events.size(); i-- > 0;) undo(events, i);
    collect_live();
    collect_segments();
    return std::move(out_);
  }

 private:
  static bool has_tails(const SegmentInfo& segment) {
    return !segment.is_small && !segment.is_expandable;
  }

  void add_final(const Segment& segment) {
    const SegmentInfo info{.address = segment.address,
                           .size_bytes = segment.size_bytes,
                           .stream = static_cast<memory::StreamId>(segment.stream),
                           .pool = segment.pool.value_or(memory::PoolId{}),
                           .is_small = segment.is_small,
                           .is_expandable = segment.is_expandable.value_or(false)};
    out_.has_final_state = true;
    if (!segments_.add(info)) ++out_.contradictions;
    if (has_tails(info)) large_.add_segment(info.address, info.size_bytes);
    DeviceAddress at = segment.address;
    for (const Block& block : segment.blocks) {
      const DeviceAddress address = block.address.value_or(at);
      at = address + block.size_bytes;
      const bool is_pending = block.state == BlockState::kPendingFree;
      if (!is_pending && block.state != BlockState::kAllocated) continue;
      const std::uint32_t slot =
          put({.address = address,
               .size_bytes = block.size_bytes,
               .requested_bytes = block.requested_bytes.value_or(block.size_bytes),
               .is_pending = is_pending,
               .stack = block.stack,
               .details = block.details});
      if (!has_tails(info) || block.size_bytes <= memory::kSmallBytes) continue;
      large_.insert_known(address, {block.size_bytes, block.size_bytes, slot});
    }
  }

  std::uint32_t put(const StartBlock& block) {
    std::uint32_t slot = static_cast<std::uint32_t>(blocks_.size());
    if (free_slots_.empty()) {
      blocks_.push_back(block);
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
      blocks_[slot] = block;
    }
    live_.insert(block.address, slot);
    return slot;
  }

  void undo(const Events& events, std::size_t i) {
    switch (events.action(i)) {
      case Action::kAlloc:
        undo_alloc(events.address(i));
        break;
      case Action::kFreeCompleted:
        if (live_.find(events.address(i)) != AddressTable::kNone) {
          ++out_.contradictions;
        } else {
          undo_free(events, i, true);
        }
        break;
      case Action::kFreeRequested:
        undo_request(events, i);
        break;
      case Action::kSegmentAlloc:
        if (!segments_.remove(events.address(i)) && out_.has_final_state) ++out_.contradictions;
        large_.remove_segment(events.address(i));
        break;
      case Action::kSegmentFree:
        undo_segment_free(events, i);
        break;
      case Action::kSegmentMap:
        if (!segments_.remove_range(events.address(i), events.size_bytes(i)) &&
            out_.has_final_state) {
          ++out_.contradictions;
        }
        break;
      case Action::kSegmentUnmap:
        segments_.add_range(segment_of_event(events, i, true));
        break;
      default:
        break;
    }
  }

  void undo_alloc(DeviceAddress address) {
    const std::uint32_t slot = live_.erase(address);
    if (slot == AddressTable::kNone) {
      if (out_.has_final_state) ++out_.contradictions;
      return;
    }
    free_slots_.push_back(slot);
    if (is_in_large(blocks_[slot])) large_.erase(address);
  }

  // Small blocks are most of all and stand in no large segment.
  [[nodiscard]] static bool is_in_large(const StartBlock& block) {
    return block.size_bytes > memory::kSmallBytes;
  }

  void undo_free(const Events& events, std::size_t i, bool is_pending) {
    const std::uint64_t rounded = rule_.rounded(events.size_bytes(i));
    const std::uint32_t slot = put({.address = events.address(i),
                                    .size_bytes = rounded,
                                    .requested_bytes = events.size_bytes(i),
                                    .is_pending = is_pending,
                                    .is_freed = true,
                                    .stack = events.stack(i),
                                    .details = events.details(i)});
    if (!rule_.may_have_tail(rounded)) return;
    const auto block = large_.insert(events.address(i), rounded, slot);
    // A gap shows when either side of it appears.
    if (block != large_.blocks().end() && block != large_.blocks().begin()) {
      large_.settle(std::prev(block));
    }
  }

  void undo_request(const Events& events, std::size_t i) {
    const std::uint32_t slot = live_.find(events.address(i));
    if (slot == AddressTable::kNone) {
      // The completion was not recorded.
      if (out_.has_final_state) ++out_.contradictions;
      undo_free(events, i, false);
      return;
    }
    StartBlock& block = blocks_[slot];
    block.is_pending = false;
    block.is_freed = true;
    if (block.stack == 0) block.stack = events.stack(i);
  }

  [[nodiscard]] SegmentInfo segment_of_event(const Events& events,
                                             std::size_t i,
                                             bool is_expandable) const {
    const Details& details = trace_.details[events.details(i)];
    const std::uint64_t size = events.size_bytes(i);
    // Pages of the small pool are 2 MiB: a run that is no multiple of a large page is made of them.
    const std::uint64_t page = rule_.config().large_segment_bytes;
    return {.address = events.address(i),
            .size_bytes = size,
            .stream = static_cast<memory::StreamId>(events.stream(i)),
            .pool = details.pool.value_or(memory::PoolId{}),
            .is_small =
                is_expandable ? page != 0 && size % page != 0 : size <= memory::kSmallSegmentBytes,
            .is_expandable = is_expandable};
  }

  void undo_segment_free(const Events& events, std::size_t i) {
    const SegmentInfo info = segment_of_event(events, i, false);
    if (!segments_.add(info)) {
      ++out_.contradictions;
    } else if (has_tails(info)) {
      large_.add_segment(info.address, info.size_bytes);
    }
  }

  void collect_live() {
    for (const auto& [address, extent] : large_.blocks()) {
      blocks_[extent.owner].size_bytes = extent.size;
    }
    live_.for_each([&](DeviceAddress, std::uint32_t slot) { out_.live.push_back(blocks_[slot]); });
    std::ranges::sort(out_.live, {}, &StartBlock::address);
  }

  void collect_segments() {
    auto block = out_.live.begin();
    for (auto& [address, segment] : segments_.all()) {
      block = std::lower_bound(
          block, out_.live.end(), address, [](const StartBlock& b, DeviceAddress a) {
            return b.address < a;
          });
      tile(segment, block);
      if (!segments_.is_kind_known(address)) decide_kind(segment);
      out_.reserved_bytes += segment.size_bytes;
      out_.segments.push_back(std::move(segment));
    }
  }

  // The live blocks from `block` on that lie in the segment, with what is free between them.
  void tile(SegmentInfo& segment, std::vector<StartBlock>::iterator block) {
    std::uint64_t at = 0;  // from the segment's start
    const auto add_free = [&](std::uint64_t until) {
      if (until > at) {
        segment.blocks.push_back({.address = segment.address + at, .size_bytes = until - at});
      }
    };
    for (; block != out_.live.end(); ++block) {
      const std::uint64_t offset = block->address - segment.address;
      if (offset >= segment.size_bytes) break;
      if (offset < at || block->size_bytes > segment.size_bytes - offset) {
        ++out_.contradictions;
        continue;
      }
      add_free(offset);
      const auto& details = trace_.details[block->details];
      segment.blocks.push_back(
          {.address = block->address,
           .size_bytes = block->size_bytes,
           .requested_bytes = block->requested_bytes,
           .state = block->is_pending ? BlockState::kPendingFree : BlockState::kAllocated,
           .category = details.category.value_or(memory::Category::kUnknown)});
      at = offset + block->size_bytes;
    }
    add_free(segment.size_bytes);
  }

  static void decide_kind(SegmentInfo& segment) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::kInactive) continue;
      segment.is_small = block.size_bytes <= memory::kSmallBytes;
      return;
    }
  }

  const Trace& trace_;
  const DeviceTrace& device_;
  BlockRule rule_;
  LargeSpace large_;
  internal::SegmentMap segments_;
  AddressTable live_{1024};
  std::vector<StartBlock> blocks_;
  std::vector<std::uint32_t> free_slots_;
  StartState out_;
};

}  // namespace

StartState start_state(const Trace& trace, const DeviceTrace& device) {
  return Undo(trace, device).run();
}

}  // namespace headroom::analysis
