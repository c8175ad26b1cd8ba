#include "headroom/diagnose/doctor.h"

#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/recorded_account.h"
#include "headroom/replay/recorded_limit.h"
#include "headroom/trace/settings.h"

namespace headroom::diagnose {
namespace {

using analysis::Growth;
using analysis::TraceIndex;
using memory::Account;
using trace::Action;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

FindingKind kind_of(Health health) {
  switch (health) {
    case Health::kHealthy:
      return FindingKind::kCached;
    case Health::kFragmentation:
      return FindingKind::kFragmentation;
    case Health::kShortage:
      return FindingKind::kShortage;
    case Health::kLeak:
      return FindingKind::kLeak;
  }
  return FindingKind::kCached;
}

// Failures with so few events between them are one burst: a library that tries one algorithm after
// another, or a program that tries again.
constexpr std::uint32_t kBurstEvents = 64;

Failures failures_of(const TraceIndex& index) {
  Failures out;
  const trace::Events& events = index.events();
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < index.end_position(); ++i) {
    if (events.action(i) == Action::kAlloc) out.went_on = out.count > 0;
    if (events.action(i) != Action::kOutOfMemory) continue;
    if (out.count == 0 || i - last > kBurstEvents) ++out.bursts;
    ++out.count;
    out.went_on = false;
    last = i;
  }
  return out;
}

std::optional<std::uint32_t> behind_last_failure(const TraceIndex& index) {
  for (std::uint32_t event = index.end_position(); event > 0; --event) {
    if (index.events().action(event - 1) == Action::kOutOfMemory) return event;
  }
  return std::nullopt;
}

bool has_waiting_frees(const TraceIndex& index) {
  return std::ranges::any_of(index.lifetimes(), [](const analysis::Lifetime& block) {
    return block.is_pending_at_start ||
           (block.free_event != analysis::kNoEvent && block.end_event != analysis::kNoEvent &&
            block.end_event > block.free_event + 1);
  });
}

class Doctor {
 public:
  Doctor(const TraceIndex& index, const DoctorOptions& options)
      : index_(index),
        options_(options),
        recorded_limit_(replay::recorded_limit(index.trace(), index.device(), index.start())) {}

  Diagnosis run() && {
    measure();
    choose_moment();
    name_holders();
    look_for_growth();
    if (out_.health != Health::kLeak) judge();
    prove();
    if (out_.health != Health::kLeak) {
      advise();
    } else if (out_.moment != Moment::kPeak) {
      add({.kind = kind_of(health_of(out_.explanation.verdict)),
           .advice = Advice::kMendLeakFirst,
           .bytes = out_.explanation.missing_bytes});
    }
    check_bounds();
    return std::move(out_);
  }

 private:
  void add(Finding finding) { out_.findings.push_back(std::move(finding)); }

  void measure() {
    out_.peak_live = index_.peaks().live.bytes;
    out_.peak_allocated = index_.peaks().allocated.bytes;
    out_.peak_reserved = index_.peaks().reserved.bytes;
    out_.failures = failures_of(index_);
    out_.limit = limit_range(recorded_limit_, options_.bounds);
    out_.is_of_headroom = !trace::recorded_device(index_.trace(), index_.device()).name.empty();
    out_.uses_streams = index_.events().streams().size() > 1 || has_waiting_frees(index_);
    out_.is_whole = index_.start().is_empty();
  }

  [[nodiscard]] const Replays& replays() {
    if (!replays_) replays_.emplace(index_, options_.replays, options_.bounds);
    return *replays_;
  }

  // --- The moment ---

  [[nodiscard]] Account account_at(std::uint32_t position) const {
    Account account = replay::recorded_account(index_,
                                               {.position = position,
                                                .card_bytes = options_.bounds.card_bytes,
                                                .rules = options_.replays.rules});
    // Where the device was full, its free bytes say so themselves.
    if (!out_.limit || out_.limit->source == LimitSource::kDevice) return account;
    account.limit_bytes = out_.limit->low_bytes;
    if (!out_.limit->is_exact()) account.limit_below_bytes = out_.limit->high_bytes;
    return account;
  }

  // A card or a limit that cannot be the recording's is a question of what would have been.
  void choose_moment() {
    const Bounds& asked = options_.bounds;
    const bool is_recorded = options_.has_replays && !asked.is_empty()
                                 ? replays().run_as_recorded(asked)
                                 : can_be_of_recording(recorded_limit_, asked);
    if (!asked.is_empty() && is_recorded) {
      out_.what_if = {.bounds = asked,
                      .fits = out_.failures.count == 0,
                      .peak_reserved = out_.peak_reserved,
                      .is_recorded = true};
    }
    if (!asked.is_empty() && !is_recorded && options_.has_replays) return foresee();
    if (const auto failure = behind_last_failure(index_)) return take_failure(*failure);
    take_peak();
  }

  void foresee() {
    const Foreseen foreseen = replays().foresee(options_.bounds);
    out_.what_if = {
        .bounds = options_.bounds, .fits = foreseen.fits, .peak_reserved = foreseen.peak_reserved};
    if (foreseen.fits) return take_peak();
    out_.moment = Moment::kForeseenFailure;
    out_.position = static_cast<std::uint32_t>(foreseen.event) + 1;
    out_.account = foreseen.account;
    out_.explanation = explain(out_.account);
  }

  void take_failure(std::uint32_t position) {
    out_.moment = Moment::kFailure;
    out_.position = position;
    out_.account = account_at(position);
    out_.explanation = explain(out_.account);
  }

  void take_peak() {
    out_.position = index_.peaks().allocated.position;
    out_.account = account_at(out_.position);
  }

  void name_holders() {
    const auto has_stack = [&](const analysis::Lifetime& block) {
      return !index_.trace().stacks.frame_ids(block.stack).empty();
    };
    if (!std::ranges::any_of(index_.lifetimes(), has_stack)) return;
    out_.sites = site_tree(index_, index_.allocated_at(out_.position));
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
    const std::string biggest = growth.sites.empty() ? "" : growth.sites.front().site;
    add({.kind = FindingKind::kLeak,
         .advice = Advice::kKeepNoGraph,
         .bytes = growth.bytes_per_iteration,
         .site = growth.sum_site.value_or(biggest)});
    if (growth.sites.size() > 1 || growth.sum_site) add_growing_sites(growth);
  }

  void add_growing_sites(const Growth& growth) {
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, growth.sites.size()); ++i) {
      add({.kind = FindingKind::kGrowth,
           .advice = Advice::kFindHolder,
           .bytes = growth.sites[i].bytes_per_iteration,
           .site = growth.sites[i].site});
    }
  }

  // --- Failure or peak ---

  [[nodiscard]] bool failed() const noexcept { return out_.moment != Moment::kPeak; }

  [[nodiscard]] std::uint64_t unused_at_peak() const {
    return saturating_subtract(out_.peak_reserved, out_.peak_live);
  }

  // The first failure may look like a matter of where memory lies; but what is live at once later
  // is more than there is to be.
  void judge_against_live() {
    const Bounds& asked = options_.bounds;
    const std::uint64_t most =
        std::min(asked.limit_bytes.value_or(UINT64_MAX), asked.card_bytes.value_or(UINT64_MAX));
    if (out_.peak_live <= most) return;
    // What would help against that, rather than against the first failure.
    Account until_peak = out_.account;
    const std::uint64_t live = until_peak.live() + until_peak.rounding_bytes;
    until_peak.asked_bytes = saturating_subtract(out_.peak_live, live);
    until_peak.segment_asked_bytes = until_peak.asked_bytes;
    out_.explanation = explain(until_peak);
    out_.explanation.verdict = memory::Verdict::kShortage;
    out_.explanation.summary = "shortage: " + format_bytes(out_.peak_live) +
                               " is live at once, more than the " + format_bytes(most) +
                               " that there is to be: no setting changes that";
    out_.explanation.missing_bytes = out_.peak_live - most;
    for (memory::Remedy& remedy : out_.explanation.remedies) remedy.is_enough = false;
  }

  void judge() {
    if (failed()) {
      if (out_.moment == Moment::kForeseenFailure) judge_against_live();
      out_.health = health_of(out_.explanation.verdict);
      return;
    }
    const std::uint64_t unused = unused_at_peak();
    if (unused >= kFragmentedBytes && share(unused, out_.peak_reserved) >= kFragmentedShare) {
      out_.health = Health::kFragmentation;
    }
  }

  // --- What to do ---

  // The bounds that a remedy must keep: those asked about, else the least that the limit can have
  // been.
  [[nodiscard]] Bounds proof_bounds() const {
    if (out_.moment != Moment::kFailure && !options_.bounds.is_empty()) return options_.bounds;
    Bounds bounds{.card_bytes = options_.bounds.card_bytes};
    if (out_.limit) bounds.limit_bytes = out_.limit->low_bytes;
    // What is asked about may be less than what was there.
    const std::uint64_t asked = options_.bounds.limit_bytes.value_or(UINT64_MAX);
    if (asked < bounds.limit_bytes.value_or(UINT64_MAX)) bounds.limit_bytes = asked;
    return bounds;
  }

  void prove() {
    if (!options_.has_replays || out_.health == Health::kLeak) return;
    // A search takes seconds, so only where there is something to be gained.
    const bool is_worth_it = share(unused_at_peak(), out_.peak_reserved) >= kFragmentedShare / 2;
    if (failed() || is_worth_it) out_.proof = replays().prove(proof_bounds());
    // Where the failure does not come again, as of a history that was cut, nothing is proved.
    if (out_.moment == Moment::kFailure && out_.proof && out_.proof->current.fits) {
      out_.proof.reset();
    }
  }

  // Only what was run to its end without a failure, and changes something.
  void add_proved(const ProvedSetting& setting, Advice advice, Besides besides) {
    const ProvedSetting& current = out_.proof->current;
    if (!setting.fits) return;
    const std::uint64_t saved = saturating_subtract(current.peak_reserved, setting.peak_reserved);
    const bool is_saving = share(saved, current.peak_reserved) >= kWorthSaving;
    if (!is_saving && !(failed() && !current.fits)) return;
    add({.kind = kind_of(out_.health),
         .advice = advice,
         .bytes = saved,
         .proof = setting,
         .besides = besides});
  }

  void advise() {
    if (out_.proof) {
      add_proved(out_.proof->best, Advice::kSetting, Besides::kNothing);
      if (out_.proof->expandable) {
        add_proved(*out_.proof->expandable, Advice::kSetting, Besides::kIsSimple);
      }
      if (out_.proof->best_without_expandable) {
        add_proved(
            *out_.proof->best_without_expandable, Advice::kSetting, Besides::kNeedsNoExpandable);
      }
      // Where memory lies in the wrong places or has run out, pages that move may be the answer.
      const bool is_asked_for = out_.health == Health::kFragmentation || failed();
      if (out_.proof->paged && is_asked_for) {
        add_proved(*out_.proof->paged, Advice::kPagedAllocator, Besides::kNothing);
      }
    }
    look_for_spread();
    if (!failed()) return advise_at_peak();
    for (const memory::Remedy& remedy : out_.explanation.remedies) {
      // A remedy that was tried out is not also guessed.
      if (out_.proof && remedy.kind == memory::RemedyKind::kExpandableSegments) continue;
      add({.kind = kind_of(out_.health),
           .advice = Advice::kFromAccount,
           .bytes = remedy.gain_bytes,
           .remedy = remedy});
    }
  }

  // At the failure, or where most was reserved: there lies what could be spared.
  void look_for_spread() {
    if (out_.health != Health::kFragmentation || out_.moment == Moment::kForeseenFailure) return;
    const auto spread =
        find_spread(index_, failed() ? out_.position : index_.peaks().reserved.position);
    if (!spread || spread->kept_bytes < kFragmentedBytes ||
        share(spread->kept_bytes, out_.peak_reserved) < kSpreadShare) {
      return;
    }
    Finding finding{.kind = FindingKind::kFragmentation,
                    .advice = Advice::kKeepApart,
                    .bytes = spread->kept_bytes};
    finding.site = spread->site;
    finding.spread = *spread;
    add(std::move(finding));
  }

  void advise_at_peak() {
    if (out_.health != Health::kFragmentation) return;
    const auto add_advice = [&](Advice advice, std::uint64_t bytes) {
      add({.kind = FindingKind::kFragmentation, .advice = advice, .bytes = bytes});
    };
    if (out_.account.cached_stream_bytes > 0) {
      add_advice(Advice::kOneStream, out_.account.cached_stream_bytes);
    }
    if (out_.findings.empty() && !out_.is_whole) {
      add_advice(Advice::kRecordFromStart, unused_at_peak());
    }
    if (out_.findings.empty()) add_advice(Advice::kMakeSizesRepeat, unused_at_peak());
  }

  void check_bounds() {
    if (!options_.max_peak_bytes || out_.peak_reserved <= *options_.max_peak_bytes) {
      out_.is_over_bounds = options_.max_growth_bytes && out_.health == Health::kLeak;
      return;
    }
    out_.is_over_bounds = true;
    out_.max_peak_bytes = *options_.max_peak_bytes;
    add({.kind = FindingKind::kPeak,
         .advice = Advice::kStayBelowMaxPeak,
         .bytes = out_.peak_reserved - out_.max_peak_bytes});
  }

  const TraceIndex& index_;
  const DoctorOptions& options_;
  replay::RecordedLimit recorded_limit_;
  std::optional<Replays> replays_{};
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

std::string_view to_string(FindingKind kind) noexcept {
  switch (kind) {
    case FindingKind::kLeak:
      return "leak";
    case FindingKind::kGrowth:
      return "growth";
    case FindingKind::kFragmentation:
      return "fragmentation";
    case FindingKind::kShortage:
      return "shortage";
    case FindingKind::kCached:
      return "cached";
    case FindingKind::kPeak:
      return "peak";
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

Diagnosis examine(const TraceIndex& index, const DoctorOptions& options) {
  return Doctor(index, options).run();
}

}  // namespace headroom::diagnose
