// How `headroom info` looks: what the file is, then for each device the curve, the peaks, who held
// memory at the peak, how large blocks are and how long they live.
#include <algorithm>
#include <bit>
#include <string_view>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/report/area_chart.h"
#include "headroom/report/bar.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/info/info.h"
#include "cli/input/trace_input.h"
#include "cli/output/layout.h"
#include "cli/output/site_tree_view.h"

namespace headroom::cli {
namespace {

using analysis::DeviceSummary;
using analysis::Holder;
using analysis::PeakMoment;
using analysis::RecordingSummary;
using report::Align;
using report::Fit;
using report::Terminal;
using report::Tone;

constexpr int kBarWidth = 20;

std::string duration(std::int64_t us) {
  return report::format_duration_ns(static_cast<double>(us) * 1e3);
}

std::string note_text(const std::string& text, const Terminal& terminal) {
  constexpr int kColumn = 6;
  return report::styled("note", Tone::kWarn, terminal) + "  " +
         report::wrapped(report::printable(text), kColumn, terminal.width).substr(kColumn);
}

// --- What it is
// ----------------------------------------------------------------------------------

std::string file_text(const RecordingSummary& summary,
                      const InfoRequest& request,
                      const Terminal& terminal) {
  const std::string name = report::printable(file_name(request.path));
  std::string facts = fmt::format("{}, {}{}",
                                  format_title(summary.format),
                                  format_bytes(summary.file_bytes),
                                  summary.is_packed ? " compressed" : "");
  if (!summary.producer.empty()) facts += ", written by " + report::printable(summary.producer);
  const bool fits =
      report::display_width(name) + kIndent + report::display_width(facts) <= terminal.width;
  std::string out =
      report::styled(report::shorten(name, terminal.width, terminal), Tone::kStrong, terminal);
  out += fits ? "  " + facts + "\n" : "\n" + report::wrapped(facts, kIndent, terminal.width);
  if (!summary.note.empty()) {
    out += note_text(summary.note, terminal);
  }
  if (!summary.settings.empty()) {
    out += report::wrapped("settings: " + report::printable(summary.settings), 0, terminal.width);
  }
  return out;
}

std::string history_text(const DeviceSummary& info) {
  if (info.events == 0) return "a snapshot of one moment, without events";
  std::string text;
  if (info.is_whole_history) {
    text = "the whole history, from an empty device";
  } else {
    text = fmt::format("the last part of a longer history: at its start {} held {} of {} reserved",
                       counted(info.start_blocks, "block", "blocks"),
                       format_bytes(info.start.active),
                       format_bytes(info.start.reserved));
  }
  return text + (info.has_stacks ? "; with stacks" : "; without stacks");
}

std::string device_text(const DeviceSummary& info, const Terminal& terminal) {
  std::string counts = counted(info.events, "event", "events");
  if (info.duration_us > 0) counts += " over " + duration(info.duration_us);
  counts += fmt::format(": {}, {}, {}",
                        counted(info.allocs, "allocation", "allocations"),
                        counted(info.frees, "free", "frees"),
                        counted(info.segments, "segment", "segments"));
  const int start = report::display_width(info.name) + kIndent;
  std::string out = "\n" + report::styled(info.name, Tone::kStrong, terminal) + "  ";
  out += report::wrapped(counts, start, terminal.width).substr(static_cast<std::size_t>(start));
  out += report::wrapped(history_text(info), start, terminal.width);
  return out;
}

// --- The curve and the peaks
// ---------------------------------------------------------------------

std::string curve_text(const DeviceSummary& info, const Terminal& terminal) {
  const std::uint64_t top = std::max(info.peak_reserved.bytes, info.peak_allocated.bytes);
  if (top == 0 || info.events == 0) return "";
  report::AreaChart chart{.top_label = format_bytes(top), .bottom_label = "0B"};
  const int labels = std::max(report::display_width(chart.top_label), 2);
  const int columns = std::max(terminal.width - kIndent - labels - 2, 8);
  chart.front = report::resampled(info.allocated_curve, columns);
  chart.back = report::resampled(info.reserved_curve, columns);
  const std::string legend =
      fmt::format("{} allocated   {} reserved",
                  report::styled(report::front_fill(terminal), Tone::kAccent, terminal),
                  report::styled(report::back_fill(terminal), Tone::kFaint, terminal));
  const std::string_view title = "memory, event by event";
  std::string out = "\n" + report::styled(title, Tone::kStrong, terminal);
  const int gap = terminal.width - report::display_width(title) - report::display_width(legend);
  out += report::repeated(" ", std::max(gap, 2)) + legend + "\n";
  return out + report::area_chart(chart, kIndent, terminal);
}

std::string when_text(const PeakMoment& peak, const DeviceSummary& info) {
  if (info.events == 0) return "";
  if (peak.bytes == 0) return "";
  if (peak.after_events == 0) return "before the first event";
  std::string text = "after " + counted(peak.after_events, "event", "events");
  if (peak.after_us > 0) text += fmt::format(", at {}", duration(peak.after_us));
  return text;
}

std::string peaks_text(const DeviceSummary& info, const Terminal& terminal) {
  report::Table table({{"peak"},
                       {"", Align::kRight},
                       {"bytes", Align::kRight, Fit::kDrops},
                       {"when"},
                       {"", Align::kLeft, Fit::kDrops}});
  const auto add = [&](const char* name, const PeakMoment& peak, const char* meaning) {
    table.add_row(
        {name, format_bytes(peak.bytes), format_count(peak.bytes), when_text(peak, info), meaning});
  };
  add("allocated", info.peak_allocated, "blocks in use");
  // Where they are the same there is no stream that holds what was freed.
  if (info.peak_active.bytes != info.peak_allocated.bytes) {
    add("active", info.peak_active, "and those freed that a stream still uses");
  }
  add("reserved", info.peak_reserved, "taken from the device");
  std::string out = "\n" + table.render(terminal, 0);
  if (info.reserved_at_peak > 0) {
    const std::uint64_t unused =
        info.reserved_at_peak - std::min(info.reserved_at_peak, info.peak_allocated.bytes);
    out += report::wrapped(
        fmt::format("At the peak of allocated, {} was reserved: {} ({}) of it was not "
                    "in use.",
                    format_bytes(info.reserved_at_peak),
                    format_bytes(unused),
                    share(unused, info.reserved_at_peak)),
        kIndent,
        terminal.width);
  }
  if (info.events > 0 && !info.is_whole_history) {
    out +=
        report::wrapped("These are the peaks of the recorded part; an earlier peak is not in it.",
                        kIndent,
                        terminal.width);
  }
  if (info.ooms > 0) {
    out += "  " + report::styled(counted(info.ooms, "request", "requests"), Tone::kBad, terminal) +
           " failed: out of memory\n";
  }
  return out;
}

// --- Who held it
// ---------------------------------------------------------------------------------

std::string holders_text(std::string_view title,
                         std::string_view column,
                         const std::vector<Holder>& holders,
                         std::size_t top,
                         std::uint64_t whole,
                         const Terminal& terminal) {
  const std::size_t rows = std::min(top, holders.size());
  if (rows == 0) return "";
  report::Table table({{"bytes", Align::kRight},
                       {"share", Align::kRight},
                       {"", Align::kLeft, Fit::kDrops},
                       {"blocks", Align::kRight},
                       {std::string(column), Align::kLeft, Fit::kShrinks}});
  const auto highest = static_cast<double>(std::max(holders[0].group.bytes, std::uint64_t{1}));
  const auto add = [&](std::uint64_t bytes, std::uint64_t blocks, std::string label, Tone tone) {
    table.add_row({format_bytes(bytes),
                   share(bytes, whole),
                   report::bar(static_cast<double>(bytes) / highest, kBarWidth, tone, terminal),
                   format_count(blocks),
                   std::move(label)});
  };
  std::uint64_t rest_bytes = 0;
  std::uint64_t rest_blocks = 0;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const analysis::Group& group = holders[i].group;
    if (i < rows) {
      const Holder& holder = holders[i];
      std::string label = holder.plain_name.empty() ? group.label : holder.plain_name;
      if (!holder.known_by.empty()) label += " (" + holder.known_by + ")";
      add(group.bytes, group.blocks, report::printable(label), Tone::kAccent);
    } else {
      rest_bytes += group.bytes;
      rest_blocks += group.blocks;
    }
  }
  if (rows < holders.size()) {
    const std::string rest = fmt::format("{} more; --top lists them", holders.size() - rows);
    add(rest_bytes, rest_blocks, rest, Tone::kFaint);
  }
  return heading(title, terminal) + table.render(terminal, kIndent);
}

// The lists that `--by` asks for; without it the sites, or the sizes where there are no stacks.
std::string by_text(const std::string& when,
                    const DeviceSummary& info,
                    const InfoRequest& request,
                    const Terminal& terminal) {
  const std::uint64_t whole = info.peak_allocated.bytes;
  const bool wants_modules = request.by == InfoBy::kModule;
  if (wants_modules && !info.modules.empty()) {
    return holders_text(
        when + ", by module", "module", info.modules, request.options.top, whole, terminal);
  }
  if (!info.has_stacks) {
    std::string out;
    if (request.by) {
      out = "\n" + note_text(std::string("no stacks were recorded") +
                                 (wants_modules ? ", and no annotations" : "") +
                                 ", so sizes are listed instead; record with "
                                 "_record_memory_history(stacks='python')",
                             terminal);
    }
    return out +
           holders_text(
               when + ", by size", "each", info.by_size, request.options.top, whole, terminal);
  }
  if (request.by == InfoBy::kStack) {
    const std::string text = draw_stacks(info.stacks, request.options.top, whole, terminal);
    return text.empty() ? "" : heading(when + ", by stack", terminal) + text;
  }
  const std::string text = draw_site_tree(info.site_tree, request.options.top, whole, terminal);
  return text.empty() ? "" : heading(when + ", by place in the program (site)", terminal) + text;
}

std::string at_peak_text(const DeviceSummary& info,
                         const InfoRequest& request,
                         const Terminal& terminal) {
  const std::size_t top = request.options.top;
  const std::uint64_t whole = info.peak_allocated.bytes;
  const std::string when = info.events == 0 ? "allocated" : "allocated at the peak";
  std::string out;
  out += holders_text(when + ", by category", "category", info.categories, top, whole, terminal);
  out +=
      holders_text(when + ", by annotation", "annotation", info.annotations, top, whole, terminal);
  return out + by_text(when, info, request, terminal);
}

// --- Histograms
// ----------------------------------------------------------------------------------

// Bars of counts, and beside them the bytes.
class Histogram {
 public:
  Histogram(std::string_view title, std::string_view column, const Terminal& terminal)
      : terminal_(terminal),
        title_(heading(title, terminal)),
        table_({{std::string(column), Align::kRight},
                {"blocks", Align::kRight},
                {"", Align::kLeft, Fit::kDrops},
                {"bytes", Align::kRight},
                {"", Align::kLeft, Fit::kDrops}}) {}

  void measure(const analysis::HistogramBin& bin) {
    most_blocks_ = std::max(most_blocks_, static_cast<double>(bin.blocks));
    most_bytes_ = std::max(most_bytes_, static_cast<double>(bin.bytes));
  }
  void add(std::string label, const analysis::HistogramBin& bin) {
    if (bin.blocks == 0) {
      table_.add_row({std::move(label), "-"});
      return;
    }
    table_.add_row({std::move(label),
                    format_count(bin.blocks),
                    bar(static_cast<double>(bin.blocks) / most_blocks_),
                    format_bytes(bin.bytes),
                    bar(static_cast<double>(bin.bytes) / most_bytes_)});
  }
  [[nodiscard]] std::string text() const {
    return table_.is_empty() ? "" : title_ + table_.render(terminal_, kIndent);
  }

 private:
  [[nodiscard]] std::string bar(double part) const {
    return report::bar(part, kBarWidth, Tone::kAccent, terminal_);
  }

  const Terminal& terminal_;
  std::string title_;
  report::Table table_;
  double most_blocks_ = 1;
  double most_bytes_ = 1;
};

// Pairs of neighbours put together, so that bins by powers of two are by powers of four.
std::vector<analysis::HistogramBin> coarser(const std::vector<analysis::HistogramBin>& bins) {
  std::vector<analysis::HistogramBin> joined;
  for (const analysis::HistogramBin& bin : bins) {
    // The lower one of a pair is an even power, 1B or 4B or 16B and on; a pair may lack it.
    const bool is_upper = (std::bit_width(bin.low) & 1) == 0;
    if (joined.empty() || !is_upper || bin.low == 0) {
      joined.push_back(bin);
      if (is_upper && bin.low != 0) joined.back().low = bin.low / 2;
      continue;
    }
    joined.back().high = bin.high;
    joined.back().blocks += bin.blocks;
    joined.back().bytes += bin.bytes;
  }
  return joined;
}

std::string sizes_text(const DeviceSummary& info, const Terminal& terminal) {
  constexpr std::size_t kMostBins = 16;
  const auto bins = info.sizes.size() > kMostBins ? coarser(info.sizes) : info.sizes;
  Histogram histogram("sizes of all blocks", "at least", terminal);
  for (const analysis::HistogramBin& bin : bins) histogram.measure(bin);
  for (const analysis::HistogramBin& bin : bins) histogram.add(format_bytes(bin.low), bin);
  return histogram.text();
}

std::string lifetimes_text(const DeviceSummary& info, const Terminal& terminal) {
  if (info.events == 0) return "";
  const bool has_times = info.duration_us > 0;
  const auto& bins = has_times ? info.lifetimes.by_time_us : info.lifetimes.by_events;
  Histogram histogram(
      "how long blocks live", has_times ? "less than" : "events, less than", terminal);
  for (const analysis::HistogramBin& bin : bins) histogram.measure(bin);
  histogram.measure(info.lifetimes.initial);
  histogram.measure(info.lifetimes.final);
  for (const analysis::HistogramBin& bin : bins) {
    histogram.add(
        has_times
            ? duration(static_cast<std::int64_t>(std::min<std::uint64_t>(bin.high, INT64_MAX)))
            : format_count(bin.high),
        bin);
  }
  if (info.lifetimes.initial.blocks > 0) histogram.add("from earlier", info.lifetimes.initial);
  if (info.lifetimes.final.blocks > 0) histogram.add("to the end", info.lifetimes.final);
  return histogram.text();
}

// --- All of it
// -----------------------------------------------------------------------------------

std::string oddities_text(const DeviceSummary& info, const Terminal& terminal) {
  std::string out;
  const auto add = [&](const std::string& text) { out += note_text(text, terminal); };
  if (info.dropped_events > 0) {
    add("the recorder dropped " + counted(info.dropped_events, "event", "events") +
        "; totals after that may be too low or too high");
  }
  if (info.anomalies.total() > 0) {
    add(counted(info.anomalies.total(), "event contradicts", "events contradict") +
        " the others: the recorder may have missed some");
  }
  return out.empty() ? out : "\n" + out;
}

std::string overview(const RecordingSummary& summary, const Terminal& terminal) {
  if (summary.devices.size() < 2) return "";
  report::Table table({{"device"},
                       {"events", Align::kRight},
                       {"allocations", Align::kRight, Fit::kDrops},
                       {"peak allocated", Align::kRight},
                       {"peak reserved", Align::kRight}});
  for (const DeviceSummary& info : summary.devices) {
    table.add_row({info.name,
                   format_count(info.events),
                   format_count(info.allocs),
                   format_bytes(info.peak_allocated.bytes),
                   format_bytes(info.peak_reserved.bytes)});
  }
  return "\n" + table.render(terminal);
}

const DeviceSummary* fullest(const RecordingSummary& summary) {
  const auto found = std::ranges::max_element(
      summary.devices, {}, [](const DeviceSummary& info) { return info.peak_allocated.bytes; });
  return found == summary.devices.end() ? nullptr : &*found;
}

std::string next_text(const RecordingSummary& summary,
                      const InfoRequest& request,
                      const Context& context) {
  const std::string from = shell_word(request.path);
  const std::string base = without_endings(file_name(request.path));
  if (summary.has_stacks) {
    return context.next(fmt::format("convert {} {}", from, shell_word(base + ".speedscope.json")),
                        "the peak by stack");
  }
  return context.next(fmt::format("convert {} {}", from, shell_word(base + ".perfetto.json")),
                      "the timeline");
}

}  // namespace

std::string draw_info(const analysis::RecordingSummary& summary,
                      const InfoRequest& request,
                      const Context& context) {
  const Terminal& terminal = context.out;
  std::string out = file_text(summary, request, terminal) + overview(summary, terminal);
  const DeviceSummary* info = fullest(summary);
  if (info == nullptr) {
    return out +
           "\nThere is nothing in it: no events and no segments. Was\n"
           "torch.cuda.memory._record_memory_history() called before the first allocation?\n";
  }
  out += device_text(*info, terminal) + oddities_text(*info, terminal);
  out += curve_text(*info, terminal) + peaks_text(*info, terminal);
  out += at_peak_text(*info, request, terminal);
  out += sizes_text(*info, terminal) + lifetimes_text(*info, terminal);
  if (summary.devices.size() > 1) {
    out += "\n" +
           report::wrapped("This is the device with the highest peak; --device NAME shows another.",
                           0,
                           terminal.width);
  }
  return out + "\n" + context.glossary() + next_text(summary, request, context);
}

}  // namespace headroom::cli
