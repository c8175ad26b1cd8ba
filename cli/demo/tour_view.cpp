// How the first act of `headroom demo` looks.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/bar.h"
#include "headroom/report/doctor_text.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/demo/tour.h"
#include "cli/output/layout.h"

namespace headroom::cli {
namespace {

using report::Align;
using report::Terminal;
using report::Tone;

std::string lesson(const std::string& text, const Terminal& terminal) {
  return paragraph(text, terminal) + "\n";
}

std::string bars(const Tour& tour, const Terminal& terminal) {
  const memory::Account& account = tour.diagnosis.account;
  const std::array<report::BarPart, 3> parts{
      report::BarPart{"live", account.live() + account.rounding_bytes, Tone::kAccent},
      report::BarPart{"cached, stuck", account.cached_hard_bytes, Tone::kBad},
      report::BarPart{"cached, can be given back", account.cached_soft_bytes, Tone::kWarn}};
  std::string out =
      "  " + report::stacked_bar(parts, std::min(76, terminal.width - 4), terminal) + "\n";
  for (const std::string& line : report::legend_lines(parts, terminal.width - 2, terminal)) {
    out += "  " + line + "\n";
  }
  return out + "\n";
}

std::string verdict(const Tour& tour, const Terminal& terminal) {
  const std::string name(to_string(tour.diagnosis.health));
  const std::string text = report::wrapped(
      name + ": " + report::summary_text(tour.diagnosis) + ".", kIndent, terminal.width);
  return "  " + report::styled(name, Tone::kWarn, terminal) + text.substr(kIndent + name.size()) +
         "\n";
}

std::string settings(const Tour& tour, const Terminal& terminal) {
  report::Table table({{"setting", Align::kLeft, report::Fit::kShrinks},
                       {"peak reserved", Align::kRight},
                       {fmt::format("in {}", format_bytes(tour.limit_bytes))}});
  for (const TourRow& row : tour.rows) {
    table.add_row({row.conf.empty() ? "as recorded" : row.conf,
                   format_bytes(row.peak_reserved),
                   row.fits ? "fits" : "out of memory"});
  }
  if (tour.paged) {
    table.add_row({"headroom's own allocator (paged)",
                   format_bytes(tour.paged->peak_reserved),
                   tour.paged->fits ? "fits" : "out of memory"});
  }
  return table.render(terminal, kIndent) + "\n";
}

}  // namespace

std::string draw_tour(const Tour& tour, const Context& context) {
  const Terminal& terminal = context.out;
  std::string out =
      report::styled("1. A PyTorch program, replayed", Tone::kStrong, terminal) + "\n\n";
  out += lesson(
      fmt::format("samples/{}: GPT-2 trained on sequences of varying length, recorded on an H200. "
                  "Replayed here, without a GPU, {} of {} allocations have the same address as in "
                  "PyTorch{}.",
                  tour.sample,
                  format_count(tour.same_addresses),
                  format_count(tour.allocs),
                  tour.segment_mismatches == 0 ? ", and every segment too" : ""),
      terminal);
  out += bars(tour, terminal) + verdict(tour, terminal);
  out += lesson(fmt::format("The same requests under other settings: the peak without a limit, "
                            "and whether they fit in {}:",
                            format_bytes(tour.limit_bytes)),
                terminal);
  out += settings(tour, terminal);
  if (!tour.export_line.empty()) {
    out += lesson("So, set this before the program starts:", terminal) + "      " +
           tour.export_line + "\n\n";
  }
  return out;
}

}  // namespace headroom::cli
