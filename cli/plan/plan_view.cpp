// The text of `headroom plan`: the peak, its categories, the step as a picture, the formulas.
#include <algorithm>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/area_chart.h"
#include "headroom/report/table.h"

#include "cli/input/step_options.h"
#include "cli/output/layout.h"
#include "cli/output/step_view.h"
#include "cli/plan/plan.h"

namespace headroom::cli {
namespace {

using report::Align;
using report::Terminal;
using report::Tone;

constexpr std::size_t kMostLayers = 6;

std::string title(const PlanReport& report, const Terminal& terminal) {
  const train::Plan& plan = report.plan;
  std::string out = report::styled(plan.config.model.name, Tone::kStrong, terminal) +
                    fmt::format("  {} parameters; {}\n",
                                format_count(static_cast<std::uint64_t>(plan.parameters)),
                                in_words(plan.config));
  if (report.is_fit && plan.fits) {
    out += report::wrapped(
        fmt::format("Batch {} is the largest that fits in {} ({} were tried); one example more "
                    "takes {}.",
                    plan.config.batch,
                    format_bytes(plan.limit_bytes.value_or(0)),
                    report.tried,
                    format_bytes(report.next_reserved)),
        0,
        terminal.width);
  }
  if (report.is_auto) out += checkpoint_line(plan.config.checkpoint, plan.fits);
  return out + paragraph(
                   "This is a step of headroom's own C++ runtime. PyTorch keeps other tensors for "
                   "the same model and needs more: to know how much, record it there and run "
                   "doctor on the recording.",
                   terminal);
}

std::string peaks(const train::Plan& plan, const Terminal& terminal) {
  std::string when = plan.peak_phase.empty() ? "" : "in " + plan.peak_phase;
  if (!plan.peak_layer.empty()) when += ", at " + plan.peak_layer;
  std::string out =
      fmt::format("  peak allocated  {:>10}  {} bytes, {}\n",
                  report::styled(format_bytes(plan.peak_allocated), Tone::kStrong, terminal),
                  format_count(plan.peak_allocated),
                  when);
  out += fmt::format("  peak reserved   {:>10}  {} bytes, {}\n",
                     format_bytes(plan.peak_reserved),
                     format_count(plan.peak_reserved),
                     plan.is_settled
                         ? "for any number of steps"
                         : fmt::format("in the {} steps that were planned; it had not settled, and "
                                       "may grow",
                                       plan.steps));
  if (plan.recompute_fraction > 0) {
    out += fmt::format("  computed twice  {:>9.0f}%  of the forward pass\n",
                       plan.recompute_fraction * 100);
  }
  return out;
}

// Where each phase begins, under the curve.
std::string phase_line(const train::Plan& plan, int indent, int columns) {
  std::string out(static_cast<std::size_t>(columns), ' ');
  const auto points = static_cast<double>(std::max<std::size_t>(plan.timeline.size(), 1));
  std::string before;
  for (const train::PhaseSpan& span : plan.phases) {
    if (span.name == before) continue;
    before = span.name;
    const auto at = static_cast<std::size_t>(static_cast<double>(span.begin) / points * columns);
    const std::string label = "|" + span.name;
    if (at + label.size() <= out.size() && out.find_first_not_of(' ', at) == std::string::npos) {
      out.replace(at, label.size(), label);
    }
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out.empty() ? out : std::string(static_cast<std::size_t>(indent), ' ') + out + "\n";
}

std::string curve(const train::Plan& plan, const Terminal& terminal) {
  const std::string top = format_bytes(plan.peak_allocated);
  const int left = kIndent + static_cast<int>(top.size()) + 2;
  const int columns = std::clamp(terminal.width - left, 10, 100);
  std::vector<double> values;
  for (const train::CategoryBytes& point : plan.timeline) {
    values.push_back(static_cast<double>(train::total(point)));
  }
  return report::area_chart({.front = report::resampled(values, columns),
                             .top_label = top,
                             .bottom_label = "0B",
                             .height = 6},
                            kIndent,
                            terminal) +
         phase_line(plan, left, columns);
}

std::string layers(const train::Plan& plan, const Terminal& terminal) {
  std::vector<train::LayerBytes> sorted = plan.layers;
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [](const train::LayerBytes& one) {
    return train::total(one.categories);
  });
  report::Table table({{.title = "layer, at the peak"},
                       {.title = "bytes", .align = Align::kRight},
                       {.title = "activations", .align = Align::kRight, .fit = report::Fit::kDrops},
                       {.title = "gradients", .align = Align::kRight, .fit = report::Fit::kDrops}});
  const auto cell = [](const train::LayerBytes& one, memory::Category category) {
    return format_bytes(one.categories[static_cast<std::size_t>(category)]);
  };
  for (std::size_t i = 0; i < std::min(sorted.size(), kMostLayers); ++i) {
    table.add_row({sorted[i].name,
                   format_bytes(train::total(sorted[i].categories)),
                   cell(sorted[i], memory::Category::kActivation),
                   cell(sorted[i], memory::Category::kGradient)});
  }
  std::string out = table.render(terminal, kIndent);
  if (sorted.size() > kMostLayers) {
    out += fmt::format("  and {} more layers\n", sorted.size() - kMostLayers);
  }
  return out;
}

std::string formulas(const train::Plan& plan, const Terminal& terminal) {
  if (plan.formulas.empty()) return {};
  report::Table table({{.title = "textbook formula", .fit = report::Fit::kShrinks},
                       {.title = "bytes", .align = Align::kRight},
                       {.title = "error", .align = Align::kRight}});
  for (const train::Formula& one : plan.formulas) {
    table.add_row({one.text, format_bytes(one.bytes), fmt::format("{:+.1f} %", one.error * 100)});
  }
  std::string out = table.render(terminal, kIndent);
  const auto has = [&plan](std::string_view part) {
    return std::ranges::any_of(plan.formulas, [part](const train::Formula& one) {
      return one.text.find(part) != std::string::npos;
    });
  };
  if (has("B L a")) {
    out +=
        paragraph("P: parameters, B: batch, L: blocks, a: a block's output per example", terminal);
  }
  if (has("sqrt(n) a")) out += paragraph("n: blocks, a: the activations of a block", terminal);
  if (has("inputs + a")) out += paragraph("a: the activations of a block", terminal);
  return out;
}

// What a step takes for the model itself, whatever the batch: a gradient is as large as what it is
// of.
std::uint64_t fixed_bytes(const train::Plan& plan) {
  std::uint64_t parameters = 0;
  std::uint64_t state = 0;
  for (const train::CategoryBytes& point : plan.timeline) {
    const auto bytes = [&point](memory::Category category) {
      return point[static_cast<std::size_t>(category)];
    };
    parameters = std::max(parameters, bytes(memory::Category::kParameter));
    state = std::max(state, bytes(memory::Category::kOptimizerState));
  }
  return 2 * parameters + state;
}

// Where no batch and no checkpointing helps: why, and the limit that does.
std::string least_limit(const PlanReport& report, const Terminal& terminal) {
  if (!report.remedy || report.remedy->kind != train::PlannedRemedy::Kind::kLimit) return {};
  const std::uint64_t fixed = fixed_bytes(report.plan);
  const std::string why =
      fixed > report.plan.limit_bytes.value_or(0)
          ? fmt::format("Parameters, gradients and optimizer state alone take {}",
                        format_bytes(fixed))
          : std::string("Not even one example at a time fits");
  return report::wrapped(fmt::format("{}. The least limit is {}, with {}.",
                                     why,
                                     least_limit_of(*report.remedy),
                                     in_words(report.remedy->config)),
                         0,
                         terminal.width);
}

std::string verdict(const PlanReport& report, const Terminal& terminal) {
  const train::Plan& plan = report.plan;
  if (!plan.limit_bytes) return {};
  const std::string limit = format_bytes(*plan.limit_bytes);
  if (plan.fits) {
    return "\n" + report::styled("It fits in " + limit + ".", Tone::kGood, terminal) + "\n";
  }
  return "\n" + report::styled("It does not fit in " + limit + ".", Tone::kBad, terminal) + "\n" +
         least_limit(report, terminal);
}

std::string cards(const PlanReport& report, const Terminal& terminal) {
  if (report.cards.empty()) return {};
  report::Table table({{.title = "card"},
                       {.title = "memory", .align = Align::kRight},
                       {.title = "batch", .align = Align::kRight},
                       {.title = "reserved", .align = Align::kRight},
                       {.title = "fits"}});
  for (const CardPlan& card : report.cards) {
    table.add_row({card.name,
                   format_bytes(card.size_bytes),
                   std::to_string(card.batch),
                   format_bytes(card.peak_reserved),
                   card.fits ? "yes" : "no"});
  }
  return "\n" + table.render(terminal, kIndent);
}

std::string next_command(const PlanReport& report, const Context& context) {
  const train::Plan& plan = report.plan;
  if (!report.page.empty()) return fmt::format("Wrote {}; open it in a browser.\n", report.page);
  const std::string typed = as_typed(plan.config) + report.options;
  if (report.remedy) {
    train::StepConfig config = report.remedy->config;
    if (report.is_fit) config.batch = train::find_model(config.model.name).batch;
    return context.next(
        fmt::format(
            "plan {}{}{}", as_typed(config), report.remedy_options, report.is_fit ? " --fit" : ""),
        "planned to fit");
  }
  // Training runs on the processor: what was planned for a card is to be looked at.
  constexpr std::uint64_t kMostToTrainHere = 2_GiB;
  if (plan.fits && train::find_model(plan.config.model.name).is_small && report.cards.empty() &&
      plan.peak_reserved <= kMostToTrainHere) {
    return context.next("train " + typed, "train it");
  }
  return context.next("plan " + typed + " -o plan.html", "a page with sliders");
}

}  // namespace

std::string least_limit_of(const train::PlannedRemedy& remedy) {
  return remedy.option.substr(remedy.option.find(' ') + 1);
}

std::string draw_plan(const PlanReport& report, const Context& context) {
  const train::Plan& plan = report.plan;
  const Terminal& out = context.out;
  return title(report, out) + "\n" + peaks(plan, out) + "\n" +
         draw_categories(plan.categories, out) + "\n" + curve(plan, out) + "\n" +
         layers(plan, out) + "\n" + formulas(plan, out) + cards(report, out) +
         verdict(report, out) +
         fmt::format("\nPlanned in {}.\n", report::format_duration_ns(plan.seconds * 1e9)) +
         context.glossary() + next_command(report, context);
}

}  // namespace headroom::cli
