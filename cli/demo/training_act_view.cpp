// How the second act of `headroom demo` looks.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "headroom/report/area_chart.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/demo/training_act.h"
#include "cli/output/layout.h"

namespace headroom::cli {
namespace {

using report::Align;
using report::Terminal;
using report::Tone;

std::string said(const std::string& text, const Terminal& terminal) {
  return paragraph(text, terminal) + "\n";
}

std::string indented_text(const std::string& text, const Terminal& terminal) {
  std::string out;
  std::string line;
  for (const char c : text + "\n") {
    if (c != '\n') {
      line += c;
      continue;
    }
    out += report::styled(line, Tone::kFaint, terminal) + "\n";
    line.clear();
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out + "\n";
}

std::string failure(const TrainingAct& act, const Terminal& terminal) {
  const train::StepConfig& config = act.config;
  std::string out =
      said(fmt::format(
               "{} with {} blocks of width {} and {} parameters, in C++: a batch of {} x {} tokens "
               "with {}, on a device of {} with a limit of {}. It does not fit, and the error says "
               "what holds the memory:",
               config.model.name,
               config.model.depth.value_or(0),
               config.model.width.value_or(0),
               format_count(static_cast<std::uint64_t>(act.parameters)),
               config.batch,
               config.model.seq.value_or(0),
               config.optimizer,
               format_bytes(act.capacity_bytes),
               format_bytes(act.limit_bytes)),
           terminal);
  out += indented_text(act.report, terminal);
  out += said("A program that must go on wraps its step in with_retry, which splits the batch:",
              terminal);
  for (const std::string& line : act.told) out += report::wrapped(line, 6, terminal.width);
  return out + "\n" +
         said(fmt::format("The loss of that step is {:.4f}; without a limit it is {:.4f}.",
                          act.retried_loss,
                          act.first_loss),
              terminal);
}

std::string difference(const TrainingRow& row) {
  const auto apart = [](std::uint64_t measured, std::uint64_t planned) {
    return measured > planned ? measured - planned : planned - measured;
  };
  return format_bytes(std::max(apart(row.measured.allocated, row.plan.peak_allocated),
                               apart(row.measured.reserved, row.plan.peak_reserved)));
}

std::string fixes(const TrainingAct& act, const Terminal& terminal) {
  report::Table table({{"fix", Align::kLeft, report::Fit::kShrinks},
                       {"planned", Align::kRight},
                       {"measured", Align::kRight},
                       {"difference", Align::kRight},
                       {fmt::format("in {}", format_bytes(act.limit_bytes))},
                       {"loss", Align::kRight},
                       {"per step", Align::kRight}});
  for (const TrainingRow& row : act.rows) {
    table.add_row({row.name,
                   format_bytes(row.plan.peak_reserved),
                   format_bytes(row.measured.reserved),
                   difference(row),
                   row.fits ? "fits" : "no",
                   fmt::format("{:.4f}", row.loss),
                   terminal.is_terminal ? report::format_duration_ns(row.seconds * 1e9) : ""});
  }
  std::string out =
      said("Each fix: its peak planned before anything is computed, then measured in training:",
           terminal);
  out += table.render(terminal, kIndent) + "\n";
  return out + said(fmt::format("Planned and measured are the bytes reserved at the peak, the loss "
                                "is that of step {}. On a processor bf16 saves memory but no time: "
                                "its products are computed in f32.",
                                act.steps),
                    terminal);
}

// The names of the phases under a chart of `columns` columns. Where they repeat, a word only where
// there is room for it.
std::string ruler(const train::Plan& plan, int columns) {
  std::string line(static_cast<std::size_t>(columns), ' ');
  std::size_t free = 0;  // the first column that a word may start in
  for (const train::PhaseSpan& phase : plan.phases) {
    const std::string word = phase.name == "optimizer_step" ? "step" : phase.name;
    const std::size_t column = phase.begin * line.size() / plan.timeline.size();
    if (phase.name == "data_loading" || column < free || column + word.size() > line.size())
      continue;
    line.replace(column, word.size(), word);
    free = column + word.size() + 1;
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

// One scale for all curves.
std::string curve(const TrainingRow& row, std::uint64_t highest, const Terminal& terminal) {
  std::vector<double> allocated;
  for (const train::CategoryBytes& bytes : row.plan.timeline) {
    allocated.push_back(static_cast<double>(train::total(bytes)));
  }
  const std::string top = format_bytes(highest);
  const int label = std::max(static_cast<int>(top.size()), 2);
  const int columns = std::min(64, terminal.width - label - kIndent - 3);
  const report::AreaChart chart{.front = report::resampled(allocated, columns),
                                .top_label = top,
                                .bottom_label = "0B",
                                .height = 5,
                                .highest = static_cast<double>(highest)};
  return "  " + report::styled(row.name, Tone::kStrong, terminal) + "\n" +
         report::area_chart(chart, kIndent, terminal) + report::repeated(" ", kIndent + label + 2) +
         ruler(row.plan, columns) + "\n\n";
}

std::string curves(const TrainingAct& act, const Terminal& terminal) {
  constexpr std::size_t kCheckpointed = 4;
  const std::uint64_t highest = act.rows.front().plan.peak_allocated;
  return said("Allocated memory through one step, allocation by allocation:", terminal) +
         curve(act.rows.front(), highest, terminal) +
         curve(act.rows.at(kCheckpointed), highest, terminal);
}

std::string account(const TrainingAct& act, const Terminal& terminal) {
  std::string out =
      said("After the training, every byte of the device is in one of these lines:", terminal);
  for (const memory::AccountLine& line : memory::lines(act.account)) {
    out += fmt::format("  {:<40} {:>10} {:>14}\n",
                       line.label,
                       format_bytes(line.size_bytes),
                       format_count(line.size_bytes));
  }
  return out + fmt::format("  {:<40} {:>10} {:>14}\n\n",
                           "total",
                           format_bytes(act.account.total_bytes),
                           format_count(act.account.sum()));
}

}  // namespace

std::string draw_training(const TrainingAct& act, const Context& context) {
  const Terminal& terminal = context.out;
  return report::styled("2. Training here, inside a limit", Tone::kStrong, terminal) + "\n\n" +
         failure(act, terminal) + fixes(act, terminal) + curves(act, terminal) +
         account(act, terminal);
}

}  // namespace headroom::cli
