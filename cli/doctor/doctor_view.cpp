// How `headroom doctor` looks: the verdict, where the bytes are, what to do.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/report/bar.h"
#include "headroom/report/doctor_text.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/doctor/doctor.h"
#include "cli/input/trace_input.h"
#include "cli/output/site_tree_view.h"

namespace headroom::cli {
namespace {

using diagnose::Diagnosis;
using diagnose::Finding;
using diagnose::Health;
using report::Terminal;
using report::Tone;

Tone tone_of(const Diagnosis& diagnosis) {
  if (diagnosis.is_good()) return Tone::kGood;
  return diagnosis.health == Health::kFragmentation ? Tone::kWarn : Tone::kBad;
}

std::string printable_name(const std::string& path) { return report::printable(file_name(path)); }

std::string title(const DeviceDiagnosis& device, const Terminal& terminal) {
  const Diagnosis& diagnosis = device.diagnosis;
  std::string text = fmt::format("{}, {}: {} allocations",
                                 printable_name(device.recording),
                                 device.device,
                                 format_count(device.allocs));
  if (diagnosis.iterations > 0)
    text += fmt::format(", {} steps", format_count(diagnosis.iterations));
  if (!device.settings.empty()) text += ", " + report::printable(device.settings);
  if (!device.is_whole) text += ", the last part of a longer history";
  return report::wrapped(text, 0, terminal.width);
}

std::string verdict(const Diagnosis& diagnosis, const Terminal& terminal) {
  // Nothing is wrong with it but the bound of continuous integration, or the card asked about.
  const bool is_only_too_much =
      diagnosis.is_over_bounds && diagnosis.health == diagnose::Health::kHealthy;
  const bool is_too_small = diagnosis.what_if && diagnosis.what_if->leaves_no_context();
  const std::string name(is_only_too_much ? "above --max-peak"
                         : is_too_small   ? "too small a card"
                                          : to_string(diagnosis.health));
  std::string text = report::summary_text(diagnosis);
  // explain() begins with the word.
  if (text.starts_with(name + ": ")) text.erase(0, name.size() + 2);
  const std::string wrapped = report::wrapped(name + ": " + text, 0, terminal.width);
  return "\n" + report::styled(name, tone_of(diagnosis), terminal) + wrapped.substr(name.size());
}

std::string_view moment_text(diagnose::Moment moment) {
  switch (moment) {
    case diagnose::Moment::kPeak:
      return "at the peak of allocated memory";
    case diagnose::Moment::kFailure:
      return "when the allocation failed";
    case diagnose::Moment::kForeseenFailure:
      return "when an allocation would have failed";
  }
  return "";
}

std::string bar(const memory::Account& account, const Terminal& terminal) {
  std::vector<report::BarPart> parts{
      {"live", account.live() + account.rounding_bytes, Tone::kAccent, 0},
      {"cached, stuck",
       account.cached_hard_bytes + account.cached_stream_bytes + account.pending_bytes,
       Tone::kBad,
       1},
      {"cached, can be given back", account.cached_soft_bytes, Tone::kWarn, 2},
      {"context and libraries, other processes",
       account.outside_bytes + account.other_processes_bytes,
       Tone::kPlain,
       3},
      {"free", account.free_bytes, Tone::kFaint, report::kRestFill}};
  std::erase_if(parts, [](const report::BarPart& part) { return part.value == 0; });
  std::string out =
      "  " + report::stacked_bar(parts, std::min(76, terminal.width - 4), terminal) + "\n";
  for (const std::string& line : report::legend_lines(parts, terminal.width - 2, terminal)) {
    out += "  " + line + "\n";
  }
  return out;
}

// A recording knows no card, and "free: 0" would be read as one that is full.
std::string card_note(const Diagnosis& diagnosis) {
  const memory::Account& account = diagnosis.account;
  if (diagnosis.moment != diagnose::Moment::kPeak || account.free_bytes > 0) return "";
  return "  The recording does not say how large the card is; name it with --card.\n";
}

// With stacks, sites are split further: see holders_text().
std::string account_lines(const Diagnosis& diagnosis) {
  if (diagnosis.sites.empty()) return memory::to_text(diagnosis.account, {});
  memory::Account account = diagnosis.account;
  account.sites.clear();
  return memory::to_text(account, {});
}

std::string holders_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  if (diagnosis.sites.empty()) return "";
  constexpr std::size_t kShown = 5;
  std::uint64_t whole = 0;
  for (const analysis::SiteNode& site : diagnosis.sites) whole += site.bytes;
  return "\nallocated, by place in the program (site)\n" +
         draw_site_tree(diagnosis.sites, kShown, whole, terminal);
}

std::string account_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  return fmt::format("\n{}\n", moment_text(diagnosis.moment)) + bar(diagnosis.account, terminal) +
         "\n" + account_lines(diagnosis) + card_note(diagnosis) + holders_text(diagnosis, terminal);
}

std::string finding_text(std::size_t number,
                         const Diagnosis& diagnosis,
                         const Finding& finding,
                         const Terminal& terminal) {
  constexpr int kColumn = 4;
  const std::string remedy = report::remedy_text(diagnosis, finding);
  std::string out = fmt::format("{:>2}. ", number);
  const bool has_site = !finding.site.empty() && !finding.site.starts_with('(');
  const std::string what = has_site ? report::printable(finding.site) + ": " + remedy : remedy;
  // A line to copy is not broken.
  const bool is_command = what.starts_with("export ") || what.starts_with("--policy ");
  out += is_command ? what + "\n" : report::wrapped(what, kColumn, terminal.width).substr(kColumn);
  const std::string why =
      (finding.is_proved() ? "proved by replay: " : "") + report::reason_text(diagnosis, finding);
  return out + report::wrapped(report::printable(why), kColumn, terminal.width);
}

std::string findings_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  if (diagnosis.findings.empty()) return "";
  const bool is_needed = !diagnosis.is_good();
  std::string out =
      "\n" +
      report::styled(is_needed ? "What to do" : "What could be improved", Tone::kStrong, terminal) +
      "\n";
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i) {
    out += finding_text(i + 1, diagnosis, diagnosis.findings[i], terminal);
  }
  return out;
}

std::string overview(const std::vector<DeviceDiagnosis>& devices, const Terminal& terminal) {
  if (devices.size() < 2) return "";
  report::Table table({{"recording", report::Align::kLeft, report::Fit::kShrinks},
                       {"device"},
                       {"verdict"},
                       {"peak live", report::Align::kRight},
                       {"peak reserved", report::Align::kRight}});
  for (const DeviceDiagnosis& device : devices) {
    table.add_row({printable_name(device.recording),
                   device.device,
                   std::string(to_string(device.diagnosis.health)),
                   format_bytes(device.diagnosis.peak_live),
                   format_bytes(device.diagnosis.peak_reserved)});
  }
  return table.render(terminal) + "\n";
}

// A size that the option reads back as the same.
std::string typed(std::uint64_t size_bytes) {
  const std::string text = format_bytes(size_bytes);
  const auto read = parse_bytes(text);
  return read && *read == size_bytes ? text : std::to_string(size_bytes);
}

// What was asked about is asked about again.
std::string bound_options(const Diagnosis& diagnosis) {
  if (!diagnosis.what_if) return "";
  const diagnose::Bounds& bounds = diagnosis.what_if->bounds;
  std::string out;
  if (bounds.limit_bytes) out += " --limit " + typed(*bounds.limit_bytes);
  if (bounds.card_bytes) out += " --card " + typed(*bounds.card_bytes);
  return out;
}

std::string next_text(const DeviceDiagnosis& device, const Context& context) {
  const std::string path = shell_word(device.recording);
  switch (device.diagnosis.health) {
    case Health::kFragmentation:
    case Health::kShortage:
      return context.next("tune " + path + bound_options(device.diagnosis),
                          "what each setting reserves");
    case Health::kLeak:
      return context.next("info " + path, "who held memory at the peak");
    case Health::kHealthy:
      return context.next("info " + path, "what is in it");
  }
  return "";
}

}  // namespace

std::string draw_doctor(const std::vector<DeviceDiagnosis>& devices, const Context& context) {
  const DeviceDiagnosis& device = worst(devices);
  const Diagnosis& diagnosis = device.diagnosis;
  return overview(devices, context.out) + title(device, context.out) +
         verdict(diagnosis, context.out) + account_text(diagnosis, context.out) +
         findings_text(diagnosis, context.out) + "\n" + context.glossary() +
         next_text(device, context);
}

}  // namespace headroom::cli
