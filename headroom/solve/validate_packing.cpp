#include "headroom/solve/validate_packing.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace headroom::solve {
namespace {

struct Event {
  std::uint64_t time = 0;
  bool is_start = false;  // ends come first: lifetimes are half open
  std::size_t buffer = 0;
};

std::vector<Event> events_of(std::span<const Buffer> buffers) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size_bytes == 0) continue;
    events.push_back({buffers[i].lower, true, i});
    events.push_back({buffers[i].upper, false, i});
  }
  std::ranges::sort(events, {}, [](const Event& event) {
    return std::tuple(event.time, event.is_start, event.buffer);
  });
  return events;
}

std::optional<PackingFault> find_fault_of_one(std::span<const Buffer> buffers,
                                              const Offsets& offsets,
                                              std::uint64_t capacity_bytes) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].alignment != 0 && offsets[i] % buffers[i].alignment != 0) {
      return PackingFault{PackingFaultKind::kUnaligned, i, i};
    }
    if (buffers[i].size_bytes == 0) continue;
    if (offsets[i] > capacity_bytes || buffers[i].size_bytes > capacity_bytes - offsets[i]) {
      return PackingFault{PackingFaultKind::kPastTheEnd, i, i};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<PackingFault> find_packing_fault(std::span<const Buffer> buffers,
                                               const Offsets& offsets,
                                               std::uint64_t capacity_bytes) {
  if (offsets.size() != buffers.size()) {
    const std::size_t first = std::min(offsets.size(), buffers.size());
    return PackingFault{PackingFaultKind::kMissing, first, first};
  }
  if (const auto fault = find_fault_of_one(buffers, offsets, capacity_bytes)) return fault;
  // The buffers alive, by offset. They do not overlap, or a fault was found: so a new one can
  // overlap nobody but its neighbours.
  std::map<std::uint64_t, std::size_t> alive;
  for (const Event& event : events_of(buffers)) {
    const std::uint64_t offset = offsets[event.buffer];
    if (!event.is_start) {
      alive.erase(offset);
      continue;
    }
    const auto above = alive.lower_bound(offset);
    if (above != alive.end() && above->first - offset < buffers[event.buffer].size_bytes) {
      return PackingFault{PackingFaultKind::kOverlapping, event.buffer, above->second};
    }
    if (above != alive.begin()) {
      const auto below = std::prev(above);
      if (offset - below->first < buffers[below->second].size_bytes) {
        return PackingFault{PackingFaultKind::kOverlapping, event.buffer, below->second};
      }
    }
    alive.emplace(offset, event.buffer);
  }
  return std::nullopt;
}

std::string to_string(const PackingFault& fault) {
  const std::string buffer = "buffer " + std::to_string(fault.buffer);
  switch (fault.kind) {
    case PackingFaultKind::kMissing:
      return buffer + " has no offset, or an offset has no buffer";
    case PackingFaultKind::kUnaligned:
      return buffer + " is not at a multiple of its alignment";
    case PackingFaultKind::kPastTheEnd:
      return buffer + " ends above the capacity";
    case PackingFaultKind::kOverlapping:
      return buffer + " and buffer " + std::to_string(fault.other) + " overlap";
  }
  return "unknown fault";
}

}  // namespace headroom::solve
