// The text of `headroom train`: the losses, planned beside measured memory, the account.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/table.h"

#include "cli/input/step_options.h"
#include "cli/input/trace_input.h"
#include "cli/output/layout.h"
#include "cli/output/step_view.h"
#include "cli/train/train.h"

namespace headroom::cli {
namespace {

using report::Align;
using report::Terminal;
using report::Tone;

// The losses as one line of heights.
std::string sparkline(const std::vector<double>& values, const Terminal& terminal) {
  static constexpr std::string_view kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::string_view kPlain[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
  const auto [low, high] = std::ranges::minmax(values);
  const auto columns = std::min<std::size_t>(values.size(), 60);
  std::string out;
  for (std::size_t i = 0; i < columns; ++i) {
    const double value = values[i * values.size() / columns];
    const double share = high > low ? (value - low) / (high - low) : 0;
    const auto height = static_cast<std::size_t>(share * 7.0);
    out += (terminal.has_unicode ? kHeights : kPlain)[height];
  }
  return out;
}

std::string losses(const TrainReport& report, const Terminal& terminal) {
  if (report.losses.empty() || !std::isfinite(report.losses.front())) return {};
  std::string out = fmt::format("  loss  {:.4f} to {:.4f} in {}, {:.1f} ms each (median)\n",
                                report.losses.front(),
                                report.losses.back(),
                                counted(report.losses.size(), "step", "steps"),
                                spread_of(report.step_ms).median);
  if (report.losses.size() > 1) out += "  " + sparkline(report.losses, terminal) + "\n";
  return out;
}

std::string difference(std::uint64_t measured, std::uint64_t planned) {
  if (measured == planned) return "0 bytes";
  const bool is_more = measured > planned;
  return fmt::format("{}{} bytes",
                     is_more ? '+' : '-',
                     format_count(is_more ? measured - planned : planned - measured));
}

std::string peaks(const TrainReport& report, const Terminal& terminal) {
  report::Table table({{.title = "peak"},
                       {.title = "planned", .align = Align::kRight},
                       {.title = "measured", .align = Align::kRight},
                       {.title = "difference", .align = Align::kRight}});
  table.add_row({"allocated",
                 format_bytes(report.planned_allocated),
                 format_bytes(report.peak_allocated),
                 difference(report.peak_allocated, report.planned_allocated)});
  table.add_row({"reserved",
                 format_bytes(report.planned_reserved),
                 format_bytes(report.peak_reserved),
                 difference(report.peak_reserved, report.planned_reserved)});
  return table.render(terminal, kIndent);
}

// The account of the allocator and its device.
std::string account(const memory::Account& account, const Terminal& terminal) {
  report::Table table(
      {{.title = "after the last step"}, {.title = "bytes", .align = Align::kRight}});
  for (const memory::AccountLine& line : memory::lines(account)) {
    table.add_row({line.label, format_bytes(line.size_bytes)});
  }
  table.add_row({"total of the device", format_bytes(account.sum())});
  return "\n" + table.render(terminal, kIndent);
}

// As it would be typed with the remedy instead of what it replaces.
std::string with_remedy(const TrainReport& report, const train::PlannedRemedy& remedy) {
  std::string options = report.options;
  if (remedy.kind == train::PlannedRemedy::Kind::kLimit) {
    if (const std::size_t at = options.find(" --limit "); at != std::string::npos) {
      options.erase(at, options.find(' ', at + 9) - at);
    }
    options += " " + remedy.option;
  }
  return as_typed(remedy.config) + options;
}

std::string last_line(const TrainReport& report, const Context& context) {
  const std::string typed = as_typed(report.config) + report.options;
  if (!report.fits()) {
    if (report.remedies.empty()) {
      return context.next("plan " + as_typed(report.config), "the memory it needs");
    }
    return context.next("train " + with_remedy(report, report.remedies.front()), "planned to fit");
  }
  if (!report.record.empty()) {
    return context.next("info " + shell_word(report.record), "what was recorded");
  }
  return context.next("plan " + as_typed(report.config) + " -o plan.html", "the step as a page");
}

}  // namespace

std::string draw_train(const TrainReport& report, const Context& context) {
  const Terminal& out = context.out;
  std::string text = report::styled(report.config.model.name, Tone::kStrong, out) +
                     fmt::format("  {} parameters on {}; {}\n",
                                 format_count(static_cast<std::uint64_t>(report.parameters)),
                                 report.device,
                                 in_words(report.config));
  if (report.is_auto) text += checkpoint_line(report.config.checkpoint, report.is_planned_to_fit);
  for (const std::string& line : report.told) text += paragraph(line, out);
  text += "\n" + losses(report, out);
  if (!report.fits()) {
    text += report::styled("It does not fit.", Tone::kBad, out) + "\n\n" +
            context.with_glossary(report.shortage);
    return text + last_line(report, context);
  }
  text += "\n" + peaks(report, out) + "\n" + draw_categories(report.categories, out);
  if (report.account) text += account(*report.account, out);
  return text + "\n" + context.glossary() + last_line(report, context);
}

}  // namespace headroom::cli
