#include "headroom/diagnose/proofs.h"

#include <algorithm>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/memory/config.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/player.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/recorded_account.h"
#include "headroom/replay/tune.h"

namespace headroom::diagnose {
namespace {

using analysis::TraceIndex;
using replay::Program;
using replay::ReplayOptions;

// A fraction in the user's settings is a limit, and stays: the search ran under what it means.
std::string with_fraction(std::string conf, const Program& program) {
  const double fraction = program.config.memory_fraction;
  if (fraction == 1.0 || conf.find("per_process_memory_fraction") != std::string::npos) return conf;
  memory::AllocatorConfig only;
  only.memory_fraction = fraction;
  return conf.empty() ? to_string(only) : conf + "," + to_string(only);
}

// Expandable segments may map a page past a limit that PyTorch checked before: nothing fails, and
// still more was reserved than is there.
bool is_within(std::uint64_t peak_reserved, const Bounds& bounds) {
  return peak_reserved <= bounds.limit_bytes.value_or(UINT64_MAX);
}

ProvedSetting setting_of(const replay::Candidate& candidate,
                         const Program& program,
                         const Bounds& bounds) {
  return {.choice = candidate.choice(),
          .conf = with_fraction(candidate.conf, program),
          .peak_reserved = candidate.peak_reserved,
          .fits = candidate.fits && is_within(candidate.peak_reserved, bounds),
          .limit_bytes = bounds.limit_bytes,
          .driver_us = candidate.driver_us};
}

}  // namespace

Replays::Replays(const TraceIndex& index, ReplayChoices choices, const Bounds& bounds)
    : index_(index),
      choices_(std::move(choices)),
      program_(replay::compile_with_empty_caches(index.trace(),
                                                 index.device(),
                                                 {.version = choices_.version,
                                                  .card_bytes = bounds.card_bytes,
                                                  .limit_bytes = bounds.limit_bytes})) {}

Foreseen Replays::foresee(const Bounds& bounds) const {
  const Program program = replay::from_live_blocks(program_);
  ReplayOptions options = as_recorded(program, bounds);
  options.stop_at_failure = true;
  replay::ReplayResult result = replay::replay(program, options);
  // Where addresses matter it must fit whatever the driver does.
  if (result.fits && depends_on_addresses(options)) {
    options.order = device::AddressOrder::kAscending;
    const std::uint64_t peak = result.peak_reserved;
    result = replay::replay(program, options);
    result.peak_reserved = std::max(result.peak_reserved, peak);
  }
  Foreseen out{.fits = result.fits, .peak_reserved = result.peak_reserved};
  if (result.fits || !result.first_failure || !result.first_failure->report) return out;
  out.event = program.op_events[result.first_failure->op];
  out.account = replay::with_holders(result.first_failure->report->account,
                                     index_,
                                     static_cast<std::uint32_t>(out.event),
                                     choices_.rules);
  if (!bounds.card_bytes) out.account = memory::ending_at_limit(std::move(out.account));
  return out;
}

// Under our own allocator, under the same limit.
ProvedSetting Replays::prove_paged(const Program& program, const Bounds& bounds) const {
  const memory::AllocatorChoice choice{.paged = memory::PagedOptions{}, .is_default = false};
  const replay::PolicyResult paged =
      replay::run_policy(program,
                         replay::policy_of(choice),
                         {.card_bytes = bounds.card_bytes, .limit_bytes = bounds.limit_bytes});
  return {.choice = choice,
          .peak_reserved = paged.result.peak_reserved,
          .fits = paged.result.fits && is_within(paged.result.peak_reserved, bounds),
          .limit_bytes = bounds.limit_bytes,
          .driver_us = paged.result.calls.driver_us};
}

std::optional<Proof> Replays::prove(const Bounds& bounds) const {
  if (program_.is_of_paged) return std::nullopt;
  const Program program = replay::from_live_blocks(program_);
  replay::TuneOptions options{.limit_bytes = bounds.limit_bytes,
                              .card_bytes = bounds.card_bytes,
                              .version = choices_.version,
                              .threads = choices_.threads};
  // PyTorch collects only where the process has set itself a fraction, which a card or a limit that
  // is asked about is not.
  if (program.config.memory_fraction == 1.0 && program.config.garbage_collection_threshold == 0) {
    options.without.emplace_back("garbage_collection_threshold");
  }
  if (choices_.progress) {
    options.progress = [&](const replay::TuneProgress& progress) {
      choices_.progress("replaying other settings ... " + format_count(progress.tried) +
                        " of about " + format_count(progress.planned));
    };
  }
  const Program* const programs[] = {&program};  // NOLINT(modernize-avoid-c-arrays): for a span
  const replay::TuneResult result = replay::tune(programs, options);
  const auto setting = [&](const replay::Candidate& candidate) {
    return setting_of(candidate, program, bounds);
  };
  Proof proof{.current = setting(result.current), .best = setting(result.best)};
  if (result.best_without_expandable) {
    proof.best_without_expandable = setting(*result.best_without_expandable);
  }
  const auto simple =
      std::ranges::find(result.candidates, "expandable_segments:True", &replay::Candidate::conf);
  if (simple != result.candidates.end() && simple->conf != result.best.conf) {
    proof.expandable = setting(*simple);
  }
  proof.paged = prove_paged(program, bounds);
  return proof;
}

}  // namespace headroom::diagnose
