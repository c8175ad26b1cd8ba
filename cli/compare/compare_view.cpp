// How `headroom compare` looks: a table for each recording, the same as JSON, and the page.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/compare/compare.h"
#include "cli/output/json_values.h"
#include "cli/output/layout.h"

namespace headroom::cli {
namespace {

using Cells = std::vector<std::string>;

constexpr int kPolicyWidth = 34;  // of a name, on a terminal

std::string ratio_cell(std::optional<double> ratio) {
  return ratio ? fmt::format("{:.3f}", *ratio) : "";
}

std::string percent_cell(std::optional<double> share) {
  return share ? fmt::format("{:.2f} %", 100 * *share) : "";
}

// The driver's work: segments, or handles created, mapped and unmapped.
std::uint64_t calls_of(const ComparedPolicy& row) {
  const replay::DriverCalls& calls = row.calls;
  if (calls.handles_mapped == 0) return calls.device_allocs + calls.device_frees;
  return calls.handles_created + calls.handles_mapped + calls.handles_unmapped;
}

std::string policy_cell(const ComparedPolicy& row) {
  std::string out = row.policy;
  if (row.policy == "pytorch") out += " (as recorded)";
  if (row.is_model) out += " (modelled)";
  if (row.is_bound_exceeded) out += " (bound exceeded)";
  return out;
}

struct CompareColumn {
  const char* title;
  const char* short_title;  // on a terminal
  std::string (*cell)(const ComparedRecording&, const ComparedPolicy&);
};

std::vector<CompareColumn> columns_of(const CompareRequest& request) {
  std::vector<CompareColumn> out;
  out.push_back({"peak reserved", "reserved", [](const auto&, const auto& row) {
                   return format_bytes(row.peak_reserved) + (row.fits ? "" : " (does not fit)");
                 }});
  out.push_back({"times live", "times live", [](const auto&, const auto& row) {
                   return ratio_cell(over_live(row));
                 }});
  if (request.options.finds_smallest_limit) {
    out.push_back(
        {"smallest limit, times live", "least limit", [](const auto& trace, const auto& row) {
           return row.smallest_limit ? ratio_cell(smallest_limit_over_live(trace, row))
                                     : std::string{};
         }});
  }
  out.push_back({"driver calls", "calls", [](const auto&, const auto& row) {
                   return row.is_model ? std::string{} : format_count(calls_of(row));
                 }});
  out.push_back({"driver time", "driver time", [](const auto&, const auto& row) {
                   return row.is_model ? std::string{}
                                       : report::format_duration_ns(row.calls.driver_us * 1e3);
                 }});
  out.push_back({"share of the run", "of the run", [](const auto& trace, const auto& row) {
                   return percent_cell(driver_share(trace, row));
                 }});
  out.push_back({"share of its second half", "late", [](const auto& trace, const auto& row) {
                   return percent_cell(driver_share_second_half(trace, row));
                 }});
  out.push_back({"ns per op", "ns per op", [](const auto&, const auto& row) {
                   return row.op_ns ? fmt::format("{:.0f}", *row.op_ns) : std::string{};
                 }});
  return out;
}

std::string facts_of(const ComparedRecording& trace) {
  std::string out = fmt::format(
      "{} events, {} live at the peak", format_count(trace.events), format_bytes(trace.peak_live));
  if (trace.duration_us > 0) {
    out += ", " + report::format_duration_ns(static_cast<double>(trace.duration_us) * 1e3) +
           " as recorded";
  }
  return out;
}

// --- The page ------------------------------------------------------------------------------------

std::string markdown_row(const Cells& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out + "\n";
}

std::string markdown_table(const Cells& header, const std::vector<Cells>& rows) {
  std::string out = markdown_row(header) + "|---|";
  for (std::size_t i = 1; i < header.size(); ++i) out += "--:|";
  out += "\n";
  for (const Cells& row : rows) out += markdown_row(row);
  return out;
}

// Every policy that some trace has, in order.
std::vector<std::string> all_policies(const Comparison& comparison) {
  std::vector<std::string> out;
  for (const ComparedRecording& trace : comparison.recordings) {
    for (const ComparedPolicy& row : trace.rows) {
      if (std::ranges::find(out, row.policy) == out.end()) out.push_back(row.policy);
    }
  }
  return out;
}

std::string summary_table(const Comparison& comparison) {
  const std::vector<std::string> policies = all_policies(comparison);
  Cells header{"recording"};
  for (const std::string& policy : policies) header.push_back("`" + policy + "`");
  std::vector<Cells> rows;
  for (const ComparedRecording& trace : comparison.recordings) {
    Cells cells{trace.recording};
    for (const std::string& policy : policies) {
      const auto at = std::ranges::find(trace.rows, policy, &ComparedPolicy::policy);
      cells.push_back(at == trace.rows.end() ? "" : ratio_cell(over_live(*at)));
    }
    rows.push_back(std::move(cells));
  }
  return markdown_table(header, rows);
}

std::string trace_section(const ComparedRecording& trace, const CompareRequest& request) {
  const std::vector<CompareColumn> columns = columns_of(request);
  Cells header{"policy"};
  for (const CompareColumn& column : columns) header.emplace_back(column.title);
  std::vector<Cells> rows;
  for (const ComparedPolicy& row : trace.rows) {
    Cells cells{policy_cell(row)};
    for (const CompareColumn& column : columns) cells.push_back(column.cell(trace, row));
    rows.push_back(std::move(cells));
  }
  return fmt::format("\n## {}\n\n{}.\n\n{}",
                     report::printable(trace.recording),
                     facts_of(trace),
                     markdown_table(header, rows));
}

// Which of the columns the terminal has room for.
struct ShownColumns {
  bool limit = false;
  bool time = false;
  bool share = false;
  bool late = false;

  void look_at(std::string_view header) {
    const auto has = [&](std::string_view title) { return header.find(title) != header.npos; };
    limit = limit || has("least limit");
    time = time || has("driver time");
    share = share || has("of the run");
    late = late || has("late");
  }
};

// What the titles mean; only of columns that are there.
std::string titles_explained(const ShownColumns& shown, int width) {
  std::string text =
      "Each recording, replayed under each policy. Reserved is the most that was taken from the "
      "device; times live divides it by the most that was live";
  if (shown.limit) {
    text += ", and so does least limit, the smallest limit without an out-of-memory error";
  }
  text += ".";
  if (shown.time) text += " Driver time is that of the calls on an H200";
  if (shown.share) text += "; of the run is its share of the recorded time";
  if (shown.late) text += ", late the same in the second half of the requests";
  if (shown.time) text += ".";
  return report::wrapped(text, 0, width);
}

nlohmann::ordered_json row_json(const ComparedRecording& trace, const ComparedPolicy& row) {
  return {{"policy", row.policy},
          {"is_model", row.is_model},
          {"fits", row.fits},
          {"bound_exceeded", row.is_bound_exceeded},
          {"peak_live", row.peak_live},
          {"peak_reserved", row.peak_reserved},
          {"over_live", value_json(over_live(row))},
          {"smallest_limit", value_json(row.smallest_limit)},
          {"device_allocs", row.calls.device_allocs},
          {"device_frees", row.calls.device_frees},
          {"handles_created", row.calls.handles_created},
          {"handles_mapped", row.calls.handles_mapped},
          {"handles_unmapped", row.calls.handles_unmapped},
          {"driver_us", row.calls.driver_us},
          {"driver_us_second_half", row.driver_us_second_half},
          {"driver_share", value_json(driver_share(trace, row))},
          {"driver_share_second_half", value_json(driver_share_second_half(trace, row))},
          {"op_ns", value_json(row.op_ns)}};
}

}  // namespace

std::string draw_comparison(const Comparison& comparison, const Context& context) {
  std::string out;
  ShownColumns shown;
  const std::vector<CompareColumn> columns = columns_of(comparison.request);
  for (const ComparedRecording& trace : comparison.recordings) {
    std::vector<report::Column> titles{{.title = "policy"}};
    for (const CompareColumn& column : columns) {
      titles.push_back({.title = column.short_title,
                        .align = report::Align::kRight,
                        .fit = report::Fit::kDrops});
    }
    titles[1].fit = report::Fit::kKeeps;
    titles[2].fit = report::Fit::kKeeps;
    report::Table table(std::move(titles));
    for (const ComparedPolicy& row : trace.rows) {
      Cells cells{report::shorten(report::printable(policy_cell(row)), kPolicyWidth, context.out)};
      for (const CompareColumn& column : columns) cells.push_back(column.cell(trace, row));
      table.add_row(std::move(cells));
    }
    out += fmt::format(
        "\n{}  {}\n",
        report::styled(report::printable(trace.recording), report::Tone::kStrong, context.out),
        facts_of(trace));
    out += table.render(context.out, kIndent);
    shown.look_at(table.lines(context.out, kIndent).front());
  }
  return titles_explained(shown, context.out.width) + out + "\n" + context.glossary() +
         context.next("compare --json", "the same for programs");
}

std::string comparison_json(const Comparison& comparison) {
  nlohmann::ordered_json out{{"schema", 1}, {"command", "compare"}};
  out["recordings"] = nlohmann::ordered_json::array();
  for (const ComparedRecording& trace : comparison.recordings) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const ComparedPolicy& row : trace.rows) rows.push_back(row_json(trace, row));
    out["recordings"].push_back({{"recording", trace.recording},
                                 {"events", trace.events},
                                 {"ops", trace.ops},
                                 {"peak_live", trace.peak_live},
                                 {"duration_us", trace.duration_us},
                                 {"duration_us_second_half", trace.duration_us_second_half},
                                 {"results", std::move(rows)}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string comparison_page(const Comparison& comparison) {
  std::string out = fmt::format(
      "# The policies compared\n"
      "\n"
      "Recordings of PyTorch programs, run again under every policy on a device without memory.\n"
      "\n"
      "    {}\n"
      "\n"
      "makes this page; no number in it is typed by hand. Bytes and calls are exact and the same\n"
      "each time. Nanoseconds are those of the machine that made the page: one thread, the "
      "quickest\n"
      "of {} replays. Driver time is what the calls take on an H200, handle by handle; its share "
      "is\n"
      "of the time that the recording itself took, and of its second half, by requests.\n"
      "`cudaMallocAsync` is a model of the driver's pool. What the policies are\n"
      "is in `headroom replay --help`.\n"
      "\n"
      "## Peak reserved, times peak live\n"
      "\n"
      "An allocator with 1.000 would take no byte more than the program asked for.\n"
      "\n"
      "{}",
      comparison.request.as_typed,
      comparison.request.options.rounds,
      summary_table(comparison));
  for (const ComparedRecording& trace : comparison.recordings) {
    out += trace_section(trace, comparison.request);
  }
  return out;
}

}  // namespace headroom::cli
