#include "headroom/analysis/export_speedscope.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/analysis/index.h"
#include "headroom/analysis/internal/exported_block.h"
#include "headroom/analysis/internal/json_out.h"
#include "headroom/base/bytes.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

namespace headroom::analysis {
namespace {

using internal::JsonOut;

// Blocks of one stack under one annotation.
struct Sample {
  StackId stack = 0;
  StringId annotation = 0;
  std::uint64_t bytes = 0;
};

struct Profile {
  std::string name;
  std::vector<Sample> samples;
  std::uint64_t bytes = 0;
};

// The largest first; equal ones in the order of the recording's tables.
std::vector<Sample> samples_at(const TraceIndex& index, std::uint32_t position) {
  std::map<std::pair<StackId, StringId>, std::uint64_t> sums;
  for (const std::uint32_t id : index.allocated_at(position)) {
    const Lifetime& block = index.lifetimes()[id];
    const Details& details = index.trace().details[block.details];
    sums[{block.stack, details.user_metadata.value_or(0)}] += block.block_bytes;
  }
  std::vector<Sample> samples;
  samples.reserve(sums.size());
  for (const auto& [key, bytes] : sums) samples.push_back({key.first, key.second, bytes});
  std::ranges::stable_sort(samples, std::ranges::greater{}, &Sample::bytes);
  return samples;
}

Profile profile_of(const TraceIndex& index, const SpeedscopeOptions& options) {
  const auto end = std::uint64_t{index.end_position()};
  const bool is_peak = !options.position.has_value();
  const auto position = is_peak ? index.peaks().allocated.position
                                : static_cast<std::uint32_t>(std::min(*options.position, end));
  Profile profile;
  profile.samples = samples_at(index, position);
  for (const Sample& sample : profile.samples) profile.bytes += sample.bytes;
  profile.name = fmt::format("{}: {} after {} of {} events{}",
                             device_name(index.trace(), index.device()),
                             format_bytes(profile.bytes),
                             format_count(position),
                             format_count(end),
                             is_peak ? ", the peak" : "");
  return profile;
}

// Annotations as frames, numbered behind those of the recording: a frame for each part of a path.
// The one after the recording's own stands for stacks that were not kept.
class AnnotationFrames {
 public:
  explicit AnnotationFrames(const Trace& trace) : trace_(trace) {
    for (DetailsId id = 0; id < trace.details.size(); ++id) {
      const StringId text = trace.details[id].user_metadata.value_or(0);
      if (text == 0 || paths_.contains(text)) continue;
      for (const std::string_view part : internal::annotation_parts(trace, trace.strings[text])) {
        const auto [at, is_new] = numbers_.try_emplace(std::string(part), first() + names_.size());
        if (is_new) names_.push_back(at->first);
        paths_[text].push_back(at->second);
      }
    }
  }

  [[nodiscard]] std::size_t no_stack() const { return trace_.stacks.frame_count(); }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  // Outermost first.
  [[nodiscard]] std::vector<std::size_t> path(StringId annotation) const {
    const auto found = paths_.find(annotation);
    return found == paths_.end() ? std::vector<std::size_t>{} : found->second;
  }

 private:
  [[nodiscard]] std::size_t first() const { return no_stack() + 1; }

  const Trace& trace_;
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> names_;
  std::map<StringId, std::vector<std::size_t>> paths_;
};

// Frames keep their numbers. The viewer shows file and line beside the name.
void write_frames(const Trace& trace, const AnnotationFrames& annotations, JsonOut& json) {
  json.raw("\"shared\":{{\"frames\":[");
  for (std::uint32_t id = 0; id < trace.stacks.frame_count(); ++id) {
    const Frame& frame = trace.stacks.frame(id);
    const std::string_view file = trace.strings[frame.file];
    const std::string_view name = trace.strings[frame.name];
    json.raw("{{\"name\":");
    json.string(!name.empty() ? name : file.substr(file.find_last_of("/\\") + 1));
    json.raw(",\"file\":");
    json.string(file);
    if (frame.line > 0) json.raw(",\"line\":{}", frame.line);
    json.raw("}},\n");
  }
  json.raw("{{\"name\":\"(no stack)\"}}");
  for (const std::string& name : annotations.names()) {
    json.raw(",\n{{\"name\":");
    json.string(name);
    json.raw("}}");
  }
  json.raw("]}}");
}

// Outermost first, the other way round than we keep stacks, and annotations around them.
std::vector<std::size_t> frames_of(const Trace& trace,
                                   const AnnotationFrames& annotations,
                                   const Sample& sample) {
  std::vector<std::size_t> frames = annotations.path(sample.annotation);
  const auto stack = trace.stacks.frame_ids(sample.stack);
  frames.insert(frames.end(), stack.rbegin(), stack.rend());
  if (frames.empty()) frames.push_back(annotations.no_stack());
  return frames;
}

void write_profile(const Trace& trace,
                   const AnnotationFrames& annotations,
                   const Profile& profile,
                   JsonOut& json) {
  json.raw("{{\"type\":\"sampled\",\"name\":");
  json.string(profile.name);
  json.raw(",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":{},\"samples\":[", profile.bytes);
  std::string_view comma;
  for (const Sample& sample : profile.samples) {
    json.raw("{}[{}]", comma, fmt::join(frames_of(trace, annotations, sample), ","));
    comma = ",\n";
  }
  json.raw("],\"weights\":[");
  comma = "";
  for (const Sample& sample : profile.samples) {
    json.raw("{}{}", comma, sample.bytes);
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
  const AnnotationFrames annotations(trace);
  write_frames(trace, annotations, json);
  json.raw(",\n\"profiles\":[");
  const trace::UsedDevices used(trace);
  for (const DeviceTrace* device : used.all()) {
    const Profile profile = profile_of(TraceIndex(trace, *device), options);
    if (profile.samples.empty()) continue;
    if (summary.profiles > 0) json.raw(",\n");
    write_profile(trace, annotations, profile, json);
    ++summary.profiles;
    summary.stacks += profile.samples.size();
    summary.bytes += profile.bytes;
  }
  json.raw("]}}\n");
  json.flush();
  return summary;
}

}  // namespace headroom::analysis
