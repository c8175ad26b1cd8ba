#include <algorithm>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/internal/checked_run.h"

namespace headroom::replay::internal {

using memory::BlockInfo;
using memory::BlockState;
using memory::SegmentInfo;

namespace {

constexpr std::size_t kMostLines = 6;

std::string line_of(const BlockInfo& block, const SegmentInfo& segment, const char* note) {
  return fmt::format("0x{:x}  {} in a segment of {} at 0x{:x}{}",
                     block.address,
                     format_bytes(block.size_bytes),
                     format_bytes(segment.size_bytes),
                     segment.address,
                     note);
}

const char* state_text(BlockState state) {
  switch (state) {
    case BlockState::kInactive:
      return ": free here, PyTorch took it";
    case BlockState::kUnmapped:
      return ": not mapped here, PyTorch took it";
    default:
      return ": in use here, PyTorch took it";
  }
}

// The block of ours that covers the place PyTorch chose.
void add_recorded_place(Mismatch& out, DeviceAddress address, const std::vector<SegmentInfo>& all) {
  for (const SegmentInfo& segment : all) {
    if (address - segment.address >= segment.size_bytes) continue;
    for (const BlockInfo& block : segment.blocks) {
      if (address - block.address < block.size_bytes) {
        out.free_blocks.push_back(line_of(block, segment, state_text(block.state)));
        return;
      }
    }
  }
  out.free_blocks.push_back(fmt::format("0x{:x}  is in no segment of ours", address));
}

}  // namespace

std::string describe(const trace::Events& events, std::size_t event) {
  const std::string place = events.action(event) == memory::Action::kOutOfMemory
                                ? std::string{}
                                : fmt::format(" at 0x{:x}", events.address(event));
  return fmt::format("{} of {}{}, stream {}",
                     memory::to_string(events.action(event)),
                     format_count(events.size_bytes(event)),
                     place,
                     events.stream(event));
}

std::string describe(const memory::Event& event) {
  return fmt::format("{} of {} at 0x{:x}, stream {}",
                     memory::to_string(event.action),
                     format_count(event.size_bytes),
                     event.address,
                     device::to_integer(event.stream));
}

Mismatch explain_allocation(const Program& program,
                            std::uint32_t event,
                            DeviceAddress ours,
                            const memory::CachingAllocator& allocator) {
  const trace::Events& events = program.device->events;
  const bool has_failed = events.action(event) == memory::Action::kOutOfMemory;
  Mismatch out{.event = event,
               .recorded = describe(events, event),
               .ours = ours == 0 ? "the request failed" : fmt::format("placed at 0x{:x}", ours)};
  const std::vector<SegmentInfo> all = allocator.segments();
  if (!has_failed) add_recorded_place(out, events.address(event), all);
  const std::uint64_t rounded = memory::rounded_size(events.size_bytes(event), program.config);
  const bool is_small = rounded <= memory::kSmallBytes;
  struct Candidate {
    const BlockInfo* block;
    const SegmentInfo* segment;
  };
  std::vector<Candidate> candidates;
  for (const SegmentInfo& segment : all) {
    if (segment.is_small != is_small ||
        device::to_integer(segment.stream) != events.stream(event)) {
      continue;
    }
    for (const BlockInfo& block : segment.blocks) {
      const bool is_ours = block.address == ours;
      if (block.address == events.address(event)) continue;  // said already
      const bool could_serve = block.state == BlockState::kInactive && block.size_bytes >= rounded;
      if (is_ours || could_serve) candidates.push_back({&block, &segment});
    }
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::pair(a.block->size_bytes, a.block->address) <
           std::pair(b.block->size_bytes, b.block->address);
  });
  for (const Candidate& candidate : candidates) {
    if (out.free_blocks.size() >= kMostLines) break;
    const bool is_ours = candidate.block->address == ours;
    out.free_blocks.push_back(
        line_of(*candidate.block, *candidate.segment, is_ours ? ": we took it" : ": free"));
  }
  return out;
}

}  // namespace headroom::replay::internal
