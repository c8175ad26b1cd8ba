#include "headroom/trace/used_devices.h"

#include <set>
#include <tuple>

namespace headroom::trace {
namespace {

using UsedKey = std::tuple<int, int, bool>;

UsedKey key_of(const DeviceTrace& device) { return {device.device, device.rank, device.is_host}; }
UsedKey key_of(const Segment& segment) { return {segment.device, segment.rank, segment.is_host}; }

std::set<UsedKey> keys_of_segments(const Trace& trace) {
  std::set<UsedKey> keys;
  for (const Segment& segment : trace.segments) keys.insert(key_of(segment));
  return keys;
}

}  // namespace

UsedDevices::UsedDevices(const Trace& trace) {
  const std::set<UsedKey> with_segments = keys_of_segments(trace);
  std::set<UsedKey> listed;
  for (const DeviceTrace& device : trace.devices) {
    if (device.events.empty() && !with_segments.contains(key_of(device))) continue;
    listed.insert(key_of(device));
    all_.push_back(&device);
  }
  for (const Segment& segment : trace.segments) {
    if (!listed.insert(key_of(segment)).second) continue;
    all_.push_back(&made_.emplace_back(
        DeviceTrace{.device = segment.device, .rank = segment.rank, .is_host = segment.is_host}));
  }
}

std::size_t count_used_devices(const Trace& trace) {
  std::set<UsedKey> used = keys_of_segments(trace);
  for (const DeviceTrace& device : trace.devices) {
    if (!device.events.empty()) used.insert(key_of(device));
  }
  return used.size();
}

}  // namespace headroom::trace
