#include "headroom/trace/record/internal/final_state.h"

namespace headroom::trace::internal {
namespace {

using memory::BlockState;

// PyTorch's sums over the blocks of a segment.
void add_sums(Segment& segment, const memory::BlockInfo& block) {
  const bool is_active =
      block.state == BlockState::kAllocated || block.state == BlockState::kPendingFree;
  if (block.state == BlockState::kAllocated) *segment.allocated_bytes += block.size_bytes;
  if (!is_active) return;
  *segment.active_bytes += block.size_bytes;
  *segment.requested_bytes += block.requested_bytes;
}

}  // namespace

std::unordered_map<DeviceAddress, StackId> live_stacks(const Events& events) {
  std::unordered_map<DeviceAddress, StackId> stacks;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Action action = events.action(i);
    if (action == Action::kAlloc && events.stack(i) != 0) {
      stacks[events.address(i)] = events.stack(i);
    } else if (action == Action::kFreeCompleted) {
      stacks.erase(events.address(i));
    }
  }
  return stacks;
}

void append_segments(Trace& trace,
                     TraceBuilder& builder,
                     const DeviceKey& key,
                     std::span<const memory::SegmentInfo> segments,
                     const std::unordered_map<DeviceAddress, StackId>& stacks) {
  for (const memory::SegmentInfo& info : segments) {
    Segment segment{.device = key.device,
                    .rank = key.rank,
                    .is_host = key.is_host,
                    .address = info.address,
                    .size_bytes = info.size_bytes,
                    .allocated_bytes = 0,
                    .active_bytes = 0,
                    .requested_bytes = 0,
                    .stream = static_cast<std::uint64_t>(info.stream),
                    .is_small = info.is_small,
                    .is_expandable = info.is_expandable,
                    .pool = info.pool};
    for (const memory::BlockInfo& block : info.blocks) {
      if (block.state == BlockState::kUnmapped) continue;
      const auto stack = stacks.find(block.address);
      segment.blocks.push_back(
          {.address = block.address,
           .size_bytes = block.size_bytes,
           .requested_bytes = block.requested_bytes,
           .state = block.state,
           .stack = stack == stacks.end() ? 0 : stack->second,
           .details = block.state == BlockState::kInactive
                          ? 0
                          : builder.details(block.annotation, block.category, std::nullopt)});
      add_sums(segment, block);
    }
    trace.segments.push_back(std::move(segment));
  }
}

}  // namespace headroom::trace::internal
