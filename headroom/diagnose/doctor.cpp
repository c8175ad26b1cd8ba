#include "headroom/diagnose/doctor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/recorded_account.h"

namespace headroom::diagnose {
namespace {

using analysis::Growth;
using analysis::TraceIndex;
using memory::Account;

std::uint64_t subtract(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.0f} %", 100 * share(part, whole));
}

std::optional<std::uint32_t> last_failure(const TraceIndex& index) {
  for (std::uint32_t event = index.end_position(); event > 0; --event) {
    if (index.events().action(event - 1) == trace::Action::kOutOfMemory) return event;
  }
  return std::nullopt;
}

// PyTorch records no limit. Where it failed although the device had room, there was one: at most
// what was reserved, for a failure comes after everything was given back that could be.
std::optional<std::uint64_t> limit_at(const Account& account,
                                      std::optional<std::uint64_t> asked_about) {
  if (asked_about) return asked_about;
  const bool had_room =
      account.asked_bytes != 0 && account.free_bytes >= account.segment_asked_bytes;
  return had_room ? std::optional(account.reserved()) : std::nullopt;
}

class Doctor {
 public:
  Doctor(const TraceIndex& index, const DoctorOptions& options)
      : index_(index), options_(options) {}

  Diagnosis run() && {
    measure();
    choose_moment();
    look_for_growth();
    if (out_.health != Health::kLeak) judge();
    prove();
    if (out_.health != Health::kLeak) {
      advise();
    } else if (out_.moment != Moment::kPeak) {
      mention_failure();
    }
    check_bounds();
    return std::move(out_);
  }

 private:
  void measure() {
    out_.peak_live = index_.peaks().live.bytes;
    out_.peak_allocated = index_.peaks().allocated.bytes;
    out_.peak_reserved = index_.peaks().reserved.bytes;
    out_.failures = index_.count(trace::Action::kOutOfMemory);
  }

  [[nodiscard]] Account account_at(std::uint32_t position) const {
    Account account =
        replay::recorded_account(index_, {.position = position, .card_bytes = options_.card_bytes});
    account.limit_bytes = limit_at(account, options_.limit_bytes);
    return account;
  }

  void choose_moment() {
    if (const auto failure = last_failure(index_)) {
      out_.moment = Moment::kFailure;
      out_.position = *failure;
      out_.account = account_at(*failure);
      return;
    }
    const bool is_bounded = options_.limit_bytes || options_.card_bytes;
    if (is_bounded && options_.foresee) {
      if (auto failure = options_.foresee(index_)) {
        out_.moment = Moment::kForeseenFailure;
        out_.position = static_cast<std::uint32_t>(failure->event) + 1;
        out_.account = std::move(failure->account);
        return;
      }
    }
    out_.position = index_.peaks().allocated.position;
    out_.account = account_at(out_.position);
  }

  // --- Growth ---

  void look_for_growth() {
    const analysis::Iterations iterations = find_iterations(index_);
    out_.iterations = iterations.count();
    out_.growth = find_growth(index_, iterations);
    if (!out_.growth) return;
    const Growth& growth = *out_.growth;
    if (growth.bytes_per_iteration <= options_.max_growth_bytes.value_or(0)) return;
    out_.health = Health::kLeak;
    const std::string step =
        growth.source == analysis::IterationSource::kNone ? "sixteenth of the recording" : "step";
    out_.summary = fmt::format("{} more are held after every {}, and never given back",
                               format_bytes(growth.bytes_per_iteration),
                               step);
    add_leak(growth, step);
    if (growth.sites.size() > 1 || growth.sum_site) add_growing_sites(growth);
  }

  void add_leak(const Growth& growth, const std::string& step) {
    const std::string biggest = growth.sites.empty() ? "" : growth.sites.front().site;
    Finding finding{.kind = "leak",
                    .bytes = growth.bytes_per_iteration,
                    .site = growth.sum_site.value_or(biggest)};
    finding.remedy =
        "keep no tensor with its graph from step to step: sum losses as loss.item() or "
        "loss.detach(), and clear lists and caches that only grow";
    finding.text = fmt::format("{} bytes a {}{}, {} in all over the last {}",
                               format_count(growth.bytes_per_iteration),
                               step,
                               growth.is_same_each_time ? "" : " on average",
                               format_bytes(growth.total_bytes),
                               growth.growing);
    if (growth.sum_site) {
      finding.text +=
          fmt::format("; {} keeps one small tensor from step to step, as a sum of losses does",
                      *growth.sum_site);
    }
    out_.findings.push_back(std::move(finding));
  }

  void add_growing_sites(const Growth& growth) {
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, growth.sites.size()); ++i) {
      const analysis::GrowingSite& site = growth.sites[i];
      out_.findings.push_back({.kind = "growth",
                               .bytes = site.bytes_per_iteration,
                               .site = site.site,
                               .remedy = "find who still refers to what is made here",
                               .text = fmt::format("{} bytes a step are asked for here",
                                                   format_count(site.bytes_per_iteration))});
    }
  }

  // --- Failure or peak ---

  [[nodiscard]] std::uint64_t unused_at_peak() const {
    return subtract(out_.peak_reserved, out_.peak_live);
  }

  void judge() {
    if (out_.moment != Moment::kPeak) {
      const memory::Explanation explanation = explain(out_.account);
      out_.health = health_of(explanation.verdict);
      out_.summary = explanation.summary;
      return;
    }
    const std::uint64_t unused = unused_at_peak();
    if (unused >= kFragmentedBytes && share(unused, out_.peak_reserved) >= kFragmentedShare) {
      out_.health = Health::kFragmentation;
      out_.summary = fmt::format(
          "{} were reserved for {} that were ever live at once: {} ({}) were cached and of no use",
          format_bytes(out_.peak_reserved),
          format_bytes(out_.peak_live),
          format_bytes(unused),
          percent(unused, out_.peak_reserved));
      return;
    }
    out_.summary =
        fmt::format("{} were reserved for {} that were live at once, nothing grows, nothing failed",
                    format_bytes(out_.peak_reserved),
                    format_bytes(out_.peak_live));
  }

  // --- What to do ---

  void prove() {
    if (!options_.prove) return;
    // A search takes seconds, so only where there is something to be gained.
    const bool failed = out_.moment != Moment::kPeak;
    const bool is_worth_it = share(unused_at_peak(), out_.peak_reserved) >= kFragmentedShare / 2;
    if (!failed && !is_worth_it) return;
    if (out_.health == Health::kLeak) return;
    out_.proof = options_.prove(index_);
  }

  void add_setting(const ProvedSetting& setting, std::string_view remark) {
    add_proved(setting, export_line(setting.conf), remark);
  }

  // Where memory lies in the wrong places or has run out, pages that move may be the answer.
  void add_paged() {
    if (!out_.proof || !out_.proof->paged) return;
    if (out_.health != Health::kFragmentation && out_.moment == Moment::kPeak) return;
    add_proved(*out_.proof->paged,
               "run PyTorch on headroom's paged allocator, libheadroom_torch.so: "
               "docs/guide/memory.md says how",
               "");
  }

  void add_proved(const ProvedSetting& setting, std::string remedy, std::string_view remark) {
    const ProvedSetting& current = out_.proof->current;
    const bool failed = out_.moment != Moment::kPeak;
    if (failed && !setting.fits) return;
    const std::uint64_t saved = subtract(current.peak_reserved, setting.peak_reserved);
    const bool is_saving = share(saved, current.peak_reserved) >= kWorthSaving;
    if (!is_saving && !(failed && !current.fits)) return;
    const std::string kind =
        out_.health == Health::kHealthy ? "cached" : std::string(to_string(out_.health));
    Finding finding{.kind = kind, .bytes = saved, .remedy = std::move(remedy), .is_proved = true};
    finding.text = fmt::format("reserves {}", format_bytes(setting.peak_reserved));
    if (current.fits) {
      finding.text += fmt::format(" instead of {} ({} less)",
                                  format_bytes(current.peak_reserved),
                                  percent(saved, current.peak_reserved));
    }
    if (failed) finding.text += ", and nothing fails";
    finding.text += remark;
    out_.findings.push_back(std::move(finding));
  }

  void advise() {
    if (out_.proof) {
      add_setting(out_.proof->best, "");
      if (out_.proof->expandable) add_setting(*out_.proof->expandable, "; easier to remember");
      if (out_.proof->best_without_expandable) {
        add_setting(*out_.proof->best_without_expandable,
                    "; for where expandable segments cannot be used");
      }
    }
    const bool is_proved = !out_.findings.empty();
    add_paged();
    if (out_.moment == Moment::kPeak) return advise_at_peak();
    for (const memory::Remedy& remedy : explain(out_.account).remedies) {
      // What was tried out is not also guessed.
      if (out_.proof && remedy.action.find("PYTORCH_CUDA_ALLOC_CONF") != std::string::npos)
        continue;
      out_.findings.push_back(
          {.kind = std::string(to_string(out_.health)),
           .bytes = remedy.gain_bytes,
           .remedy = remedy.action,
           .text = fmt::format("up to {}{}",
                               format_bytes(remedy.gain_bytes),
                               remedy.is_enough ? ", enough for this request" : "")});
    }
    if (out_.proof && !is_proved) {
      out_.summary += "; no setting of the allocator makes it fit";
    }
  }

  // Beside the leak that brought it about.
  void mention_failure() {
    const memory::Explanation explanation = explain(out_.account);
    out_.summary += ", until an allocation failed";
    out_.findings.push_back({.kind = std::string(to_string(health_of(explanation.verdict))),
                             .bytes = explanation.missing_bytes,
                             .remedy = "mend the leak first",
                             .text = explanation.summary});
  }

  void advise_at_peak() {
    if (out_.health != Health::kFragmentation) return;
    if (out_.account.cached_stream_bytes > 0) {
      out_.findings.push_back(
          {.kind = "fragmentation",
           .bytes = out_.account.cached_stream_bytes,
           .remedy = "allocate on one stream (record_stream where others read): a cached block "
                     "serves only its own stream",
           .text = fmt::format("{} at the peak belonged to another stream",
                               format_bytes(out_.account.cached_stream_bytes))});
    }
    if (out_.findings.empty() && !index_.start().is_empty()) {
      out_.findings.push_back(
          {.kind = "fragmentation",
           .bytes = unused_at_peak(),
           .remedy = "record from the first allocation on (a larger max_entries)",
           .text = "most was reserved before this recording begins, which no setting changes "
                   "any more"});
    }
    if (out_.findings.empty()) {
      out_.findings.push_back({.kind = "fragmentation",
                               .bytes = unused_at_peak(),
                               .remedy = "make sizes repeat: pad batches to a few lengths",
                               .text = "no setting that was tried saves more than 2 %"});
    }
  }

  void check_bounds() {
    if (!options_.max_peak_bytes || out_.peak_reserved <= *options_.max_peak_bytes) {
      out_.is_over_bounds = options_.max_growth_bytes && out_.health == Health::kLeak;
      return;
    }
    out_.is_over_bounds = true;
    const std::uint64_t over = out_.peak_reserved - *options_.max_peak_bytes;
    out_.findings.push_back(
        {.kind = "peak",
         .bytes = over,
         .remedy = "take less, or raise --max-peak",
         .text = fmt::format("the peak of {} reserved is {} over the bound of {}",
                             format_bytes(out_.peak_reserved),
                             format_bytes(over),
                             format_bytes(*options_.max_peak_bytes))});
  }

  const TraceIndex& index_;
  const DoctorOptions& options_;
  Diagnosis out_;
};

}  // namespace

std::string_view to_string(Health health) noexcept {
  switch (health) {
    case Health::kHealthy:
      return "healthy";
    case Health::kFragmentation:
      return "fragmentation";
    case Health::kShortage:
      return "shortage";
    case Health::kLeak:
      return "leak";
  }
  return "";
}

Health health_of(memory::Verdict verdict) noexcept {
  switch (verdict) {
    case memory::Verdict::kFits:
      return Health::kHealthy;
    case memory::Verdict::kFragmentation:
      return Health::kFragmentation;
    case memory::Verdict::kShortage:
      return Health::kShortage;
  }
  return Health::kHealthy;
}

std::string export_line(std::string_view conf) {
  // A list of the grammar has characters that a shell takes for its own.
  const bool is_plain = conf.find_first_of("[]>, ") == std::string_view::npos;
  const std::string_view quote = is_plain ? "" : "'";
  return fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}{}{}", quote, conf, quote);
}

Diagnosis diagnose(const TraceIndex& index, const DoctorOptions& options) {
  return Doctor(index, options).run();
}

}  // namespace headroom::diagnose
