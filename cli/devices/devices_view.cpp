// How `headroom devices` looks: a table of all devices, then for each its account, who holds its
// memory, and its hierarchy as a picture.
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <span>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/report/bar.h"
#include "headroom/report/ladder.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/devices/devices.h"
#include "cli/output/layout.h"

namespace headroom::cli {
namespace {

using device::DeviceKind;
using device::MemoryLevel;
using device::ProcessMemory;
using report::Align;
using report::Fit;
using report::Terminal;
using report::Tone;

// Devices that are drawn together because they are the same thing several times.
using Alike = std::span<const DeviceReport>;

std::string compute_text(const device::Properties& properties) {
  if (properties.multiprocessors <= 0) return "";
  const bool is_gpu = properties.id.kind == DeviceKind::kCuda;
  const char* unit = is_gpu ? "SM" : "core";
  const bool is_one = properties.multiprocessors == 1;
  return fmt::format("{} {}{}", properties.multiprocessors, unit, is_one ? "" : "s");
}

std::string overview(const DevicesReport& report, const Terminal& terminal) {
  report::Table table({{"device"},
                       {"architecture", Align::kLeft, Fit::kDrops},
                       {"compute", Align::kRight, Fit::kDrops},
                       {"capacity", Align::kRight},
                       {"used", Align::kRight},
                       {"free", Align::kRight},
                       {"granularity", Align::kRight, Fit::kDrops}});
  for (const DeviceReport& device : report.devices) {
    const device::Properties& properties = device.properties;
    const auto& account = device.account;
    table.add_row({to_string(properties.id),
                   report::printable(properties.architecture),
                   compute_text(properties),
                   format_bytes(account ? account->total_bytes : properties.total_bytes),
                   account ? format_bytes(account->used()) : "?",
                   account ? format_bytes(account->free_bytes) : "?",
                   format_bytes(properties.granularity_bytes)});
  }
  return table.is_empty() ? "" : table.render(terminal);
}

std::string reasons_for_none(const DevicesReport& report, const Terminal& terminal) {
  std::string out;
  for (const auto& [kind, why] : report.unavailable) {
    const std::string text = fmt::format("no {} device: {}", kind, report::printable(why));
    for (const std::string& line : report::wrap(text, terminal.width)) {
      out += report::styled(line, Tone::kFaint, terminal) + "\n";
    }
  }
  return out;
}

// --- Groups
// ---------------------------------------------------------------------------------------

bool is_same_level(const MemoryLevel& a, const MemoryLevel& b) {
  return a.name == b.name && a.size_bytes == b.size_bytes && a.instances == b.instances;
}

bool is_same_hardware(const DeviceReport& a, const DeviceReport& b) {
  return !a.is_measured && !b.is_measured && a.properties.name == b.properties.name &&
         std::ranges::equal(a.properties.hierarchy, b.properties.hierarchy, is_same_level);
}

std::vector<Alike> groups_of(const DevicesReport& report) {
  std::vector<Alike> groups;
  std::size_t first = 0;
  for (std::size_t i = 1; i <= report.devices.size(); ++i) {
    const bool continues =
        i < report.devices.size() && is_same_hardware(report.devices[first], report.devices[i]);
    if (continues) continue;
    groups.push_back(Alike(report.devices).subspan(first, i - first));
    first = i;
  }
  return groups;
}

std::string group_heading(Alike group, const Context& context) {
  std::string ids = to_string(group.front().properties.id);
  if (group.size() > 1) ids += " to " + to_string(group.back().properties.id);
  const int room = context.out.width - report::display_width(ids) - kIndent;
  const std::string name = report::printable(group.front().properties.name);
  return report::styled(ids, Tone::kStrong, context.out) + "  " +
         report::shorten(name, room, context.out) + "\n";
}

std::string details(const device::Properties& properties, const Context& context) {
  if (context.verbosity == 0) return "";
  const std::string text =
      fmt::format("{} virtual memory, up to {} of addresses; {} reach its memory directly",
                  properties.has_virtual_memory ? "has" : "no",
                  format_bytes(properties.max_reservation_bytes),
                  properties.host_accessible ? "the processor can" : "the processor cannot");
  return report::wrapped(text, kIndent, context.out.width);
}

// --- The account
// ------------------------------------------------------------------------------------------------

// The lines of the account, and of the bar; free is the last.
std::vector<report::BarPart> account_parts(const memory::Account& account) {
  std::vector<report::BarPart> parts;
  for (const memory::AccountLine& line : lines(account)) {
    parts.push_back({line.label, line.size_bytes, Tone::kAccent});
  }
  parts.back().tone = Tone::kFaint;
  if (parts.size() == 1) parts.insert(parts.begin(), {"used", 0, Tone::kAccent});
  return parts;
}

std::string account_text(const DeviceReport& device,
                         const std::string& label,
                         const Terminal& terminal) {
  if (!device.account) return "";
  constexpr int kShortestBar = 10;
  constexpr int kLongestBar = 32;
  const std::vector<report::BarPart> parts = account_parts(*device.account);
  const int start = kIndent + report::display_width(label) + 2;
  const std::string lead = report::repeated(" ", kIndent) + label + "  ";
  const std::string legend = report::legend(parts, terminal);
  const int room = terminal.width - start - 2 - report::display_width(legend);
  if (room >= kShortestBar) {
    return lead + report::stacked_bar(parts, std::min(room, kLongestBar), terminal) + "  " +
           legend + "\n";
  }
  const int width = std::min(terminal.width - start, kLongestBar);
  std::string out = lead + report::stacked_bar(parts, width, terminal) + "\n";
  for (const std::string& line : report::legend_lines(parts, terminal.width - start, terminal)) {
    out += report::repeated(" ", start) + line + "\n";
  }
  return out;
}

// A process on a device of the group.
struct DeviceProcess {
  std::string device;
  ProcessMemory process;
};

// By device, the largest first. Ourselves with nothing, which is how this command mostly finds
// itself, is not worth a row.
std::vector<DeviceProcess> holders_in(Alike group) {
  std::vector<DeviceProcess> holders;
  for (const DeviceReport& device : group) {
    std::vector<ProcessMemory> processes = device.processes.value_or(std::vector<ProcessMemory>{});
    std::ranges::stable_sort(processes, std::ranges::greater{}, &ProcessMemory::used_bytes);
    for (const ProcessMemory& process : processes) {
      if (process.is_self && process.used_bytes == 0) continue;
      holders.push_back({to_string(device.properties.id), process});
    }
  }
  return holders;
}

std::string process_table(const std::vector<DeviceProcess>& holders,
                          bool has_device,
                          const Context& context) {
  constexpr std::size_t kMostRows = 8;
  report::Table table({{"device"},
                       {"pid", Align::kRight},
                       {"process", Align::kLeft, Fit::kShrinks},
                       {"holds", Align::kRight}});
  const std::size_t rows =
      context.verbosity > 0 ? holders.size() : std::min(holders.size(), kMostRows);
  for (const DeviceProcess& holder : std::span(holders).first(rows)) {
    const ProcessMemory& process = holder.process;
    table.add_row({has_device ? holder.device : "",
                   process.pid == 0 ? "-" : std::to_string(process.pid),
                   report::printable(process.name) + (process.is_self ? " (this one)" : ""),
                   format_bytes(process.used_bytes)});
  }
  std::uint64_t rest_bytes = 0;
  for (const DeviceProcess& holder : std::span(holders).subspan(rows)) {
    rest_bytes += holder.process.used_bytes;
  }
  if (rows < holders.size()) {
    const std::string rest = fmt::format("and {} more; -v lists them", holders.size() - rows);
    table.add_row({"", "", rest, format_bytes(rest_bytes)});
  }
  return "\n" + table.render(context.out, kIndent);
}

std::string processes_text(Alike group, const Context& context) {
  const std::vector<DeviceProcess> holders = holders_in(group);
  if (!holders.empty()) return process_table(holders, group.size() > 1, context);
  // Main memory is everybody's; that nobody holds this device's share of it is no news.
  if (group.front().properties.id.kind != DeviceKind::kCuda && context.verbosity == 0) return "";
  const bool is_known = std::ranges::all_of(
      group, [](const DeviceReport& device) { return device.processes.has_value(); });
  if (!is_known) return "";
  return "  " + report::styled("no process holds its memory", Tone::kFaint, context.out) + "\n";
}

std::string problems_text(const DeviceReport& device, const Context& context) {
  std::string out;
  for (const std::string& problem : device.problems) {
    const std::string line = report::printable(problem);
    out += "  " + report::styled("problem", Tone::kBad, context.out) + "  " + line + "\n";
  }
  return out;
}

// --- The picture
// ------------------------------------------------------------------------------------

// The columns beside a level, widest first; the first that fits is drawn.
struct Notes {
  bool has_total = false;
  bool has_owner = false;
  bool has_line = false;
  bool has_bar = false;
};
constexpr std::array<Notes, 3> kPlainNotes{
    {{true, true, true, false}, {true, false, false, false}, {false, false, false, false}}};
constexpr std::array<Notes, 3> kMeasuredNotes{
    {{true, false, false, true}, {false, false, false, true}, {false, false, false, false}}};

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
};

Span rates(std::span<const MemoryLevel> levels) {
  Span span;
  for (const MemoryLevel& level : levels) {
    if (!level.speed || !(level.speed->read_bytes_per_second > 0)) continue;
    span.low = std::min(span.low, level.speed->read_bytes_per_second);
    span.high = std::max(span.high, level.speed->read_bytes_per_second);
  }
  return span;
}

std::string rate_bar(const MemoryLevel& level, Span span, const Terminal& terminal) {
  constexpr int kWidth = 12;
  if (!level.speed) return "";
  // Half of the slowest is where the scale begins, so that the slowest still has a bar.
  const double fraction =
      report::log_fraction(level.speed->read_bytes_per_second, span.low / 2, span.high);
  return report::bar(fraction, kWidth, Tone::kAccent, terminal);
}

std::string size_text(const MemoryLevel& level) {
  const std::string one = format_bytes(level.size_bytes);
  return level.instances == 1 ? one : fmt::format("{} x {}", level.instances, one);
}

// Nothing where it would only repeat the size.
std::string total_text(const MemoryLevel& level) {
  if (level.instances == 1) return "";
  const auto total =
      checked_mul(level.size_bytes, static_cast<std::uint64_t>(std::max(level.instances, 0)));
  return total ? format_bytes(*total) : "?";
}

report::Table notes_table(std::span<const MemoryLevel> levels,
                          Notes notes,
                          bool has_names,
                          const Terminal& terminal) {
  report::Table table({{"level", Align::kLeft, Fit::kShrinks},
                       {"size", Align::kRight},
                       {"total", Align::kRight},
                       {"shared by"},
                       {"line", Align::kRight},
                       {"reads", Align::kRight},
                       {"log scale"},
                       {"latency", Align::kRight}});
  const Span span = rates(levels);
  for (const MemoryLevel& level : levels) {
    const auto& speed = level.speed;
    table.add_row({has_names ? report::printable(level.name) : "",
                   size_text(level),
                   notes.has_total ? total_text(level) : "",
                   notes.has_owner ? report::printable(level.shared_by) : "",
                   notes.has_line && level.line_bytes > 0 ? format_bytes(level.line_bytes) : "",
                   speed ? report::format_rate(speed->read_bytes_per_second) : "",
                   notes.has_bar ? rate_bar(level, span, terminal) : "",
                   speed ? report::format_duration_ns(speed->latency_ns) : ""});
  }
  return table;
}

// Empty when the boxes and notes do not fit side by side.
std::string picture_with(std::span<const MemoryLevel> levels,
                         Notes notes,
                         const Terminal& terminal) {
  const std::vector<std::string> lines =
      notes_table(levels, notes, false, terminal).lines(terminal);
  std::vector<report::Rung> rungs;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    rungs.push_back({.label = report::printable(levels[i].name), .note = lines[i + 1]});
  }
  const int width =
      kIndent + report::ladder_width(rungs) + 2 + report::display_width(lines.front());
  if (width > terminal.width) return "";
  return report::ladder(rungs, lines.front(), kIndent, terminal);
}

std::string picture(const DeviceReport& device, const Terminal& terminal) {
  const std::vector<MemoryLevel>& levels = device.properties.hierarchy;
  if (levels.empty()) return "";
  const auto& attempts = device.is_measured ? kMeasuredNotes : kPlainNotes;
  for (const Notes& notes : attempts) {
    if (std::string drawn = picture_with(levels, notes, terminal); !drawn.empty()) {
      return "\n" + drawn;
    }
  }
  return "\n" + notes_table(levels, attempts.back(), true, terminal).render(terminal, kIndent);
}

// --- What memory-bound means
// ------------------------------------------------------------------------

std::string memory_bound(const DeviceReport& device, const Terminal& terminal) {
  const MemoryLevel* fastest = nullptr;
  const MemoryLevel* slowest = nullptr;
  for (const MemoryLevel& level : device.properties.hierarchy) {
    if (!level.speed || !(level.speed->read_bytes_per_second > 0)) continue;
    if (fastest == nullptr) fastest = &level;
    slowest = &level;
  }
  if (fastest == slowest) return "";
  constexpr double kBytesPerFloat = 4;
  const double rate = slowest->speed->read_bytes_per_second;
  const std::string name = report::printable(slowest->name);
  const double ratio = fastest->speed->read_bytes_per_second / rate;
  // On a busy machine a measurement can come out the wrong way round; then only the rate is said.
  const std::string slower = ratio < 1.05 ? ""
                                          : fmt::format(", {} times slower than {}",
                                                        report::format_ratio(ratio),
                                                        report::printable(fastest->name));
  const std::string text = fmt::format(
      "What memory-bound means: {0} is read at {1}{2}. A sum over float32 values needs 4 bytes per "
      "addition, so from {0} it cannot exceed {3} additions per second, however fast the cores "
      "are.",
      name,
      report::format_rate(rate),
      slower,
      report::format_large(rate / kBytesPerFloat));
  return "\n" + report::wrapped(text, kIndent, terminal.width);
}

std::string draw_group(Alike group, const Context& context) {
  const DeviceReport& first = group.front();
  std::string out = "\n" + group_heading(group, context) + details(first.properties, context);
  for (const DeviceReport& device : group) {
    const bool is_alone = group.size() == 1;
    out += account_text(device, is_alone ? "memory" : to_string(device.properties.id), context.out);
    out += problems_text(device, context);
  }
  out += processes_text(group, context);
  return out + picture(first, context.out);
}

std::string hint(const DevicesReport& report, const Context& context) {
  const bool is_measured =
      std::ranges::any_of(report.devices, [](const DeviceReport& d) { return d.is_measured; });
  if (is_measured) return context.next("devices --measure --json", "the same for programs");
  return context.next("devices --measure", "the speed of each level");
}

}  // namespace

std::string draw_devices(const DevicesReport& report, const Context& context) {
  std::string out = overview(report, context.out) + reasons_for_none(report, context.out);
  std::set<std::string> explained;  // once is enough for a row of equal cards
  for (const Alike group : groups_of(report)) {
    out += draw_group(group, context);
    const bool is_new = explained.insert(group.front().properties.name).second;
    if (is_new) out += memory_bound(group.front(), context.out);
  }
  return out + "\n" + hint(report, context);
}

}  // namespace headroom::cli
