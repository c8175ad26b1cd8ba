#include "cli/info/info.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/analysis/sites.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

#include "cli/commands.h"
#include "cli/input/category_rules.h"
#include "cli/input/trace_input.h"

namespace headroom::cli {
namespace {

using analysis::CategoryRules;
using analysis::Certainty;
using analysis::GroupBy;
using analysis::TraceIndex;
using trace::Action;
using trace::DeviceTrace;
using trace::Trace;
using trace::UsedDevices;

std::uint64_t segment_count(const Trace& trace, const DeviceTrace& device) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      trace.segments, [&](const trace::Segment& segment) { return is_of(segment, device); }));
}

PeakInfo peak_info(const TraceIndex& index, const analysis::Peak& peak) {
  return {.bytes = peak.bytes,
          .after_events = peak.position,
          .after_us = index.time_us_at(peak.position) - index.time_us_at(0)};
}

// The curves, and the totals at the start, at the peak and at the end.
void walk(const TraceIndex& index, DeviceInfo& info) {
  const std::size_t positions = std::size_t{index.end_position()} + 1;
  const std::size_t points = std::min(positions, DeviceInfo::kCurvePoints);
  info.allocated_curve.assign(points, 0);
  info.reserved_curve.assign(points, 0);
  for (analysis::TotalsCursor at(index);; at.step()) {
    const analysis::Totals& now = at.totals();
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

// What tells something of a stack, innermost first; a frame that calls itself is there once.
std::vector<std::string> short_stack_text(const Trace& trace,
                                          const analysis::Frames& frames,
                                          trace::StackId stack) {
  std::vector<std::string> out;
  for (const analysis::FrameId id : trace.stacks.frame_ids(stack)) {
    const analysis::FrameKind kind = frames.kind(id);
    if (kind != analysis::FrameKind::kUser && kind != analysis::FrameKind::kLibrary) continue;
    std::string name = frames.name(id);
    if (out.empty() || out.back() != name) out.push_back(std::move(name));
  }
  return out;
}

std::vector<HolderInfo> holders(const TraceIndex& index,
                                std::span<const std::uint32_t> blocks,
                                GroupBy by,
                                std::size_t top) {
  std::vector<HolderInfo> out;
  for (analysis::Group& group : group_blocks(index, blocks, by)) {
    HolderInfo& one = out.emplace_back();
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
                    DeviceInfo& info) {
  const analysis::Frames frames(index.trace());
  info.sites = holders(index, blocks, GroupBy::kSite, top);
  info.site_tree = site_tree(index, blocks);
  info.stacks = holders(index, blocks, GroupBy::kStack, top);
  for (std::size_t i = 0; i < std::min(top, info.stacks.size()); ++i) {
    HolderInfo& one = info.stacks[i];
    one.short_stack = short_stack_text(index.trace(), frames, one.group.stack);
  }
  info.modules = holders(index, blocks, GroupBy::kModule, top);
}

// Nothing where all that is known is that nothing is known.
std::vector<HolderInfo> known_holders(std::vector<HolderInfo> all, std::string_view unknown) {
  const bool is_known =
      std::ranges::any_of(all, [&](const HolderInfo& h) { return h.group.label != unknown; });
  if (!is_known) all.clear();
  return all;
}

// How most of a category is known; nothing where it was recorded.
std::string known_by(const std::array<std::uint64_t, analysis::kCertaintyCount>& bytes) {
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

std::vector<HolderInfo> category_holders(const TraceIndex& index,
                                         std::span<const std::uint32_t> blocks,
                                         const CategoryRules& rules,
                                         CategorySums& sums) {
  const analysis::Categories categories(index, rules);
  for (const std::uint32_t id : blocks) {
    const auto category = static_cast<std::size_t>(categories.of(id));
    const auto certainty = static_cast<std::size_t>(categories.certainty_of(id));
    sums[category][certainty] += index.lifetimes()[id].requested_bytes;
  }
  std::vector<HolderInfo> out;
  for (analysis::Group& group : group_blocks(index, blocks, categories)) {
    HolderInfo& holder = out.emplace_back();
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

void look_at_peak(const TraceIndex& index, const InfoQuestion& question, DeviceInfo& info) {
  const auto blocks = index.allocated_at(index.peaks().allocated.position);
  info.blocks_at_peak = blocks.size();
  info.has_stacks = std::ranges::any_of(index.lifetimes(), [&](const analysis::Lifetime& block) {
    return !index.trace().stacks.frame_ids(block.stack).empty();
  });
  const std::size_t top = question.top;
  if (info.has_stacks) look_at_stacks(index, blocks, top, info);
  info.by_size = holders(index, blocks, GroupBy::kSize, top);
  info.categories = known_holders(
      category_holders(index, blocks, question.rules, info.categories_at_peak), "unknown");
  info.annotations = known_holders(holders(index, blocks, GroupBy::kAnnotation, top), "(none)");
  if (!info.annotations.empty()) info.modules = info.annotations;
}

DeviceInfo look_at(const Trace& trace, const DeviceTrace& device, const InfoQuestion& question) {
  const TraceIndex index(trace, device);
  DeviceInfo info;
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
  look_at_peak(index, question, info);
  return info;
}

bool is_called(const DeviceTrace& device, const std::string& name, const Trace& trace) {
  return device_name(trace, device) == name ||
         (!device.is_host && std::to_string(device.device) == name);
}

[[noreturn]] void complain_of_device(const Trace& trace,
                                     const UsedDevices& used,
                                     const InfoQuestion& question) {
  std::string names;
  for (const DeviceTrace* device : used.all()) {
    if (!names.empty()) names += ", ";
    names += device_name(trace, *device);
  }
  throw UsageError(fmt::format("{} has no events of device '{}'; it has {}",
                               question.path,
                               *question.device,
                               names.empty() ? "none at all" : names));
}

ExitCode run(InfoQuestion& question, const Context& context) {
  if (!question.rules_path.empty()) question.rules = read_category_rules(question.rules_path);
  const trace::TraceFile file = read_input(question.path, context);
  const InfoReport report = look_into(file, question);
  context.print(context.is_json ? info_json(report, question)
                                : draw_info(report, question, context));
  return ExitCode::kDone;
}

std::optional<InfoBy> typed_by(const std::string& text) {
  if (text.empty()) return std::nullopt;
  constexpr std::array kWays{std::pair{"site", InfoBy::kSite},
                             std::pair{"stack", InfoBy::kStack},
                             std::pair{"module", InfoBy::kModule}};
  const std::string lower = CLI::detail::to_lower(text);
  for (const auto& [name, way] : kWays) {
    if (lower == name) return way;
  }
  throw UsageError(fmt::format("--by: '{}' is unknown; use site, stack or module", text));
}

RunFunction add_info(CLI::App& app) {
  auto question = std::make_shared<InfoQuestion>();
  app.add_option("RECORDING", question->path, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("RECORDING")
      ->required()
      ->group("Options");
  app.add_option("--top", question->top, "how many rows to list in each table (default 8)")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->group("Options");
  app.add_option("--device",
                 question->device,
                 "only this device, such as cuda:1 or 1 (default: the one with the highest peak)")
      ->type_name("DEVICE")
      ->group("Options");
  app.add_option("--rules",
                 question->rules_path,
                 "a file of rules that give blocks a category (docs/guide/categories.md)")
      ->type_name("FILE")
      ->group("Options");
  auto by = std::make_shared<std::string>();
  app.add_option("--by", *by, "list who held memory by site (default), stack or module")
      ->type_name("WHAT")
      ->group("Options");
  return [question, by](const Context& context) {
    question->by = typed_by(*by);
    return run(*question, context);
  };
}

}  // namespace

InfoReport look_into(const trace::TraceFile& file, const InfoQuestion& question) {
  InfoReport report{.path = question.path,
                    .format = file.format,
                    .is_packed = file.is_packed,
                    .file_bytes = file.file_bytes,
                    .note = file.note,
                    .producer = file.trace.producer,
                    .settings = file.trace.settings_string(),
                    .annotations = file.trace.annotations.size()};
  const UsedDevices used(file.trace);
  for (const DeviceTrace* device : used.all()) {
    if (question.device && !is_called(*device, *question.device, file.trace)) continue;
    report.devices.push_back(look_at(file.trace, *device, question));
    report.has_stacks = report.has_stacks || report.devices.back().has_stacks;
  }
  if (question.device && report.devices.empty()) complain_of_device(file.trace, used, question);
  return report;
}

Command info_command() {
  return {.name = "info",
          .group = "Look into a recording",
          .summary = "show what a recording holds: peaks, who held them, sizes, lifetimes",
          .examples =
              "info snapshot.pickle  the peaks, and who held memory then\n"
              "info run.hrt --top 20  more rows in each table\n"
              "info snapshot.pickle --by stack  whole stacks; --by module groups by module\n"
              "info snapshot.pickle --json | jq .peak_allocated  one number, for programs",
          .add = add_info};
}

}  // namespace headroom::cli
