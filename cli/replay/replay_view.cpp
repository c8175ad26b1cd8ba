// How `headroom replay` looks: what was recorded, the policies beside each other, what the
// comparison found, and what failed.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/replay/cards.h"
#include "headroom/replay/pool_floor.h"
#include "headroom/report/area_chart.h"
#include "headroom/report/bar.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/input/trace_input.h"
#include "cli/output/layout.h"
#include "cli/replay/replay.h"

namespace headroom::cli {
namespace {

using replay::PolicyResult;
using replay::Program;
using replay::ReplayResult;
using report::Align;
using report::Fit;
using report::Terminal;
using report::Tone;

constexpr int kPolicyBarWidth = 24;

std::string policy_title(const PolicyResult& entry, const Program& program) {
  std::string title = entry.policy.name;
  if (entry.policy.kind == replay::PolicyKind::kAsRecorded) {
    title += program.is_of_paged    ? " (default settings)"
             : program.conf.empty() ? " (as recorded: default settings)"
                                    : " (as recorded)";
  }
  if (entry.is_model) title += " (modelled)";
  return report::printable(title);
}

// --- What was recorded ---------------------------------------------------------------------------

std::string recorded_text(const DeviceReplay& device, const Terminal& terminal) {
  const Program& program = device.program;
  std::string facts = fmt::format("{}: {}, {}",
                                  device.name,
                                  counted(program.events, "event", "events"),
                                  counted(program.allocs, "allocation", "allocations"));
  if (program.failures > 0) facts += ", " + counted(program.failures, "failure", "failures");
  facts += program.is_whole() ? "; the whole history"
                              : "; the last part of a longer history: all but the recording itself "
                                "start with the blocks that were live then, and nothing cached";
  if (program.is_of_paged) {
    facts += ", recorded by the paged allocator";
  } else {
    facts += program.conf.empty() ? ", default settings"
                                  : ", settings " + report::printable(program.conf);
  }
  return report::wrapped(facts, 0, terminal.width);
}

std::string odd_text(const Program& program, const Terminal& terminal) {
  const analysis::Anomalies& odd = program.anomalies;
  if (odd.total() == 0) return "";
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, std::string_view one, std::string_view many) {
    if (count > 0) parts.push_back(counted(count, one, many));
  };
  add(odd.frees_of_nothing, "free without an allocation", "frees without an allocation");
  add(odd.allocs_at_live_address,
      "allocation at an address in use",
      "allocations at addresses in use");
  add(odd.missing_at_end, "block missing at the end", "blocks missing at the end");
  add(odd.contradictions, "contradiction", "contradictions");
  std::string text = "The recording contradicts itself: ";
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? ", " : "") + parts[i];
  return report::wrapped(text + ". It was replayed as far as possible.", 0, terminal.width);
}

// --- The comparison ------------------------------------------------------------------------------

std::string over_live(std::uint64_t bytes, std::uint64_t live) {
  if (live == 0) return "";
  return fmt::format("{:.2f}", static_cast<double>(bytes) / static_cast<double>(live));
}

std::string range_text(const ReplayResult& result) {
  if (result.peak_reserved_low == result.peak_reserved_high) return "";
  return fmt::format(
      "{} to {}", format_bytes(result.peak_reserved_low), format_bytes(result.peak_reserved_high));
}

std::string fits_text(const PolicyResult& entry, const Terminal& terminal) {
  if (entry.result.fits) return report::styled("yes", Tone::kGood, terminal);
  return report::styled("no", Tone::kBad, terminal);
}

std::string driver_text(const PolicyResult& entry) {
  if (entry.is_model) return "";
  return report::format_duration_ns(entry.result.calls.driver_us * 1e3);
}

// A line for the name of a policy, which may be long, and one for what came of it.
std::string table_text(const DeviceReplay& device, const Terminal& terminal) {
  std::uint64_t most = device.program.peak_live;
  for (const PolicyResult& entry : device.results) {
    most = std::max(most, entry.result.peak_reserved);
  }
  const auto drawn = [&](std::uint64_t bytes, Tone tone) {
    if (most == 0) return std::string{};
    return report::bar(
        static_cast<double>(bytes) / static_cast<double>(most), kPolicyBarWidth, tone, terminal);
  };
  report::Table table({{.title = "peak reserved"},
                       {.title = "", .align = Align::kRight},
                       {.title = "times live", .align = Align::kRight},
                       {.title = "driver time", .align = Align::kRight, .fit = Fit::kDrops},
                       {.title = "retries", .align = Align::kRight, .fit = Fit::kDrops},
                       {.title = "fits"}});
  std::vector<std::string> titles{""};
  for (const PolicyResult& entry : device.results) {
    const ReplayResult& result = entry.result;
    titles.push_back(policy_title(entry, device.program));
    table.add_row({drawn(result.peak_reserved, result.fits ? Tone::kAccent : Tone::kBad),
                   format_bytes(result.peak_reserved),
                   over_live(result.peak_reserved, result.peak_live),
                   driver_text(entry),
                   entry.is_model ? "" : format_count(result.retries),
                   fits_text(entry, terminal)});
  }
  titles.emplace_back("live: the bytes that the program asked for");
  table.add_row({drawn(device.program.peak_live, Tone::kGood),
                 format_bytes(device.program.peak_live),
                 "1.00"});
  if (replay::has_private_pools(device.program)) {
    const std::uint64_t floor = replay::pool_floor_bytes(device.program);
    titles.emplace_back("floor: what private pools keep, and what is live outside of them");
    table.add_row({drawn(floor, Tone::kGood),
                   format_bytes(floor),
                   over_live(floor, device.program.peak_live)});
  }
  std::string out;
  const std::vector<std::string> lines = table.lines(terminal, 2 * kIndent);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!titles[i].empty()) {
      out += paragraph(report::shorten(titles[i], terminal.width - kIndent, terminal), terminal);
    }
    out += lines[i].substr(0, lines[i].find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string bounds_text(const DeviceReplay& device, const Terminal& terminal) {
  std::string out;
  for (const PolicyResult& entry : device.results) {
    const std::string range = range_text(entry.result);
    if (range.empty()) continue;
    out += paragraph(fmt::format("{}: {}, depending on where the driver puts segments: before 2.13 "
                                 "PyTorch chooses between equal blocks by address.",
                                 report::printable(entry.policy.name),
                                 range),
                     terminal);
  }
  return out;
}

std::string limit_text(const PolicyResult& entry, const Terminal& terminal) {
  if (!entry.smallest) return "";
  return paragraph(fmt::format("{}: the smallest limit it survives is {}, with {} (found in {} "
                               "replays).",
                               report::printable(entry.policy.name),
                               format_bytes(entry.smallest->bytes),
                               counted(entry.smallest->retries, "retry", "retries"),
                               entry.smallest->runs),
                   terminal);
}

std::string excess_text(const PolicyResult& entry, const Program& program, const Terminal& t) {
  const ReplayResult& result = entry.result;
  if (!result.is_bound_exceeded()) return "";
  const memory::PagedBound& bound = result.bound->bound;
  return paragraph(fmt::format("{}: bound exceeded at event {}: {} reserved, of {} in live pages, "
                               "{} of slab residue, a cushion of {} and {} unsettled. This is a "
                               "bug in headroom; please report it.",
                               report::printable(entry.policy.name),
                               format_count(program.op_events[result.bound->op]),
                               format_bytes(bound.reserved_bytes),
                               format_bytes(bound.live_pages_bytes),
                               format_bytes(bound.slab_residue_bytes),
                               format_bytes(bound.cushion_bytes),
                               format_bytes(bound.unsettled_bytes)),
                   t);
}

// --- Failures ------------------------------------------------------------------------------------

std::string failure_text(const PolicyResult& entry, const Program& program, const Terminal& t) {
  const ReplayResult& result = entry.result;
  std::string text;
  if (result.first_failure) {
    const replay::FailedAllocation& failure = *result.first_failure;
    text = fmt::format("{}: {} failed; {} was for {} at event {}, when {} was reserved{}.",
                       entry.policy.name,
                       counted(result.ooms, "request", "requests"),
                       result.ooms == 1 ? "it" : "the first",
                       format_bytes(failure.size_bytes),
                       format_count(program.op_events[failure.op]),
                       format_bytes(failure.reserved),
                       failure.was_recorded ? ", where PyTorch failed too" : "");
  }
  if (result.recorded_ooms_served > 0) {
    text += fmt::format("{}{}: {} of {} recorded failures would have succeeded.",
                        text.empty() ? "" : " ",
                        entry.policy.name,
                        format_count(result.recorded_ooms_served),
                        format_count(program.failures));
  }
  if (!text.empty() && result.peak_live != program.peak_live) {
    text +=
        " The requests that succeeded had a live peak of " + format_bytes(result.peak_live) + ".";
  }
  if (result.unknown_past_op) {
    const std::size_t op = *result.unknown_past_op;
    const bool is_recorded = program.ops[op].kind == replay::OpKind::kFailed;
    text += fmt::format(
        " The results after {}event {} are {}: the program would have done something else.",
        is_recorded ? "the recorded failure at " : "",
        format_count(program.op_events[op]),
        is_recorded ? "unknown" : "a guess");
  }
  return text.empty() ? "" : paragraph(report::printable(text), t);
}

// The conditions that the policies ran under; one line where they are the same for all.
std::string bound_text(const DeviceReplay& device, const Terminal& terminal) {
  const auto line = [&](std::string_view who, const PolicyResult& entry) {
    return paragraph(fmt::format("{} under a limit of {} on a card of {}.",
                                 who,
                                 format_bytes(*entry.limit_bytes),
                                 format_bytes(entry.card_bytes)),
                     terminal);
  };
  const std::vector<PolicyResult>& all = device.results;
  const bool are_same = std::ranges::all_of(
      all, [&](const PolicyResult& entry) { return entry.limit_bytes == all[0].limit_bytes; });
  if (are_same) return all[0].limit_bytes ? line("All policies ran", all[0]) : "";
  std::string out;
  for (const PolicyResult& entry : all) {
    if (entry.limit_bytes) out += line(report::printable(entry.policy.name) + " ran", entry);
  }
  return out;
}

// --- Verification --------------------------------------------------------------------------------

std::string version_line(const replay::Verification& v) {
  const bool is_by_age = v.version >= memory::kPyTorch213;
  return fmt::format("Between equal free blocks {}{}.",
                     is_by_age ? "the age of the segment decides, as in PyTorch 2.13 and later"
                               : "the address decides, as in PyTorch up to 2.12",
                     v.is_version_proved ? "; the other rule gives other addresses" : "");
}

std::string mismatch_text(const replay::Mismatch& mismatch, const Terminal& terminal) {
  std::string out = paragraph(
      fmt::format("The first difference is at event {}.", format_count(mismatch.event)), terminal);
  out += paragraph("PyTorch: " + mismatch.recorded, terminal);
  out += paragraph("Here: " + mismatch.ours, terminal);
  for (const std::string& line : mismatch.free_blocks) {
    out += report::wrapped(line, 2 * kIndent, terminal.width);
  }
  return out;
}

std::string verification_text(const DeviceReplay& device, const Terminal& terminal) {
  for (const PolicyResult& entry : device.results) {
    if (!entry.verification) continue;
    const replay::Verification& v = *entry.verification;
    const std::uint64_t same =
        entry.result.allocs - std::min(entry.result.allocs, v.address_mismatches);
    std::string out = heading("Compared with the recording", terminal);
    out += paragraph(
        fmt::format(
            "{} of {} allocations have the same address as in PyTorch; {}.",
            format_count(same),
            format_count(entry.result.allocs),
            v.segment_mismatches == 0
                ? "every segment is taken and given back as in PyTorch"
                : counted(v.segment_mismatches, "segment event differs", "segment events differ")),
        terminal);
    if (v.is_exact()) {
      out += paragraph(version_line(v), terminal);
    } else {
      out += paragraph(
          "The cause may be settings other than the recorded ones, another release of PyTorch "
          "(--pytorch), card (--card) or limit (--limit).",
          terminal);
    }
    if (v.first) out += mismatch_text(*v.first, terminal);
    return out;
  }
  return "";
}

// --- The curve -----------------------------------------------------------------------------------

std::string curve_text(const DeviceReplay& device, const Terminal& terminal) {
  const PolicyResult& entry = device.results.front();
  const ReplayResult& result = entry.result;
  if (result.timeline.size() < 2) return "";
  std::vector<double> allocated;
  std::vector<double> reserved;
  for (const replay::TimelineSample& sample : result.timeline) {
    allocated.push_back(static_cast<double>(sample.allocated));
    reserved.push_back(static_cast<double>(sample.reserved));
  }
  const double most = std::ranges::max(reserved);
  if (most == 0) return "";
  report::AreaChart chart{.top_label = format_bytes(static_cast<std::uint64_t>(most)),
                          .bottom_label = "0B",
                          .height = 6};
  const int labels = std::max(report::display_width(chart.top_label), 2);
  const int columns = std::max(terminal.width - kIndent - labels - 2, 8);
  chart.front = report::resampled(allocated, columns);
  chart.back = report::resampled(reserved, columns);
  const std::string legend = fmt::format("{} allocated   {} reserved, {}",
                                         report::front_fill(terminal),
                                         report::back_fill(terminal),
                                         policy_title(entry, device.program));
  return "\n" + report::area_chart(chart, kIndent, terminal) +
         paragraph(report::shorten(legend, terminal.width - kIndent, terminal), terminal);
}

std::string device_text(const DeviceReplay& device, const Terminal& terminal) {
  std::string out = recorded_text(device, terminal) + odd_text(device.program, terminal) + "\n";
  out += table_text(device, terminal);
  std::string notes = bound_text(device, terminal) + bounds_text(device, terminal);
  for (const PolicyResult& entry : device.results) {
    notes += failure_text(entry, device.program, terminal);
    notes += limit_text(entry, terminal);
    notes += excess_text(entry, device.program, terminal);
  }
  if (!notes.empty()) out += "\n" + notes;
  return out + curve_text(device, terminal) + verification_text(device, terminal);
}

std::string next_text(const ReplayReport& report, const Context& context) {
  const std::string path = shell_word(report.path);
  const bool can_verify = std::ranges::none_of(
      report.devices, [](const DeviceReplay& device) { return device.program.is_of_paged; });
  if (!report.request.verifies && can_verify) {
    return context.next("replay " + path + " --verify --policy pytorch",
                        "is every address the same as in PyTorch?");
  }
  return context.next("replay " + path + " --smallest-limit", "the smallest limit it survives");
}

}  // namespace

std::string draw(const ReplayReport& report, const Context& context) {
  std::string out =
      report::styled(report::printable(file_name(report.path)), Tone::kStrong, context.out) + "\n";
  bool is_first = true;
  for (const DeviceReplay& device : report.devices) {
    if (!is_first) out += "\n";
    out += device_text(device, context.out);
    is_first = false;
  }
  return out + "\n" + context.glossary() + next_text(report, context);
}

}  // namespace headroom::cli
