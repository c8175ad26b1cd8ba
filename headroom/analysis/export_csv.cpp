#include "headroom/analysis/export_csv.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/internal/exported_block.h"
#include "headroom/analysis/sites.h"
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

// In quotes where a reader would take it for more than one field, or for a comment.
std::string field(std::string_view text) {
  if (text.find_first_of("\",#\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += c;
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + '"';
}

// The lines of one device.
class DeviceLines {
 public:
  DeviceLines(const TraceIndex& index, Sites& sites, Lines& lines)
      : trace_(index.trace()),
        index_(index),
        categories_(index),
        sites_(sites),
        lines_(lines),
        device_(field(device_name(index.trace(), index.device()))),
        end_us_(index.time_us_at(index.end_position())) {}

  void add_all() {
    for (std::size_t i = 0; i < index_.events().size(); ++i) add_event(i);
    for (const Segment& segment : trace_.segments) {
      if (is_of(segment, index_.device())) add_segment(segment);
    }
  }

 private:
  void add_event(std::size_t i) {
    const Events& events = index_.events();
    const Action action = events.action(i);
    // There the column holds the device's free bytes, which are no address.
    const DeviceAddress address = action == Action::kOutOfMemory ? 0 : events.address(i);
    const std::uint32_t block = index_.lifetime_of(i);
    const bool is_blocks = block != kNoEvent;
    lines_.add("{},{},{},{},{},{},{},{},{},,",
               device_,
               to_string(action),
               address,
               events.size_bytes(i),
               events.stream(i),
               events.time_us(i),
               is_blocks ? category(block) : "",
               site(is_blocks ? index_.lifetimes()[block].stack : events.stack(i)),
               annotation(is_blocks ? index_.lifetimes()[block].details : events.details(i)));
  }

  void add_segment(const Segment& segment) {
    lines_.add("{},segment,{},{},{},{},,{},{},,{}{}",
               device_,
               segment.address,
               segment.size_bytes,
               segment.stream,
               end_us_,
               site(segment.stack),
               annotation(segment.details),
               segment.is_small ? "small" : "large",
               segment.is_expandable.value_or(false) ? "-expandable" : "");
    DeviceAddress at = segment.address;
    for (const Block& block : segment.blocks) {
      const DeviceAddress address = block.address.value_or(at);
      at = address + block.size_bytes;
      const auto held = held_.find(address);
      const bool is_held = held != held_.end() && block.state != memory::BlockState::kInactive;
      lines_.add("{},block,{},{},{},{},{},{},{},{},{}",
                 device_,
                 address,
                 block.size_bytes,
                 segment.stream,
                 end_us_,
                 is_held ? category(held->second) : "",
                 site(block.stack),
                 annotation(block.details),
                 block.requested_bytes.value_or(block.size_bytes),
                 csv_state(block.state));
    }
  }

  [[nodiscard]] std::string_view category(std::uint32_t block) const {
    return to_string(categories_.category_of(block));
  }
  [[nodiscard]] std::string annotation(DetailsId details) const {
    return field(internal::annotation_of(trace_, details));
  }
  // Written once for each site: there are few, and many events.
  const std::string& site(StackId stack) {
    const SiteId id = sites_.site_of(stack);
    const auto [at, is_new] = site_fields_.try_emplace(id);
    if (is_new && id != kNoSite) at->second = field(sites_.name(id));
    return at->second;
  }

  static std::unordered_map<DeviceAddress, std::uint32_t> held_at_end(const TraceIndex& index) {
    std::unordered_map<DeviceAddress, std::uint32_t> held;
    for (const std::uint32_t id : index.live_at(index.end_position())) {
      held.emplace(index.lifetimes()[id].address, id);
    }
    return held;
  }

  const Trace& trace_;
  const TraceIndex& index_;
  Categories categories_;
  Sites& sites_;
  Lines& lines_;
  std::string device_;
  std::int64_t end_us_;
  std::unordered_map<DeviceAddress, std::uint32_t> held_ = held_at_end(index_);
  std::unordered_map<SiteId, std::string> site_fields_;
};

}  // namespace

void export_csv(const Trace& trace, std::ostream& out) {
  Lines lines(out);
  lines.add("device,action,addr,size,stream,time_us,category,site,annotation,requested,state");
  const std::string settings = one_line(trace.settings_string());
  if (!settings.empty()) lines.add("# settings={}", settings);
  Sites sites(trace);
  const trace::UsedDevices used(trace);
  for (const DeviceTrace* device : used.all()) {
    const TraceIndex index(trace, *device);
    DeviceLines(index, sites, lines).add_all();
  }
  lines.flush();
}

}  // namespace headroom::analysis
