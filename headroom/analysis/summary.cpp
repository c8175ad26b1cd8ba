#include "headroom/analysis/summary.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "headroom/analysis/frames.h"
#include "headroom/analysis/sites.h"
#include "headroom/base/error.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

namespace headroom::analysis {
namespace {

using trace::Action;
using trace::DeviceTrace;
using trace::Trace;
using trace::UsedDevices;

std::uint64_t segment_count(const Trace& trace, const DeviceTrace& device) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      trace.segments, [&](const trace::Segment& segment) { return is_of(segment, device); }));
}

PeakMoment peak_info(const TraceIndex& index, const Peak& peak) {
  return {.bytes = peak.bytes,
          .after_events = peak.position,
          .after_us = index.time_us_at(peak.position) - index.time_us_at(0)};
}

// The curves, and the totals at the start, at the peak and at the end.
void walk(const TraceIndex& index, DeviceSummary& info) {
  const std::size_t positions = std::size_t{index.end_position()} + 1;
  const std::size_t points = std::min(positions, DeviceSummary::kCurvePoints);
  info.allocated_curve.assign(points, 0);
  info.reserved_curve.assign(points, 0);
  for (TotalsCursor at(index);; at.step()) {
    const Totals& now = at.totals();
    const std::size_t point = at.position() * points / positions;
    double& allocated = info.allocated_curve[point];
    double& reserved = info.reserved_curve[point];
    allocated = std::max(allocated, static_cast<double>(now.allocated));
    reserved = std::max(reserved, static_cast<double>(now.reserved));
    if (at.position() == 0) info.start = now;
    if (at.position() == index.peaks().allocated.position) info.reserved_at_peak = now.reserved;
    info.end = now;
    if (at.is_at_end()) return;
  }
}

std::vector<std::string> stack_text(const Trace& trace, trace::StackId stack) {
  std::vector<std::string> out;
  for (const std::uint32_t id : trace.stacks.frame_ids(stack)) {
    const trace::Frame& frame = trace.stacks.frame(id);
    out.push_back(
        fmt::format("{}:{} {}", trace.strings[frame.file], frame.line, trace.strings[frame.name]));
  }
  return out;
}

// The telling frames of a stack, innermost first; a frame that calls itself is there once.
std::vector<std::string> short_stack_text(const Trace& trace,
                                          const Frames& frames,
                                          trace::StackId stack) {
  std::vector<std::string> out;
  for (const FrameId id : trace.stacks.frame_ids(stack)) {
    const FrameKind kind = frames.kind(id);
    if (kind != FrameKind::kUser && kind != FrameKind::kLibrary) continue;
    std::string name = frames.name(id);
    if (out.empty() || out.back() != name) out.push_back(std::move(name));
  }
  return out;
}

std::vector<Holder> holders(const TraceIndex& index,
                            std::span<const std::uint32_t> blocks,
                            GroupBy by,
                            std::size_t top) {
  std::vector<Holder> out;
  for (Group& group : group_blocks(index, blocks, by)) {
    Holder& one = out.emplace_back();
    one.group = std::move(group);
    // There may be as many stacks as blocks; text is for those that are shown.
    if (out.size() <= top) one.stack = stack_text(index.trace(), one.group.stack);
  }
  return out;
}

// Who allocated it, by what a stack says.
void look_at_stacks(const TraceIndex& index,
                    std::span<const std::uint32_t> blocks,
                    std::size_t top,
                    DeviceSummary& info) {
  const Frames frames(index.trace());
  info.sites = holders(index, blocks, GroupBy::kSite, top);
  info.site_tree = site_tree(index, blocks);
  info.stacks = holders(index, blocks, GroupBy::kStack, top);
  for (std::size_t i = 0; i < std::min(top, info.stacks.size()); ++i) {
    Holder& one = info.stacks[i];
    one.short_stack = short_stack_text(index.trace(), frames, one.group.stack);
  }
  info.modules = holders(index, blocks, GroupBy::kModule, top);
}

// Nothing where all that is known is that nothing is known.
std::vector<Holder> known_holders(std::vector<Holder> all, std::string_view unknown) {
  const bool is_known =
      std::ranges::any_of(all, [&](const Holder& h) { return h.group.label != unknown; });
  if (!is_known) all.clear();
  return all;
}

// How most of a category is known; nothing where it was recorded.
std::string known_by(const std::array<std::uint64_t, kCertaintyCount>& bytes) {
  const auto most = std::ranges::max_element(bytes) - bytes.begin();
  switch (static_cast<Certainty>(most)) {
    case Certainty::kGuess:
      return "guess";
    case Certainty::kLifetime:
      return "from lifetimes";
    case Certainty::kStack:
      return "from stacks";
    case Certainty::kRule:
      return "from the rules";
    default:
      return {};
  }
}

std::vector<Holder> category_holders(const TraceIndex& index,
                                     std::span<const std::uint32_t> blocks,
                                     const CategoryRules& rules,
                                     CategorySums& sums,
                                     CategoryBytes& block_sums) {
  const Categories categories(index, rules);
  for (const std::uint32_t id : blocks) {
    const auto category = static_cast<std::size_t>(categories.category_of(id));
    const auto certainty = static_cast<std::size_t>(categories.certainty_of(id));
    sums[category][certainty] += index.lifetimes()[id].requested_bytes;
    block_sums[category] += index.lifetimes()[id].block_bytes;
  }
  std::vector<Holder> out;
  for (Group& group : group_blocks(index, blocks, categories)) {
    Holder& holder = out.emplace_back();
    holder.stack = stack_text(index.trace(), group.stack);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto category = static_cast<memory::Category>(i);
      if (to_string(category) == group.label) {
        holder.plain_name = plain_name(category);
        holder.known_by = known_by(sums[i]);
      }
    }
    holder.group = std::move(group);
  }
  return out;
}

void look_at_peak(const TraceIndex& index, const SummaryOptions& options, DeviceSummary& info) {
  const auto blocks = index.allocated_at(index.peaks().allocated.position);
  info.blocks_at_peak = blocks.size();
  info.has_stacks = index.has_stacks();
  const std::size_t top = options.top;
  if (info.has_stacks) look_at_stacks(index, blocks, top, info);
  info.by_size = holders(index, blocks, GroupBy::kSize, top);
  info.categories = known_holders(
      category_holders(
          index, blocks, options.rules, info.categories_at_peak, info.block_categories_at_peak),
      "unknown");
  info.annotations = known_holders(holders(index, blocks, GroupBy::kAnnotation, top), "(none)");
  if (!info.annotations.empty()) info.modules = info.annotations;
}

DeviceSummary look_at(const Trace& trace,
                      const DeviceTrace& device,
                      const SummaryOptions& options) {
  const TraceIndex index(trace, device);
  DeviceSummary info;
  info.name = device_name(trace, device);
  info.device = device.device;
  info.rank = device.rank;
  info.is_host = device.is_host;
  info.events = device.events.size();
  info.allocs = index.count(Action::kAlloc);
  info.frees = index.count(Action::kFreeRequested);
  info.frees_completed = index.count(Action::kFreeCompleted);
  info.ooms = index.count(Action::kOutOfMemory);
  info.segments = segment_count(trace, device);
  info.segment_allocs = index.count(Action::kSegmentAlloc) + index.count(Action::kSegmentMap);
  info.segment_frees = index.count(Action::kSegmentFree) + index.count(Action::kSegmentUnmap);
  info.dropped_events = device.dropped_events;
  info.first_time_us = index.time_us_at(0);
  info.duration_us = index.time_us_at(index.end_position()) - index.time_us_at(0);
  info.is_whole_history = index.start().is_empty();
  info.has_final_state = index.start().has_final_state;
  info.start_blocks = index.start().live.size();
  info.peak_live = peak_info(index, index.peaks().live);
  info.peak_allocated = peak_info(index, index.peaks().allocated);
  info.peak_active = peak_info(index, index.peaks().active);
  info.peak_reserved = peak_info(index, index.peaks().reserved);
  info.sizes = size_histogram(index);
  info.lifetimes = lifetime_histogram(index);
  info.anomalies = index.anomalies();
  walk(index, info);
  look_at_peak(index, options, info);
  return info;
}

bool is_called(const DeviceTrace& device, const std::string& name, const Trace& trace) {
  return device_name(trace, device) == name ||
         (!device.is_host && std::to_string(device.device) == name);
}

[[noreturn]] void complain_of_device(const Trace& trace,
                                     const UsedDevices& used,
                                     const SummaryOptions& options) {
  std::string names;
  for (const DeviceTrace* device : used.all()) {
    if (!names.empty()) names += ", ";
    names += device_name(trace, *device);
  }
  throw InvalidArgument(fmt::format("it has no events of device '{}', {}",
                                    *options.device,
                                    names.empty() ? "nor of any other" : "only of " + names));
}

}  // namespace

RecordingSummary look_into(const trace::TraceFile& file, const SummaryOptions& options) {
  RecordingSummary summary{.format = file.format,
                           .is_packed = file.is_packed,
                           .file_bytes = file.file_bytes,
                           .note = file.note,
                           .producer = file.trace.producer,
                           .settings = file.trace.settings_string(),
                           .annotations = file.trace.annotations.size()};
  const UsedDevices used(file.trace);
  for (const DeviceTrace* device : used.all()) {
    if (options.device && !is_called(*device, *options.device, file.trace)) continue;
    summary.devices.push_back(look_at(file.trace, *device, options));
    summary.has_stacks = summary.has_stacks || summary.devices.back().has_stacks;
  }
  if (options.device && summary.devices.empty()) complain_of_device(file.trace, used, options);
  return summary;
}

}  // namespace headroom::analysis
