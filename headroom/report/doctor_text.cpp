#include "headroom/report/doctor_text.h"

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"

namespace headroom::report {
namespace {

using diagnose::Advice;
using diagnose::Diagnosis;
using diagnose::Finding;
using diagnose::Moment;

std::string percent(std::uint64_t part, std::uint64_t whole) {
  const double share = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("{:.0f} %", 100 * share);
}

std::string duration(double us) {
  if (us < 1e3) return fmt::format("{:.0f} us", us);
  return us < 1e6 ? fmt::format("{:.1f} ms", us / 1e3) : fmt::format("{:.1f} s", us / 1e6);
}

std::string step_word(const analysis::Growth& growth) {
  return growth.source == analysis::IterationSource::kNone ? "sixteenth of the recording" : "step";
}

std::string steps_text(const analysis::Growth& growth) {
  const bool has_steps = growth.source != analysis::IterationSource::kNone;
  if (growth.growing == 1) return "the last " + step_word(growth);
  return fmt::format(
      "the last {} {}", growth.growing, has_steps ? "steps" : "sixteenths of the recording");
}

// --- The summary ---

std::string leak_summary(const Diagnosis& diagnosis) {
  const analysis::Growth& growth = *diagnosis.growth;
  std::string out = fmt::format("{} more is live after every {}, and it is never freed",
                                format_bytes(growth.bytes_per_iteration),
                                step_word(growth));
  if (diagnosis.moment != Moment::kPeak) out += ", until an allocation failed";
  return out;
}

// Growth that is no leak is what --max-growth allows.
std::string growth_summary(const Diagnosis& diagnosis) {
  if (!diagnosis.growth || diagnosis.growth->bytes_per_iteration == 0) return "nothing grows";
  return fmt::format("{} more is live after every {}, which --max-growth allows",
                     format_bytes(diagnosis.growth->bytes_per_iteration),
                     step_word(*diagnosis.growth));
}

std::string peak_summary(const Diagnosis& diagnosis) {
  const std::uint64_t unused = saturating_subtract(diagnosis.peak_reserved, diagnosis.peak_live);
  if (diagnosis.health == diagnose::Health::kFragmentation) {
    return fmt::format(
        "{} was reserved, but at most {} was live at once: {} ({}) was cached and unused",
        format_bytes(diagnosis.peak_reserved),
        format_bytes(diagnosis.peak_live),
        format_bytes(unused),
        percent(unused, diagnosis.peak_reserved));
  }
  return fmt::format("{} was reserved, and at most {} was live at once; {}{}",
                     format_bytes(diagnosis.peak_reserved),
                     format_bytes(diagnosis.peak_live),
                     growth_summary(diagnosis),
                     diagnosis.failures.count == 0 ? ", nothing failed" : "");
}

bool has_proved_setting(const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings) {
    if (finding.advice == Advice::kSetting) return true;
  }
  return false;
}

std::string failure_summary(const Diagnosis& diagnosis) {
  std::string out = diagnosis.explanation.summary;
  if (diagnosis.proof && !has_proved_setting(diagnosis)) {
    out += "; no setting of the allocator makes it fit";
  }
  const diagnose::Failures& failures = diagnosis.failures;
  if (diagnosis.moment != Moment::kFailure || !failures.went_on) return out;
  std::string bursts;
  if (failures.bursts < failures.count) {
    bursts = failures.bursts == 1 ? " in quick succession"
                                  : fmt::format(" in {} bursts", failures.bursts);
  }
  return out + fmt::format(
                   ". {} failed{}, and the program went on: it catches the error, as cuDNN does "
                   "when it searches for an algorithm, and may have chosen a slower one",
                   failures.count == 1 ? "One request" : format_count(failures.count) + " requests",
                   bursts);
}

std::string bounds_text(const diagnose::Bounds& bounds) {
  std::string out;
  if (bounds.limit_bytes) out = "under a limit of " + format_bytes(*bounds.limit_bytes);
  if (!bounds.card_bytes) return out;
  return (out.empty() ? "" : out + " ") + "on a card of " + format_bytes(*bounds.card_bytes);
}

// The context and the kernels of a process, on an H200; no allocator sees them.
constexpr std::uint64_t kContextBytes = 552'000'000;

std::string context_text(const diagnose::WhatIf& answer) {
  const std::uint64_t left = saturating_subtract(*answer.bounds.card_bytes, answer.peak_reserved);
  if (left >= kContextBytes)
    return fmt::format(", which leaves {} for CUDA itself", format_bytes(left));
  if (left < diagnose::kLeastContextBytes) {
    return fmt::format(", but {} are left for CUDA itself, which takes {} on an H200: too little",
                       format_bytes(left),
                       format_bytes(kContextBytes));
  }
  return fmt::format(", if the {} left is enough for CUDA itself, which takes {} on an H200",
                     format_bytes(left),
                     format_bytes(kContextBytes));
}

std::string what_if_text(const Diagnosis& diagnosis) {
  if (!diagnosis.what_if) return "";
  const diagnose::WhatIf& answer = *diagnosis.what_if;
  if (!answer.fits) {
    // Of the recording itself the verdict says it already.
    return answer.is_recorded ? "" : ". It does not fit " + bounds_text(answer.bounds);
  }
  std::string out = fmt::format(". {} {}: the same requests reserve {} there",
                                answer.leaves_no_context() ? "It does not fit" : "It fits",
                                bounds_text(answer.bounds),
                                format_bytes(answer.peak_reserved));
  if (answer.bounds.card_bytes) out += context_text(answer);
  if (diagnosis.failures.count > 0) out += "; the requests that failed in the recording succeed";
  return out;
}

// --- Findings ---

std::string leak_reason(const Diagnosis& diagnosis) {
  const analysis::Growth& growth = *diagnosis.growth;
  std::string out = fmt::format("{} bytes per {}{}, {} in total over {}",
                                format_count(growth.bytes_per_iteration),
                                step_word(growth),
                                growth.is_same_each_time ? "" : " on average",
                                format_bytes(growth.total_bytes),
                                steps_text(growth));
  if (growth.sum_site) {
    out += fmt::format("; {} keeps one small tensor from step to step, as a sum of losses does",
                       *growth.sum_site);
  }
  return out;
}

std::string limit_text(const Diagnosis& diagnosis, const diagnose::ProvedSetting& proof) {
  if (!proof.limit_bytes) return "";
  const bool is_low_end = diagnosis.moment == Moment::kFailure && diagnosis.limit &&
                          !diagnosis.limit->is_exact() &&
                          *proof.limit_bytes == diagnosis.limit->low_bytes;
  return fmt::format(" within {}{}",
                     format_bytes(*proof.limit_bytes),
                     is_low_end ? ", the lowest that the limit can have been" : "");
}

std::string driver_text(const Diagnosis& diagnosis, const diagnose::ProvedSetting& proof) {
  return fmt::format("; its driver calls take {} in total, against {} under the present settings",
                     duration(proof.driver_us),
                     duration(diagnosis.proof->current.driver_us));
}

std::string proved_reason(const Diagnosis& diagnosis, const Finding& finding) {
  const diagnose::ProvedSetting& current = diagnosis.proof->current;
  std::string out = "reserves " + format_bytes(finding.proof->peak_reserved);
  if (current.fits) {
    out += fmt::format(" instead of {} ({} less)",
                       format_bytes(current.peak_reserved),
                       percent(finding.bytes, current.peak_reserved));
  }
  if (diagnosis.moment != Moment::kPeak) {
    const bool has_ended = diagnosis.moment == Moment::kFailure && !diagnosis.failures.went_on;
    out += (has_ended ? ", and no request of the recording fails" : ", and no request fails") +
           limit_text(diagnosis, *finding.proof);
    if (has_ended) out += "; the recording ends there, and what comes next is not known";
  }
  if (!diagnosis.is_whole)
    out += "; both replays start with the blocks that were live when the recording begins";
  if (finding.besides == diagnose::Besides::kIsSimple) out += "; it is simpler";
  if (finding.besides == diagnose::Besides::kNeedsNoExpandable) {
    out += "; for a program that cannot use expandable segments";
  }
  if (finding.advice == Advice::kPagedAllocator) out += driver_text(diagnosis, *finding.proof);
  return out;
}

std::string account_reason(const memory::Remedy& remedy) {
  return fmt::format("estimate, not replayed: gains up to {}{}",
                     format_bytes(remedy.gain_bytes),
                     remedy.is_enough ? ", enough for this request" : "");
}

std::string spread_reason(const analysis::Spread& spread) {
  return fmt::format(
      "{} {}, {} in all, keep {} of {} of 2MiB, each less than a tenth full: no allocator "
      "can use the rest for a large block",
      format_count(spread.blocks),
      spread.blocks == 1 ? "block" : "blocks",
      format_bytes(spread.live_bytes),
      format_bytes(spread.kept_bytes),
      spread.pages == 1 ? "a page" : format_count(spread.pages) + " pages");
}

std::string paged_remedy(const Diagnosis& diagnosis) {
  if (diagnosis.is_of_headroom) return "run it on the paged allocator: --policy paged";
  std::string out =
      "run PyTorch on headroom's paged allocator: headroom.torch.enable(), docs/guide/pytorch.md";
  if (diagnosis.uses_streams) {
    out += "; this program uses blocks on several streams, and record_stream works there too";
  }
  return out;
}

}  // namespace

std::string export_line(std::string_view conf) {
  // A list of the grammar has characters that a shell takes for its own.
  const bool is_plain = conf.find_first_of("[]>, ") == std::string_view::npos;
  const std::string_view quote = is_plain ? "" : "'";
  return fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}{}{}", quote, conf, quote);
}

std::string summary_text(const Diagnosis& diagnosis) {
  if (diagnosis.health == diagnose::Health::kLeak) {
    return leak_summary(diagnosis) + what_if_text(diagnosis);
  }
  const std::string verdict =
      diagnosis.moment == Moment::kPeak ? peak_summary(diagnosis) : failure_summary(diagnosis);
  return verdict + what_if_text(diagnosis);
}

std::string remedy_text(const Diagnosis& diagnosis, const Finding& finding) {
  switch (finding.advice) {
    case Advice::kKeepNoGraph:
      return "do not keep tensors with their graph from step to step: sum losses as loss.item() "
             "or loss.detach(), and clear lists and caches that only grow";
    case Advice::kFindHolder:
      return "find out what still refers to the tensors that are made here";
    case Advice::kMendLeakFirst:
      return "fix the leak first";
    case Advice::kSetting:
      return diagnosis.is_of_headroom ? "--policy 'pytorch:" + finding.proof->conf + "'"
                                      : export_line(finding.proof->conf);
    case Advice::kPagedAllocator:
      return paged_remedy(diagnosis);
    case Advice::kFromAccount:
      return finding.remedy.action;
    case Advice::kOneStream:
      return "allocate on one stream, and call record_stream where another reads: a cached block "
             "serves only its own stream";
    case Advice::kRecordFromStart:
      return "record from the first allocation on, with a larger max_entries";
    case Advice::kMakeSizesRepeat:
      return "make sizes repeat: pad batches to a few lengths";
    case Advice::kKeepApart:
      return "keep blocks that stay apart from those that come and go: allocate them first, or "
             "copy "
             "them into one tensor";
    case Advice::kStayBelowMaxPeak:
      return "use less memory, or raise --max-peak";
  }
  return "";
}

std::string reason_text(const Diagnosis& diagnosis, const Finding& finding) {
  switch (finding.advice) {
    case Advice::kKeepNoGraph:
      return leak_reason(diagnosis);
    case Advice::kFindHolder:
      return fmt::format("{} bytes per step are allocated here and stay live",
                         format_count(finding.bytes));
    case Advice::kMendLeakFirst:
      return diagnosis.explanation.summary;
    case Advice::kSetting:
    case Advice::kPagedAllocator:
      return proved_reason(diagnosis, finding);
    case Advice::kFromAccount:
      return account_reason(finding.remedy);
    case Advice::kOneStream:
      return fmt::format("{} at the peak belonged to another stream", format_bytes(finding.bytes));
    case Advice::kRecordFromStart:
      return "most of the memory was reserved before this recording begins, and no setting can "
             "change "
             "that";
    case Advice::kMakeSizesRepeat:
      return "no setting that was tried saves more than 2 %";
    case Advice::kKeepApart:
      return spread_reason(finding.spread);
    case Advice::kStayBelowMaxPeak:
      return fmt::format("the peak reserved, {}, is {} above --max-peak, {}",
                         format_bytes(diagnosis.peak_reserved),
                         format_bytes(finding.bytes),
                         format_bytes(diagnosis.max_peak_bytes));
  }
  return "";
}

}  // namespace headroom::report
