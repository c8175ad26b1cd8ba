// The text of `headroom tune`: the best settings as bars, and the line to export.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/report/bar.h"
#include "headroom/report/numbers.h"
#include "headroom/report/text.h"

#include "cli/input/trace_input.h"
#include "cli/output/layout.h"
#include "cli/tune/tune.h"

namespace headroom::cli {
namespace {

using replay::Candidate;
using report::Terminal;
using report::Tone;

constexpr std::size_t kOthers = 4;  // shown beside the best

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

double saved_share(const Candidate& one, const Candidate& current) {
  if (current.peak_reserved == 0) return 0;
  return 1 - static_cast<double>(one.peak_reserved) / static_cast<double>(current.peak_reserved);
}

std::string conf_text(const Candidate& one) {
  return one.conf.empty() ? "default settings" : report::printable(one.conf);
}

std::string release_name(memory::PyTorchVersion version) {
  return fmt::format("PyTorch {}.{}", version.major, version.minor);
}

// --- What was replayed ---------------------------------------------------------------------------

// Whose allocator made the recording, where it was not PyTorch's.
std::string maker_text(const TuneReport& report, const Terminal& terminal) {
  std::string out;
  for (const TunedHistory& one : report.histories) {
    if (one.made_by == MadeBy::kPyTorch) continue;
    const bool is_paged = one.made_by == MadeBy::kPaged;
    const std::string text = fmt::format(
        "{} was recorded under headroom's {} allocator, which reserved {} at its peak{}.",
        report::printable(one.name),
        is_paged ? "paged" : "native",
        format_bytes(one.recorded_reserved),
        is_paged ? ": no setting of PyTorch was in effect. Below is what PyTorch's allocator would "
                   "reserve for the same requests"
                 : " and decides as PyTorch's does");
    out += report::wrapped(text, 0, terminal.width);
  }
  return out;
}

std::string heading(const TuneReport& report, const Terminal& terminal) {
  std::string out;
  for (const TunedHistory& one : report.histories) {
    const std::string facts = fmt::format("{} allocations, {} live at the peak",
                                          format_count(one.allocs),
                                          format_bytes(one.peak_live));
    const std::string name = report::printable(one.name);
    const bool fits =
        report::display_width(name) + kIndent + report::display_width(facts) <= terminal.width;
    out += report::styled(report::shorten(name, terminal.width, terminal), Tone::kStrong, terminal);
    out += fits ? "  " + facts + "\n" : "\n" + report::wrapped(facts, kIndent, terminal.width);
  }
  const replay::TuneOptions& options = report.request.options;
  std::string how = fmt::format(
      "Tried {} settings by replay, with the rules of {}{}",
      format_count(report.result.tried),
      release_name(report.version),
      report.request.options.version ? "" : " (inferred from the recording; --pytorch sets it)");
  if (options.limit_bytes) {
    how += fmt::format(", within a limit of {}", format_bytes(*options.limit_bytes));
  } else if (report.result.has_limit) {
    how += ", within the recorded limit";
  }
  if (options.card_bytes)
    how += fmt::format(", on a card of {}", format_bytes(*options.card_bytes));
  return out + report::wrapped(how + ".", 0, terminal.width) + maker_text(report, terminal);
}

// --- The bars ------------------------------------------------------------------------------------

std::string outcome(const Candidate& one, const Candidate& current) {
  if (!one.fits) return fmt::format("out of memory at {} of the run", percent(one.served));
  std::string text = pad(format_bytes(one.peak_reserved), 9, report::Align::kRight);
  if (current.fits) {
    const double saved = saved_share(one, current);
    // No sign where it rounds to nothing.
    if (saved >= 0.0005 || saved <= -0.0005) text += fmt::format("  {:+.1f} %", -saved * 100);
  }
  if (one.retries > 0) {
    text += fmt::format("  {} {}", one.retries, one.retries == 1 ? "retry" : "retries");
  }
  return text;
}

std::string bar_text(const Candidate& one,
                     const TuneReport& report,
                     std::string_view title,
                     std::uint64_t longest,
                     const Terminal& terminal) {
  constexpr int kOutcomeWidth = 34;
  const int width = std::max(terminal.width - 2 * kIndent - kOutcomeWidth, 10);
  const Tone tone = !one.fits ? Tone::kBad : title.empty() ? Tone::kAccent : Tone::kGood;
  const bool is_current = title == "now";
  std::string label = conf_text(one);
  const bool is_in_force = !report.is_made_by(MadeBy::kPaged);
  if (!title.empty()) {
    label = fmt::format("{}: {}", is_current && !is_in_force ? "PyTorch" : title, label);
  }
  std::string out = report::wrapped(label, kIndent, terminal.width);
  const double part =
      longest == 0 ? 0 : static_cast<double>(one.peak_reserved) / static_cast<double>(longest);
  out += report::repeated(" ", kIndent);
  out += report::bar(part, width, is_current && one.fits ? Tone::kWarn : tone, terminal);
  return out + "  " + outcome(one, report.result.current) + "\n";
}

// Which keys it uses: of settings that differ in values only, one is enough to see.
int kind_of(const Candidate& one) {
  const memory::AllocatorConfig factory;
  const memory::AllocatorConfig& config = one.config;
  return (config.expandable_segments ? 1 : 0) +
         (config.max_split_bytes != factory.max_split_bytes ? 2 : 0) +
         (config.large_segment_bytes != factory.large_segment_bytes ? 4 : 0) +
         (config.roundup_power2_divisions != factory.roundup_power2_divisions ? 8 : 0) +
         (config.max_non_split_rounding_bytes ? 32 : 0) +
         (config.garbage_collection_threshold != factory.garbage_collection_threshold ? 16 : 0);
}

std::vector<const Candidate*> others(const replay::TuneResult& result) {
  std::vector<const Candidate*> out;
  if (!result.best.fits) return out;
  std::vector<int> kinds{kind_of(result.best), kind_of(result.current)};
  for (const Candidate& one : result.candidates) {
    if (out.size() == kOthers) break;
    if (!one.fits || !is_better(one, result.current)) break;
    if (std::ranges::find(kinds, kind_of(one)) != kinds.end()) continue;
    kinds.push_back(kind_of(one));
    out.push_back(&one);
  }
  return out;
}

std::string bars(const TuneReport& report, const Terminal& terminal) {
  const replay::TuneResult& result = report.result;
  const std::vector<const Candidate*> rest = others(result);
  std::uint64_t longest = std::max(result.current.peak_reserved, result.best.peak_reserved);
  for (const Candidate* one : rest) longest = std::max(longest, one->peak_reserved);
  std::string out = "\n" + report::styled("peak reserved", Tone::kStrong, terminal) + "\n";
  out += bar_text(result.current, report, "now", longest, terminal);
  if (result.best.conf != result.current.conf) {
    out += bar_text(result.best, report, "best", longest, terminal);
  }
  for (const Candidate* one : rest) out += bar_text(*one, report, "", longest, terminal);
  return out;
}

// --- What to do ----------------------------------------------------------------------------------

std::string exports(const Candidate& best) {
  const std::string word = shell_word(best.conf);
  return "  export PYTORCH_ALLOC_CONF=" + word + "\n  export PYTORCH_CUDA_ALLOC_CONF=" + word +
         "\n";
}

// For a program of ours, which takes its settings from another variable.
std::string own_advice(const TuneReport& report, const Terminal& terminal) {
  const Candidate& best = report.result.best;
  const bool is_paged = report.is_made_by(MadeBy::kPaged);
  std::uint64_t recorded = 0;
  for (const TunedHistory& one : report.histories) {
    recorded = std::max(recorded, one.recorded_reserved);
  }
  if (best.peak_reserved >= recorded) {
    return report::styled("Nothing to change.", Tone::kGood, terminal) + "\n" +
           paragraph(
               fmt::format(
                   "No setting of PyTorch's allocator reserves less than the {} that it reserved.",
                   format_bytes(recorded)),
               terminal);
  }
  const std::string conf = best.conf.starts_with("backend:")
                               ? best.conf
                               : "backend:native" + (best.conf.empty() ? "" : "," + best.conf);
  return report::wrapped(
             is_paged ? "To run it on headroom's native allocator, which decides as PyTorch's does:"
                      : "Set this before the program starts:",
             0,
             terminal.width) +
         "  export HEADROOM_ALLOC_CONF=" + shell_word(conf) + "\n" +
         paragraph(fmt::format("It would reserve {} at the peak instead of {}.",
                               format_bytes(best.peak_reserved),
                               format_bytes(recorded)),
                   terminal);
}

std::string advice(const TuneReport& report, const Terminal& terminal) {
  const replay::TuneResult& result = report.result;
  const Candidate& best = result.best;
  if (report.is_made_by(MadeBy::kPaged) || report.is_made_by(MadeBy::kNative)) {
    return own_advice(report, terminal);
  }
  if (result.is_current_best()) {
    return report::styled("Nothing to change.", Tone::kGood, terminal) + "\n" +
           report::wrapped(
               fmt::format("No other setting saves {} or more of the memory reserved now.",
                           fmt::format("{:.0f} %", replay::kWorthAPart * 100)),
               kIndent,
               terminal.width);
  }
  std::string what;
  if (best.conf.empty()) {
    what = "Unset PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF.\n";
  } else {
    what = report::wrapped(
        "Set this before the program starts. PyTorch 2.10 and later read the first name, older "
        "releases only the second:",
        0,
        terminal.width);
    what += exports(best);
  }
  std::string effect;
  if (!result.current.fits) {
    effect =
        fmt::format("Then it fits: it reserves {} at the peak.", format_bytes(best.peak_reserved));
  } else if (best.peak_reserved > result.current.peak_reserved) {
    // The recorded settings use a key that is to be left alone.
    effect = fmt::format("Without {}, the best setting reserves {} at the peak, {} more than now.",
                         fmt::join(report.request.options.without, ", "),
                         format_bytes(best.peak_reserved),
                         format_bytes(best.peak_reserved - result.current.peak_reserved));
  } else {
    effect = fmt::format("This saves {} of the {} reserved at the peak ({}).",
                         format_bytes(result.saved_bytes()),
                         format_bytes(result.current.peak_reserved),
                         percent(saved_share(best, result.current)));
  }
  return what + report::wrapped(effect, kIndent, terminal.width);
}

std::string no_fit(const TuneReport& report, const Terminal& terminal) {
  std::uint64_t live = 0;
  for (const TunedHistory& one : report.histories) live = std::max(live, one.peak_live);
  const Candidate& best = report.result.best;
  const std::string text = fmt::format(
      "{} gets furthest, to {} of the run. At the peak {} is live, which no setting changes: use "
      "less memory, or a larger card.",
      conf_text(best),
      percent(best.served),
      format_bytes(live));
  return report::styled("No setting fits.", Tone::kBad, terminal) + "\n" +
         report::wrapped(text, kIndent, terminal.width);
}

std::string note(std::string_view text, const Terminal& terminal) {
  constexpr int kColumn = 6;
  return report::styled("note", Tone::kWarn, terminal) + "  " +
         report::wrapped(text, kColumn, terminal.width).substr(kColumn);
}

std::string notes(const TuneReport& report, const Terminal& terminal) {
  const replay::TuneResult& result = report.result;
  const Candidate& best = result.best;
  std::string out;
  const bool is_told = report.request.options.version.has_value();
  if (best.config.large_segment_bytes != memory::kLargeSegmentBytes && !is_told) {
    out += note(
        "large_segment_size_mb needs PyTorch 2.11 or later; for an older release add --pytorch "
        "2.10.",
        terminal);
  } else if (report.version < memory::kPyTorch211 && !is_told) {
    out += note("PyTorch 2.11 and later also have large_segment_size_mb; --pytorch 2.11 tries it.",
                terminal);
  }
  if (best.peak_reserved_low != best.peak_reserved_high) {
    out +=
        note(fmt::format(
                 "The best setting reserves between {} and {}, depending on where the driver puts "
                 "segments.",
                 format_bytes(best.peak_reserved_low),
                 format_bytes(best.peak_reserved_high)),
             terminal);
  }
  if (best.conf.find("garbage_collection_threshold") != std::string::npos) {
    out += note(
        "garbage_collection_threshold acts only in a process that calls "
        "torch.cuda.set_per_process_memory_fraction, or sets per_process_memory_fraction.",
        terminal);
  }
  for (const TunedHistory& one : report.histories) {
    if (one.start_reserved == 0) continue;
    out +=
        note(fmt::format("{} starts in the middle of a run, when {} was reserved under the "
                         "recorded settings. Every setting starts with the blocks that were live "
                         "then, and nothing cached. Record from the start for a full answer.",
                         report::printable(one.name),
                         format_bytes(one.start_reserved)),
             terminal);
  }
  const bool has_failures = std::ranges::any_of(
      report.histories, [](const TunedHistory& one) { return one.failures > 0; });
  if (has_failures) {
    out += note(
        "A request failed in the recording: what the program would have asked for after it is "
        "not known.",
        terminal);
  }
  return out;
}

std::string next_text(const TuneReport& report, const Context& context) {
  const std::string file = shell_word(report.request.paths.front());
  const Candidate& best = report.result.best;
  if (!best.fits) {
    return context.next("doctor " + file, "who holds the memory");
  }
  if (best.fits && best.config.expandable_segments && report.result.best_without_expandable) {
    std::string limit;
    if (const auto& bytes = report.request.options.limit_bytes) {
      const std::string text = format_bytes(*bytes);
      limit = " --limit " + (parse_bytes(text).value() == *bytes ? text : std::to_string(*bytes));
    }
    return context.next(fmt::format("tune {}{} --without expandable_segments", file, limit),
                        "for a program that cannot use them");
  }
  return context.next("info " + file, "who holds the rest");
}

}  // namespace

std::string draw_tune(const TuneReport& report, const Context& context) {
  const Terminal& terminal = context.out;
  std::string out = heading(report, terminal) + bars(report, terminal) + "\n";
  out += report.result.best.fits ? advice(report, terminal) : no_fit(report, terminal);
  out += notes(report, terminal);
  return out + "\n" + context.glossary() + next_text(report, context);
}

}  // namespace headroom::cli
