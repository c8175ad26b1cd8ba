#include "headroom/replay/waste.h"

#include <algorithm>
#include <unordered_map>

#include "headroom/analysis/sites.h"
#include "headroom/base/checked.h"
#include "headroom/replay/internal/machine.h"

namespace headroom::replay {

using internal::Machine;
using memory::BlockInfo;
using memory::BlockState;
using memory::SegmentInfo;

namespace {

bool is_request(const Op& op) { return op.kind == OpKind::kAllocate || op.kind == OpKind::kFailed; }

StreamId stream_at(const Program& program, std::size_t op) {
  for (std::size_t i = op; i < program.ops.size(); ++i) {
    if (is_request(program.ops[i])) return program.streams[program.ops[i].stream];
  }
  return StreamId::kDefault;
}

bool is_in_use(const BlockInfo& block) {
  return block.state == BlockState::kAllocated || block.state == BlockState::kPendingFree;
}

// What an emptied cache would give back of a free block: the segment if it is all of it; of an
// expandable one the whole pages. Mapped runs start at a page.
std::uint64_t releasable_bytes(const SegmentInfo& segment,
                               const BlockInfo& block,
                               const memory::AllocatorConfig& config) {
  if (!segment.is_expandable) return segment.blocks.size() == 1 ? block.size_bytes : 0;
  const std::uint64_t page =
      segment.is_small ? memory::kSmallSegmentBytes : config.large_segment_bytes;
  const std::uint64_t offset = block.address - segment.address;
  const std::uint64_t first = round_up(offset, page);
  const std::uint64_t last = round_down(offset + block.size_bytes, page);
  return first < last ? last - first : 0;
}

void add_held(const BlockInfo& block, const memory::AllocatorConfig& config, WasteLines& lines) {
  if (block.state == BlockState::kPendingFree) {
    lines.pending += block.size_bytes;
    return;
  }
  // What stood before the first event may have been asked for under other settings.
  const std::uint64_t asked = std::min(block.requested_bytes, block.size_bytes);
  const std::uint64_t rounded =
      std::min(memory::rounded_size(std::max<std::uint64_t>(asked, 1), config), block.size_bytes);
  lines.live += asked;
  lines.rounding += rounded - asked;
  lines.unsplit += block.size_bytes - rounded;
}

void add_free(const SegmentInfo& segment,
              const BlockInfo& block,
              const memory::AllocatorConfig& config,
              StreamId stream,
              WasteLines& lines) {
  if (segment.stream != stream) {
    lines.stream += block.size_bytes;
    return;
  }
  const std::uint64_t soft = releasable_bytes(segment, block, config);
  lines.soft += soft;
  lines.hard += block.size_bytes - soft;
}

WasteLines lines_of(const std::vector<SegmentInfo>& segments,
                    const memory::AllocatorConfig& config,
                    StreamId stream) {
  WasteLines lines;
  for (const SegmentInfo& segment : segments) {
    lines.reserved += segment.size_bytes;
    for (const BlockInfo& block : segment.blocks) {
      if (is_in_use(block)) {
        add_held(block, config, lines);
      } else {
        add_free(segment, block, config, stream, lines);
      }
    }
  }
  return lines;
}

// --- Who holds which block -----------------------------------------------------------------------

// The stacks of the blocks in use after some op, by address.
class Holders {
 public:
  Holders(const Program& program, const Machine& machine, std::size_t op) : program_(program) {
    std::vector<trace::StackId> stacks(program.slot_count, 0);
    std::vector<Slot> slots(program.slot_count, Slot::kUnused);
    start(stacks, slots);
    for (std::size_t i = 0; i <= op; ++i) follow(i, stacks, slots);
    // A block whose other stream is done is in use until the next request looks; its address may
    // be another's since.
    for (const Slot state : {Slot::kHeld, Slot::kDone}) {
      for (std::uint32_t slot = 0; slot < program.slot_count; ++slot) {
        if (slots[slot] == state) by_address_.emplace(machine.address_of(slot), stacks[slot]);
      }
    }
  }

  [[nodiscard]] trace::StackId stack_of(DeviceAddress address) const {
    const auto at = by_address_.find(address);
    return at != by_address_.end() ? at->second : 0;
  }

 private:
  enum class Slot : std::uint8_t { kUnused, kHeld, kDone };

  void start(std::vector<trace::StackId>& stacks, std::vector<Slot>& slots) const {
    for (const StartSlot& start : program_.start_slots) {
      slots[start.slot] = Slot::kHeld;
      const auto at = std::ranges::lower_bound(
          program_.start.live, start.address, {}, &analysis::StartBlock::address);
      if (at != program_.start.live.end() && at->address == start.address) {
        stacks[start.slot] = at->stack;
      }
    }
  }

  void follow(std::size_t i, std::vector<trace::StackId>& stacks, std::vector<Slot>& slots) const {
    const Op& op = program_.ops[i];
    switch (op.kind) {
      case OpKind::kAllocate:
        slots[op.slot] = Slot::kHeld;
        stacks[op.slot] = program_.device->events.stack(program_.op_events[i]);
        break;
      case OpKind::kFree:
        slots[op.slot] = Slot::kUnused;
        break;
      case OpKind::kComplete:
        slots[op.slot] = Slot::kDone;
        break;
      case OpKind::kFreeHeld:
      case OpKind::kFailed:
      case OpKind::kEmptyCache:
        break;
    }
  }

  const Program& program_;
  std::unordered_map<DeviceAddress, trace::StackId> by_address_{};
};

// --- Who pins ------------------------------------------------------------------------------------

class Pinners {
 public:
  Pinners(const Program& program, const Holders& holders, const memory::AllocatorConfig& config)
      : holders_(holders), config_(config), sites_(*program.trace) {}

  // Whether anything is pinned there.
  bool add(const SegmentInfo& segment) {
    const std::vector<BlockInfo>& blocks = segment.blocks;
    std::vector<std::uint64_t> pinned(blocks.size(), 0);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (is_in_use(blocks[i])) continue;
      share(segment, i, pinned);
    }
    bool is_pinned = false;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (pinned[i] == 0) continue;
      is_pinned = true;
      Sum& sum = sums_[sites_.of(holders_.stack_of(blocks[i].address))];
      sum.pinned += pinned[i];
      sum.held += blocks[i].size_bytes;
      ++sum.blocks;
    }
    return is_pinned;
  }

  [[nodiscard]] std::vector<PinningSite> sites() const {
    std::vector<PinningSite> out;
    for (const auto& [site, sum] : sums_) {
      out.push_back({.site = sites_.name(site),
                     .pinned_bytes = sum.pinned,
                     .held_bytes = sum.held,
                     .blocks = sum.blocks});
    }
    std::ranges::sort(out, [](const PinningSite& a, const PinningSite& b) {
      return a.pinned_bytes != b.pinned_bytes ? a.pinned_bytes > b.pinned_bytes : a.site < b.site;
    });
    return out;
  }

 private:
  struct Sum {
    std::uint64_t pinned = 0;
    std::uint64_t held = 0;
    std::uint64_t blocks = 0;
  };

  // Half to each neighbour. Two free blocks are never neighbours, so a block that cannot be given
  // back has at least one in use beside it.
  void share(const SegmentInfo& segment,
             std::size_t free,
             std::vector<std::uint64_t>& pinned) const {
    const BlockInfo& block = segment.blocks[free];
    const std::uint64_t bytes = block.size_bytes - releasable_bytes(segment, block, config_);
    const bool has_left = free > 0;
    const bool has_right = free + 1 < segment.blocks.size();
    if (!has_left && !has_right) return;
    const std::uint64_t left = has_right ? (has_left ? bytes / 2 : 0) : bytes;
    if (has_left) pinned[free - 1] += left;
    if (has_right) pinned[free + 1] += bytes - left;
  }

  const Holders& holders_;
  const memory::AllocatorConfig& config_;
  analysis::Sites sites_;
  std::unordered_map<analysis::SiteId, Sum> sums_{};
};

}  // namespace

Waste waste_at(const Program& program, const ReplayOptions& options, std::size_t op) {
  Waste waste;
  if (program.ops.empty()) return waste;
  waste.op = std::min(op, program.ops.size() - 1);
  waste.stream = stream_at(program, waste.op);
  Machine machine(program, options);
  (void)machine.run(0, waste.op + 1);
  const std::vector<SegmentInfo> segments = machine.allocator().segments();
  waste.lines = lines_of(segments, options.config, waste.stream);
  waste.segments = segments.size();
  const Holders holders(program, machine, waste.op);
  Pinners pinners(program, holders, options.config);
  for (const SegmentInfo& segment : segments) {
    if (pinners.add(segment)) ++waste.pinned_segments;
    if (segment.stream != waste.stream) continue;
    for (const BlockInfo& block : segment.blocks) {
      if (!is_in_use(block)) waste.largest_free = std::max(waste.largest_free, block.size_bytes);
    }
  }
  waste.pinned_by = pinners.sites();
  return waste;
}

std::vector<WasteSample> waste_over_time(const Program& program,
                                         const ReplayOptions& options,
                                         std::size_t samples) {
  std::vector<WasteSample> out;
  const std::size_t count = program.ops.size();
  samples = std::min(samples, count);
  Machine machine(program, options);
  std::size_t at = 0;
  for (std::size_t i = 1; i <= samples; ++i) {
    const std::size_t stop = count * i / samples;
    const bool goes_on = machine.run(at, stop);
    at = stop;
    out.push_back(
        {.op = stop - 1,
         .lines = lines_of(
             machine.allocator().segments(), options.config, stream_at(program, stop - 1))});
    if (!goes_on) break;
  }
  return out;
}

}  // namespace headroom::replay
