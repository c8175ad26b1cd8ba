#include "headroom/analysis/index.h"

#include <algorithm>

namespace headroom::analysis {
namespace {

constexpr std::size_t kFanOut = 16;

// The latest of each group of kFanOut.
std::vector<std::uint32_t> maxima(std::span<const std::uint32_t> values) {
  std::vector<std::uint32_t> out((values.size() + kFanOut - 1) / kFanOut);
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i / kFanOut] = std::max(out[i / kFanOut], values[i]);
  }
  return out;
}

void raise(Peak& peak, std::uint64_t bytes, std::uint32_t position) {
  if (bytes > peak.bytes) peak = {bytes, position};
}

}  // namespace

TraceIndex::TraceIndex(const Trace& trace, const DeviceTrace& device)
    : trace_(trace),
      device_(device),
      start_(start_state(trace, device)),
      lifetimes_(pair_lifetimes(trace, device, start_)) {
  for (std::size_t i = 0; i < device.events.size(); ++i) {
    ++counts_[static_cast<std::size_t>(device.events.action(i))];
  }
  std::vector<std::uint32_t> ends;
  ends.reserve(lifetimes_.all.size());
  for (const Lifetime& lifetime : lifetimes_.all) ends.push_back(lifetime.end_event);
  latest_ends_.push_back(maxima(ends));
  while (latest_ends_.back().size() > kFanOut) latest_ends_.push_back(maxima(latest_ends_.back()));
  find_peaks();
}

void TraceIndex::find_peaks() {
  for (TotalsCursor at(*this);; at.step()) {
    const Totals& totals = at.totals();
    raise(peaks_.live, totals.live, at.position());
    raise(peaks_.allocated, totals.allocated, at.position());
    raise(peaks_.active, totals.active, at.position());
    raise(peaks_.reserved, totals.reserved, at.position());
    if (at.is_at_end()) return;
  }
}

bool TraceIndex::has_stacks() const {
  return std::ranges::any_of(lifetimes(), [this](const Lifetime& block) {
    return !trace_.stacks.frame_ids(block.stack).empty();
  });
}

std::vector<std::uint32_t> TraceIndex::live_at(std::uint32_t position) const {
  // Those that began: the initial ones and a run of the others, which stand by allocation.
  const auto begun = std::ranges::partition_point(lifetimes_.all,
                                                  [&](const Lifetime& lifetime) {
                                                    return lifetime.is_initial() ||
                                                           lifetime.alloc_event < position;
                                                  }) -
                     lifetimes_.all.begin();
  std::vector<std::uint32_t> out;
  const std::size_t top = latest_ends_.size() - 1;
  for (std::size_t node = 0; node < latest_ends_[top].size(); ++node) {
    collect(top, node, position, static_cast<std::size_t>(begun), out);
  }
  return out;
}

// Those of the first `count` lifetimes below a node that have not ended.
void TraceIndex::collect(std::size_t level,
                         std::size_t node,
                         std::uint32_t position,
                         std::size_t count,
                         std::vector<std::uint32_t>& out) const {
  if (latest_ends_[level][node] < position) return;
  const std::size_t first = node * kFanOut;
  if (level == 0) {
    const std::size_t last = std::min(first + kFanOut, count);
    for (std::size_t i = first; i < last; ++i) {
      if (lifetimes_.all[i].end_event >= position) out.push_back(static_cast<std::uint32_t>(i));
    }
    return;
  }
  const std::size_t last = std::min(first + kFanOut, latest_ends_[level - 1].size());
  for (std::size_t child = first; child < last; ++child) {
    std::size_t begin = child * kFanOut;
    for (std::size_t k = 1; k < level; ++k) begin *= kFanOut;
    if (begin >= count) return;
    collect(level - 1, child, position, count, out);
  }
}

std::vector<std::uint32_t> TraceIndex::allocated_at(std::uint32_t position) const {
  std::vector<std::uint32_t> out = live_at(position);
  std::erase_if(out, [&](std::uint32_t id) {
    const Lifetime& lifetime = lifetimes_.all[id];
    return lifetime.free_event < position || lifetime.is_pending_at_start;
  });
  return out;
}

std::int64_t TraceIndex::time_us_at(std::uint32_t position) const {
  if (device_.events.empty()) return 0;
  return device_.events.time_us(position == 0 ? 0 : position - 1);
}

std::uint32_t TraceIndex::position_at(std::int64_t time_us) const {
  std::uint32_t low = 0;
  for (std::uint32_t high = end_position(); low < high;) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (device_.events.time_us(middle) <= time_us) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

TotalsCursor::TotalsCursor(const TraceIndex& index) : index_(index) {
  totals_.reserved = index.start().reserved_bytes;
  for (const Lifetime& lifetime : index.lifetimes()) {
    if (!lifetime.is_initial()) break;
    totals_.live += lifetime.live_bytes();
    totals_.active += lifetime.block_bytes;
    if (!lifetime.is_pending_at_start) totals_.allocated += lifetime.block_bytes;
  }
}

void TotalsCursor::step() {
  const std::uint32_t event = position_++;
  const Events& events = index_.events();
  const std::uint32_t id = index_.lifetime_of(event);
  const Lifetime* lifetime = id == kNoEvent ? nullptr : &index_.lifetimes()[id];
  const std::uint64_t size = events.size_bytes(event);
  switch (events.action(event)) {
    case Action::kAlloc:
      totals_.live += lifetime->live_bytes();
      totals_.allocated += lifetime->block_bytes;
      totals_.active += lifetime->block_bytes;
      break;
    case Action::kFreeRequested:
      if (lifetime != nullptr) free_requested(*lifetime, event);
      break;
    case Action::kFreeCompleted:
      if (lifetime != nullptr) end(*lifetime);
      break;
    case Action::kSegmentAlloc:
    case Action::kSegmentMap:
      totals_.reserved += size;
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      totals_.reserved -= std::min(size, totals_.reserved);
      break;
    default:
      break;
  }
  const auto odd_ends = index_.odd_ends();
  while (next_odd_end_ < odd_ends.size() && odd_ends[next_odd_end_].event == event) {
    end(index_.lifetimes()[odd_ends[next_odd_end_++].lifetime]);
  }
}

void TotalsCursor::free_requested(const Lifetime& lifetime, std::uint32_t event) {
  if (lifetime.free_event != event) return;  // asked for again later
  if (!lifetime.is_pending_at_start) totals_.allocated -= lifetime.block_bytes;
  if (lifetime.end_event != event) return;
  // The completion was not recorded.
  totals_.live -= lifetime.live_bytes();
  totals_.active -= lifetime.block_bytes;
}

void TotalsCursor::end(const Lifetime& lifetime) {
  totals_.live -= lifetime.live_bytes();
  totals_.active -= lifetime.block_bytes;
  const bool was_counted = lifetime.free_event == kNoEvent && !lifetime.is_pending_at_start;
  if (was_counted) totals_.allocated -= lifetime.block_bytes;
}

}  // namespace headroom::analysis
