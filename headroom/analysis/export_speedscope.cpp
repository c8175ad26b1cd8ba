#include "headroom/analysis/export_speedscope.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/groups.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/internal/json_out.h"
#include "headroom/base/bytes.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

namespace headroom::analysis {
namespace {

using internal::JsonOut;

struct Profile {
  std::string name;
  std::vector<Group> stacks;
  std::uint64_t bytes = 0;
};

Profile profile_of(const TraceIndex& index, const SpeedscopeOptions& options) {
  const auto end = std::uint64_t{index.end_position()};
  const bool is_peak = !options.position.has_value();
  const auto position = is_peak ? index.peaks().allocated.position
                                : static_cast<std::uint32_t>(std::min(*options.position, end));
  Profile profile;
  profile.stacks = group_blocks(index, index.allocated_at(position), GroupBy::kStack);
  for (const Group& group : profile.stacks) profile.bytes += group.bytes;
  profile.name = fmt::format("{}: {} after {} of {} events{}",
                             device_name(index.trace(), index.device()),
                             format_bytes(profile.bytes),
                             format_count(position),
                             format_count(end),
                             is_peak ? ", the peak" : "");
  return profile;
}

// Frames keep their numbers; one more stands for stacks that were not kept.
void write_frames(const Trace& trace, JsonOut& json) {
  json.raw("\"shared\":{{\"frames\":[");
  for (std::uint32_t id = 0; id < trace.stacks.frame_count(); ++id) {
    const Frame& frame = trace.stacks.frame(id);
    json.raw("{{\"name\":");
    json.string(trace.strings[frame.name]);
    json.raw(",\"file\":");
    json.string(trace.strings[frame.file]);
    if (frame.line > 0) json.raw(",\"line\":{}", frame.line);
    json.raw("}},\n");
  }
  json.raw("{{\"name\":\"(no stack)\"}}]}}");
}

void write_profile(const Trace& trace, const Profile& profile, JsonOut& json) {
  json.raw("{{\"type\":\"sampled\",\"name\":");
  json.string(profile.name);
  json.raw(",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":{},\"samples\":[", profile.bytes);
  std::string_view comma;
  for (const Group& group : profile.stacks) {
    // Outermost first, the other way round than we keep them.
    const auto frames = trace.stacks.frame_ids(group.stack);
    json.raw("{}[", comma);
    if (frames.empty()) json.raw("{}", trace.stacks.frame_count());
    for (std::size_t i = frames.size(); i-- > 0;) json.raw("{}{}", frames[i], i > 0 ? "," : "");
    json.raw("]");
    comma = ",\n";
  }
  json.raw("],\"weights\":[");
  comma = "";
  for (const Group& group : profile.stacks) {
    json.raw("{}{}", comma, group.bytes);
    comma = ",";
  }
  json.raw("]}}");
}

}  // namespace

SpeedscopeSummary export_speedscope(const Trace& trace,
                                    std::ostream& out,
                                    const SpeedscopeOptions& options) {
  SpeedscopeSummary summary;
  JsonOut json(out);
  json.raw(
      "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
      "\"exporter\":\"headroom\",");
  write_frames(trace, json);
  json.raw(",\n\"profiles\":[");
  const trace::UsedDevices used(trace);
  for (const DeviceTrace* device : used.all()) {
    const Profile profile = profile_of(TraceIndex(trace, *device), options);
    if (profile.stacks.empty()) continue;
    if (summary.profiles > 0) json.raw(",\n");
    write_profile(trace, profile, json);
    ++summary.profiles;
    summary.stacks += profile.stacks.size();
    summary.bytes += profile.bytes;
  }
  json.raw("]}}\n");
  json.flush();
  return summary;
}

}  // namespace headroom::analysis
