#include "headroom/replay/internal/live_floor.h"

#include <algorithm>

#include "headroom/replay/internal/request_sizes.h"

namespace headroom::replay::internal {

LiveFloor::LiveFloor(const Program& program) {
  if (!program.start.is_empty()) return;
  for (const Op& op : program.ops) {
    if (is_request(op)) sizes_.push_back(op.size_bytes);
  }
  std::ranges::sort(sizes_);
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  std::vector<std::uint32_t> held(program.slot_count);
  const auto size_of = [&](const Op& op) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(sizes_, op.size_bytes) -
                                      sizes_.begin());
  };
  for (const Op& op : program.ops) {
    switch (op.kind) {
      case OpKind::kAllocate:
        held[op.slot] = size_of(op);
        changes_.push_back({.size = held[op.slot]});
        break;
      case OpKind::kFree:
      case OpKind::kFreeHeld:  // or later
        changes_.push_back({.size = held[op.slot], .is_free = true});
        break;
      case OpKind::kFailed:
        changes_.push_back({.size = size_of(op)});
        changes_.push_back({.size = size_of(op), .is_free = true});
        break;
      case OpKind::kComplete:
      case OpKind::kEmptyCache:
        break;
    }
  }
}

std::uint64_t LiveFloor::bytes_under(const memory::AllocatorConfig& config) {
  {
    const std::scoped_lock lock(mutex_);
    const auto at = known_.find(config.roundup_power2_divisions);
    if (at != known_.end()) return at->second;
  }
  std::vector<std::uint64_t> rounded;
  rounded.reserve(sizes_.size());
  for (const std::uint64_t size : sizes_) rounded.push_back(memory::rounded_size(size, config));
  const std::uint64_t peak = peak_of(rounded);
  const std::scoped_lock lock(mutex_);
  known_.emplace(config.roundup_power2_divisions, peak);
  return peak;
}

std::uint64_t LiveFloor::peak_of(const std::vector<std::uint64_t>& rounded) const {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const LiveChange& change : changes_) {
    const std::uint64_t size = rounded[change.size];
    live += change.is_free ? 0 - size : size;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace headroom::replay::internal
