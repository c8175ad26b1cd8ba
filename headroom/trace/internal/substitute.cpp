#include "headroom/trace/internal/substitute.h"

#include <span>

namespace headroom::trace::internal {
namespace {

// Functions inlined into each other make a few frames of one; not hundreds, on average.
constexpr std::uint64_t kMostGrowth = 16;
constexpr std::uint64_t kFreeGrowth = 65'536;

Events with_stacks(const Events& events, std::span<const StackId> new_ids) {
  Events out;
  out.reserve(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    Entry entry = events[i];
    entry.stack = new_ids[entry.stack];
    out.push_back(entry);
  }
  return out;
}

}  // namespace

StackLengths stack_lengths(const StackTable& stacks, const Substitutes& substitutes) {
  StackLengths out;
  for (StackId id = 1; id < stacks.size(); ++id) {
    for (const std::uint32_t frame : stacks.frame_ids(id)) {
      const auto found = substitutes.find(frame);
      ++out.before;
      out.after += found == substitutes.end() ? 1 : found->second.size();
    }
  }
  return out;
}

bool substitute_frames(Trace& trace, const Substitutes& substitutes) {
  if (substitutes.empty()) return true;
  const StackLengths lengths = stack_lengths(trace.stacks, substitutes);
  if (lengths.after > kMostGrowth * lengths.before + kFreeGrowth) return false;
  StackTable stacks;
  std::vector<StackId> new_ids{0};
  std::vector<Frame> frames;
  for (StackId id = 1; id < trace.stacks.size(); ++id) {
    frames.clear();
    for (const std::uint32_t frame : trace.stacks.frame_ids(id)) {
      const auto found = substitutes.find(frame);
      if (found == substitutes.end()) {
        frames.push_back(trace.stacks.frame(frame));
      } else {
        frames.insert(frames.end(), found->second.begin(), found->second.end());
      }
    }
    new_ids.push_back(stacks.intern(frames));
  }
  trace.stacks = std::move(stacks);
  for (DeviceTrace& device : trace.devices) device.events = with_stacks(device.events, new_ids);
  for (Segment& segment : trace.segments) {
    segment.stack = new_ids[segment.stack];
    for (Block& block : segment.blocks) block.stack = new_ids[block.stack];
  }
  return true;
}

}  // namespace headroom::trace::internal
