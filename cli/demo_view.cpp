// How `headroom demo` looks: each step as a sentence, a bar and its numbers, then all in one table.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/bar.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/demo.h"

namespace headroom::cli {
namespace {

using report::Align;
using report::Terminal;
using report::Tone;

constexpr int kStepIndent = 4;

std::string indented(const std::string& line) {
  return report::repeated(" ", kStepIndent) + line + "\n";
}

std::string sentence(std::size_t number, const DemoStep& step, const Terminal& terminal) {
  // Wrapped as one text; one column is left for the wider gap behind the name.
  const std::string text =
      report::wrapped(step.name + " " + step.sentence, kStepIndent, terminal.width - 1);
  return fmt::format("{:>2}  ", number) + report::styled(step.name, Tone::kStrong, terminal) + " " +
         text.substr(kStepIndent + step.name.size());
}

std::string numbers(const DemoStep& step) {
  const auto entry = [](const char* label, std::uint64_t size_bytes) {
    return fmt::format("{} {:>6}", label, format_bytes(size_bytes));
  };
  return entry("allocated", step.allocated_bytes) + "   " +
         entry("reserved", step.account.reserved()) + "   " +
         entry("device used", step.account.used());
}

std::string bar(const DemoStep& step, const Terminal& terminal) {
  constexpr int kLongest = 30;  // beside which the longest legend fits in 80 columns
  const memory::Account& account = step.account;
  const std::array<report::BarPart, 3> parts{
      report::BarPart{"live", account.live(), Tone::kAccent},
      report::BarPart{"cached", account.cached(), Tone::kWarn},
      report::BarPart{"free", account.free_bytes, Tone::kFaint}};
  const std::string drawn =
      report::stacked_bar(parts, std::min(kLongest, terminal.width - kStepIndent), terminal);
  const std::string legend = report::legend(parts, terminal);
  if (kStepIndent + report::display_width(drawn) + 2 + report::display_width(legend) <=
      terminal.width) {
    return indented(drawn + "  " + legend);
  }
  std::string out = indented(drawn);
  for (const std::string& line :
       report::legend_lines(parts, terminal.width - kStepIndent, terminal)) {
    out += indented(line);
  }
  return out;
}

// One character for `cell_bytes` of a segment, live where any of them are.
std::string segment_map(const memory::SegmentInfo& segment,
                        std::uint64_t cell_bytes,
                        const Terminal& terminal) {
  const auto is_live = [&](std::uint64_t from, std::uint64_t to) {
    return std::ranges::any_of(segment.blocks, [&](const memory::BlockInfo& block) {
      const std::uint64_t start = block.address - segment.address;
      return block.state == memory::BlockState::kAllocated && start < to &&
             from < start + block.size_bytes;
    });
  };
  std::string out = "[";
  for (std::uint64_t at = 0; at < segment.size_bytes; at += cell_bytes) {
    const bool live = is_live(at, at + cell_bytes);
    const char* cell = terminal.has_unicode ? (live ? "█" : "▓") : (live ? "#" : "=");
    out += report::styled(cell, live ? Tone::kAccent : Tone::kWarn, terminal);
  }
  return out + "]";
}

std::string segments(const DemoStep& step, const Terminal& terminal) {
  if (!step.shows_segments) return "";
  for (std::uint64_t cell_bytes = 4_MiB;; cell_bytes *= 2) {
    std::string line;
    for (const memory::SegmentInfo& segment : step.segments) {
      if (!line.empty()) line += ' ';
      line += segment_map(segment, cell_bytes, terminal);
    }
    if (kStepIndent + report::display_width(line) <= terminal.width || cell_bytes >= 1_GiB) {
      return indented(line) +
             indented(report::styled("the segments; a character is " + format_bytes(cell_bytes),
                                     Tone::kFaint,
                                     terminal));
    }
  }
}

std::string draw_step(std::size_t number, const DemoStep& step, const Terminal& terminal) {
  std::string out = sentence(number, step, terminal);
  if (step.failure) out += "\n" + step.failure->text + "\n";
  return out + bar(step, terminal) + indented(numbers(step)) + segments(step, terminal) + "\n";
}

std::string summary(const Demo& demo, const Terminal& terminal) {
  report::Table table({{"step", Align::kRight},
                       {""},
                       {"allocated", Align::kRight},
                       {"reserved", Align::kRight},
                       {"device used", Align::kRight}});
  for (std::size_t i = 0; i < demo.steps.size(); ++i) {
    const DemoStep& step = demo.steps[i];
    table.add_row({std::to_string(i + 1),
                   step.name,
                   format_bytes(step.allocated_bytes),
                   format_bytes(step.account.reserved()),
                   format_bytes(step.account.used())});
  }
  return table.render(terminal);
}

std::string shown(const Terminal& terminal) {
  constexpr std::array<std::string_view, 3> kShown{
      "Allocated is what somebody holds; reserved, what was taken from the device. A monitor of "
      "the device sees the second.",
      "Freeing returns memory to the cache; a trim returns cached segments that are whole to the "
      "device.",
      "Fragmentation: a few small blocks can hold much larger cached memory in place. The report "
      "names who, and the remedies, with numbers."};
  std::string out = "\n" + report::styled("What this showed", Tone::kStrong, terminal) + "\n";
  for (const std::string_view text : kShown) {
    std::string lines = report::wrapped(text, kStepIndent, terminal.width);
    out += lines.replace(kStepIndent - 2, 1, "-");
  }
  return out;
}

}  // namespace

std::string draw_demo(const Demo& demo, const Context& context) {
  std::string out;
  if (demo.tour) {
    out += draw_tour(*demo.tour, context) +
           report::styled("2. The allocator, step by step", Tone::kStrong, context.out) + "\n\n";
  }
  for (std::size_t i = 0; i < demo.steps.size(); ++i) {
    out += draw_step(i + 1, demo.steps[i], context.out);
  }
  return out + summary(demo, context.out) + shown(context.out) + "\n" +
         context.next("devices", "what this machine has");
}

}  // namespace headroom::cli
