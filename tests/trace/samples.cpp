#include "tests/trace/samples.h"

#include <algorithm>
#include <filesystem>

namespace headroom::trace::testing {

using memory::testing::RecordedEvent;
using memory::testing::Recording;

std::vector<std::string> recording_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_TEST_RECORDINGS)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".csv.zst")) names.push_back(name.substr(0, name.find('.')));
  }
  std::ranges::sort(names);
  return names;
}

Recording recording(const std::string& name) {
  return memory::testing::read_recording(std::string(HEADROOM_TEST_RECORDINGS) + "/" + name +
                                         ".csv.zst");
}

Trace trace_of(std::span<const RecordedEvent> events,
               std::span<const memory::SegmentInfo> final_segments,
               const std::string& settings) {
  Trace trace;
  trace.settings = Value{Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", Value{settings}}}};
  DeviceTrace& device = trace.devices.emplace_back();
  std::int64_t time_us = 1'000'000;
  for (const RecordedEvent& event : events) {
    device.events.push_back({.action = event.action,
                             .address = event.address,
                             .size_bytes = event.size_bytes,
                             .stream = device::to_integer(event.stream),
                             .time_us = time_us++});
  }
  for (const memory::SegmentInfo& info : final_segments) {
    Segment segment{.address = info.address,
                    .size_bytes = info.size_bytes,
                    .stream = device::to_integer(info.stream),
                    .is_small = info.is_small,
                    .is_expandable = info.is_expandable,
                    .pool = info.pool};
    for (const memory::BlockInfo& block : info.blocks) {
      segment.blocks.push_back({.address = block.address,
                                .size_bytes = block.size_bytes,
                                .requested_bytes = block.requested_bytes,
                                .state = block.state});
    }
    trace.segments.push_back(std::move(segment));
  }
  return trace;
}

Trace trace_of(const Recording& recording, std::size_t first) {
  return trace_of(
      std::span(recording.events).subspan(first), recording.final_segments, recording.settings);
}

}  // namespace headroom::trace::testing
