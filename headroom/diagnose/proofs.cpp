#include "headroom/diagnose/proofs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/player.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/program.h"
#include "headroom/replay/recorded_account.h"
#include "headroom/replay/tune.h"

namespace headroom::diagnose {
namespace {

using analysis::TraceIndex;
using memory::Account;
using replay::Program;
using replay::ReplayOptions;

struct Bounds {
  std::optional<std::uint64_t> card_bytes{};
  std::optional<std::uint64_t> limit_bytes{};
};

Program compiled(const TraceIndex& index, const ReplayChoices& choices, const Bounds& bounds) {
  return replay::compile_with_empty_caches(
      index.trace(), index.device(), {.version = choices.version, .card_bytes = bounds.card_bytes});
}

ProvedSetting setting_of(const replay::Candidate& candidate) {
  return {.conf = candidate.conf, .peak_reserved = candidate.peak_reserved, .fits = candidate.fits};
}

// Under our own allocator, on the same card and under the same limit.
ProvedSetting prove_paged(const Program& program, const Bounds& bounds) {
  const replay::PolicyResult paged =
      replay::run_policy(program,
                         {.kind = replay::PolicyKind::kPaged, .name = "paged"},
                         {.card_bytes = bounds.card_bytes, .limit_bytes = bounds.limit_bytes});
  return {.peak_reserved = paged.result.peak_reserved, .fits = paged.result.fits};
}

// Nothing where PyTorch's settings changed nothing: the program ran on our own allocator.
std::optional<Proof> prove(const TraceIndex& index,
                           const ReplayChoices& choices,
                           const Bounds& bounds) {
  const Program program = compiled(index, choices, bounds);
  if (program.is_of_paged) return std::nullopt;
  replay::TuneOptions options{.limit_bytes = bounds.limit_bytes,
                              .card_bytes = bounds.card_bytes,
                              .version = choices.version,
                              .threads = choices.threads};
  if (choices.progress) {
    options.progress = [&](const replay::TuneProgress& progress) {
      choices.progress(fmt::format(
          "replaying other settings ... {} of about {}", progress.tried, progress.planned));
    };
  }
  const Program* const programs[] = {&program};  // NOLINT(modernize-avoid-c-arrays): for a span
  const replay::TuneResult result = replay::tune(programs, options);
  Proof proof{.current = setting_of(result.current), .best = setting_of(result.best)};
  if (result.best_without_expandable) {
    proof.best_without_expandable = setting_of(*result.best_without_expandable);
  }
  const auto simple =
      std::ranges::find(result.candidates, "expandable_segments:True", &replay::Candidate::conf);
  if (simple != result.candidates.end() && simple->conf != proof.best.conf) {
    proof.expandable = setting_of(*simple);
  }
  proof.paged = prove_paged(program, bounds);
  return proof;
}

// What the recording says of the live blocks, whom the allocator of the replay does not know.
void add_holders(Account& account, const TraceIndex& index, std::uint32_t position) {
  const Account recorded = replay::recorded_account(index, {.position = position});
  if (recorded.live() != account.live()) return;
  account.live_bytes = recorded.live_bytes;
  account.sites = recorded.sites;
}

// Without a card, the limit is all there is.
void end_at_limit(Account& account, const Bounds& bounds) {
  account.limit_bytes = bounds.limit_bytes;
  if (bounds.card_bytes || !bounds.limit_bytes) return;
  const std::uint64_t reserved = account.reserved();
  account.free_bytes = *bounds.limit_bytes > reserved ? *bounds.limit_bytes - reserved : 0;
  account.outside_bytes = 0;
  account.other_processes_bytes = 0;
  account.total_bytes = reserved + account.free_bytes;
}

std::optional<ForeseenFailure> foresee(const TraceIndex& index,
                                       const ReplayChoices& choices,
                                       const Bounds& bounds) {
  const Program program = compiled(index, choices, bounds);
  ReplayOptions options = as_recorded(program, bounds.card_bytes);
  if (bounds.limit_bytes) options.limit_bytes = bounds.limit_bytes;
  options.stop_at_failure = true;
  const replay::ReplayResult result = replay::replay(program, options);
  if (result.fits || !result.first_failure) return std::nullopt;
  const replay::FailedAllocation& failed = *result.first_failure;
  ForeseenFailure out{.event = program.op_events[failed.op]};
  // Again, to look at the allocator there: where it stopped it cannot be looked at.
  options.stop_at_failure = false;
  options.observers = {{.at_op = failed.op, .look = [&](const memory::Allocator& allocator) {
                          out.account = allocator.account();
                        }}};
  static_cast<void>(replay::replay(program, options));
  out.account.device = {.kind = device::DeviceKind::kCuda, .index = index.device().device};
  out.account.asked_bytes = failed.size_bytes;
  out.account.segment_asked_bytes = memory::new_segment_size(
      memory::rounded_size(failed.size_bytes, options.config), options.config);
  out.account.asked_stream = failed.stream;
  out.account.is_expandable = options.config.expandable_segments;
  add_holders(out.account, index, static_cast<std::uint32_t>(out.event));
  end_at_limit(out.account, bounds);
  return out;
}

}  // namespace

DoctorOptions with_replay(DoctorOptions options, const ReplayChoices& choices) {
  const Bounds bounds{.card_bytes = options.card_bytes, .limit_bytes = options.limit_bytes};
  options.prove = [choices, bounds](const TraceIndex& index) {
    return prove(index, choices, bounds);
  };
  options.foresee = [choices, bounds](const TraceIndex& index) {
    return foresee(index, choices, bounds);
  };
  return options;
}

}  // namespace headroom::diagnose
