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

namespace {

// Stacks of a model: the user's function below, a library's on top.
class Stacks {
 public:
  explicit Stacks(Trace& trace) : trace_(trace) {}

  StackId call(const char* function, int line) {
    const std::vector<Frame> frames{
        frame("/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py", "linear", 2301),
        frame("/home/me/train.py", function, line),
        frame("/home/me/train.py", "<module>", 90)};
    return trace_.stacks.intern(frames);
  }

 private:
  Frame frame(const char* file, const char* function, int line) {
    return {
        .name = trace_.strings.intern(function), .file = trace_.strings.intern(file), .line = line};
  }
  Trace& trace_;
};

}  // namespace

Trace small_trace() {
  Trace trace;
  Stacks stacks(trace);
  const StackId weights = stacks.call("build", 12);
  const StackId forward = stacks.call("forward", 30);
  const StackId backward = stacks.call("backward", 31);
  constexpr DeviceAddress kSegment = 0x7f0000000000;
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
  std::int64_t time_us = 1'700'000'000'000'000;
  DeviceTrace& device = trace.devices.emplace_back();
  const auto add = [&](Action action, DeviceAddress offset, std::uint64_t size, StackId stack) {
    device.events.push_back({.action = action,
                             .address = kSegment + offset,
                             .size_bytes = size,
                             .time_us = time_us += 250,
                             .stack = stack});
  };
  const auto free = [&](DeviceAddress offset, std::uint64_t size, StackId stack) {
    add(Action::kFreeRequested, offset, size, stack);
    add(Action::kFreeCompleted, offset, size, stack);
  };
  add(Action::kSegmentAlloc, 0, 64 * kMiB, weights);
  add(Action::kAlloc, 0, 16 * kMiB, weights);
  const auto annotate = [&](const char* name, bool is_start) {
    trace.annotations.push_back(
        {.name = trace.strings.intern(name), .is_start = is_start, .time_us = time_us});
  };
  trace.has_annotations = true;
  for (int step = 0; step < 3; ++step) {
    annotate("forward", true);
    add(Action::kAlloc, 16 * kMiB, 20 * kMiB, forward);
    add(Action::kAlloc, 36 * kMiB, 8 * kMiB, forward);
    annotate("forward", false);
    annotate("backward", true);
    add(Action::kAlloc, 44 * kMiB, 16 * kMiB, backward);
    free(36 * kMiB, 8 * kMiB, forward);
    free(16 * kMiB, 20 * kMiB, forward);
    free(44 * kMiB, 16 * kMiB, backward);
    annotate("backward", false);
  }
  device.events.push_back({.action = Action::kOutOfMemory,
                           .address = 7 * kMiB,
                           .size_bytes = 512 * kMiB,
                           .time_us = time_us += 250,
                           .stack = forward});
  trace.segments.push_back(
      {.address = kSegment,
       .size_bytes = 64 * kMiB,
       .allocated_bytes = 16 * kMiB,
       .is_expandable = false,
       .blocks = {
           {.address = kSegment,
            .size_bytes = 16 * kMiB,
            .requested_bytes = 16 * kMiB,
            .state = memory::BlockState::kAllocated,
            .stack = weights},
           {.address = kSegment + 16 * kMiB, .size_bytes = 48 * kMiB, .requested_bytes = 0}}});
  return trace;
}

}  // namespace headroom::trace::testing
