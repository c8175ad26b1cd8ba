#include "headroom/analysis/export_csv.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

namespace headroom::analysis {
namespace {

constexpr std::size_t kFlushBytes = 1U << 16U;

class Lines {
 public:
  explicit Lines(std::ostream& out) : out_(out) {}
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(fmt::appender(buffer_), format, std::forward<Args>(args)...);
    buffer_.push_back('\n');
    if (buffer_.size() >= kFlushBytes) flush();
  }

  // To be called at the end: a destructor could not say that it failed.
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

 private:
  std::ostream& out_;
  fmt::memory_buffer buffer_;
};

std::string_view csv_state(memory::BlockState state) {
  switch (state) {
    case memory::BlockState::kAllocated:
      return "active_allocated";
    case memory::BlockState::kPendingFree:
      return "active_pending_free";
    case memory::BlockState::kInactive:
    case memory::BlockState::kUnmapped:
      break;
  }
  return "inactive";
}

// Settings are one line, whatever a file says they are.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

void add_events(const Events& events, Lines& lines) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Action action = events.action(i);
    // There the column holds the device's free bytes, which are no address.
    const DeviceAddress address = action == Action::kOutOfMemory ? 0 : events.address(i);
    lines.add("{},{},{},{},{}",
              to_string(action),
              address,
              events.size_bytes(i),
              events.stream(i),
              events.time_us(i));
  }
}

void add_segment(const Segment& segment, Lines& lines) {
  lines.add("segment,{},{},{},{}{}",
            segment.address,
            segment.size_bytes,
            segment.stream,
            segment.is_small ? "small" : "large",
            segment.is_expandable.value_or(false) ? "-expandable" : "");
  DeviceAddress at = segment.address;
  for (const Block& block : segment.blocks) {
    const DeviceAddress address = block.address.value_or(at);
    at = address + block.size_bytes;
    lines.add("block,{},{},{},{}",
              address,
              block.size_bytes,
              block.requested_bytes.value_or(block.size_bytes),
              csv_state(block.state));
  }
}

}  // namespace

void export_csv(const Trace& trace, std::ostream& out) {
  Lines lines(out);
  lines.add("# settings={}", one_line(trace.settings_string()));
  const trace::UsedDevices used(trace);
  for (const DeviceTrace* device : used.all()) {
    if (used.all().size() > 1) lines.add("# device={}", device_name(trace, *device));
    add_events(device->events, lines);
    for (const Segment& segment : trace.segments) {
      if (is_of(segment, *device)) add_segment(segment, lines);
    }
  }
  lines.flush();
}

}  // namespace headroom::analysis
