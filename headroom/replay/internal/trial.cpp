#include "headroom/replay/internal/trial.h"

#include <algorithm>
#include <cmath>

namespace headroom::replay::internal {

namespace {

// The live bytes where everything is served.
double live_of(const Program& program) {
  return static_cast<double>(std::max<std::uint64_t>(program.peak_live_if_served, 1));
}

double share_of_ops(const Program& program, std::size_t op) {
  return static_cast<double>(op) / static_cast<double>(program.ops.size());
}

double share_served(const Program& program, const ReplayResult& result) {
  return result.first_failure ? share_of_ops(program, result.first_failure->op) : 1;
}

// PyTorch asks whether a request keeps to the limit, and expandable segments may then map more than
// the request. That is no failure, but no answer either: the card may have less.
bool passes_limit(const ReplayOptions& options, const ReplayResult& result) {
  return result.peak_reserved > limit_of(options).value_or(UINT64_MAX);
}

// The worse of two placements counts.
void merge(ReplayResult& result, const ReplayResult& again) {
  result.peak_reserved_low = std::min(result.peak_reserved_low, again.peak_reserved);
  result.peak_reserved_high = std::max(result.peak_reserved_high, again.peak_reserved);
  if (!again.fits && (result.fits || again.first_failure->op < result.first_failure->op)) {
    result.first_failure = again.first_failure;
  }
  result.fits = result.fits && again.fits;
  result.retries = std::max(result.retries, again.retries);
}

}  // namespace

Trials::Trials(std::span<const Program* const> programs, const TuneOptions& options)
    : programs_(programs), options_(options), has_limit_(options.limit_bytes.has_value()) {
  for (const Program* program : programs) {
    const ReplayOptions recorded = as_recorded(*program, bounds());
    has_limit_ = has_limit_ || recorded.limit_bytes || recorded.config.memory_fraction < 1;
    op_count_ += program->ops.size();
  }
  for (const Program* program : programs) {
    halves_.push_back(has_limit_ ? nullptr : Halves::split(*program));
    floors_.push_back(halves_.back() ? nullptr : std::make_unique<LiveFloor>(*program));
  }
}

ReplayOptions Trials::options_for(const Program& program,
                                  const memory::AllocatorConfig& config) const {
  ReplayOptions options = with_settings(program, config, bounds());
  options.version = options_.version.value_or(program.version);
  options.stop_at_failure = true;
  return options;
}

ReplayResult Trials::run_once(std::size_t number, const ReplayOptions& options) const {
  Halves* const halves = halves_[number].get();
  return halves != nullptr ? halves->replay(options) : replay(*programs_[number], options);
}

double Trials::least_overhead(std::size_t number, const ReplayOptions& options) const {
  Halves* const halves = halves_[number].get();
  const std::uint64_t least = halves != nullptr ? halves->least_reserved(options)
                                                : floors_[number]->bytes_under(options.config);
  return static_cast<double>(least) / live_of(*programs_[number]);
}

bool Trials::run_program(std::size_t number,
                         ReplayOptions options,
                         const TrialBounds& bounds,
                         Trial& trial) const {
  const Program& program = *programs_[number];
  if (std::isfinite(bounds.most_overhead)) {
    options.stop_above_bytes =
        static_cast<std::uint64_t>(std::min(bounds.most_overhead * live_of(program), 0x1p62));
  }
  const auto served = [&](const ReplayResult& result) {
    const double share = share_served(program, result);
    if (bounds.may_pass_limit || !passes_limit(options, result)) return share;
    return std::min(share, share_of_ops(program, result.peak_op));
  };
  const auto is_stopped_by = [&](const ReplayResult& result) {
    const double share = served(result);
    return share == 1 ? !result.is_complete : share < bounds.least_served;
  };
  ReplayResult result = run_once(number, options);
  trial.ops += result.ops;
  bool is_stopped = is_stopped_by(result);
  if (!is_stopped && depends_on_addresses(options)) {
    options.order = device::AddressOrder::kAscending;
    const ReplayResult again = run_once(number, options);
    trial.ops += again.ops;
    is_stopped = is_stopped_by(again);
    merge(result, again);
  }
  Candidate& candidate = trial.candidate;
  candidate.fits = candidate.fits && served(result) == 1;
  candidate.peaks.push_back(result.peak_reserved);
  candidate.peak_reserved = std::max(candidate.peak_reserved, result.peak_reserved);
  candidate.peak_reserved_low = std::max(candidate.peak_reserved_low, result.peak_reserved_low);
  candidate.peak_reserved_high = std::max(candidate.peak_reserved_high, result.peak_reserved_high);
  candidate.driver_us += result.calls.driver_us;
  candidate.retries += result.retries;
  const auto count = static_cast<double>(programs_.size());
  candidate.overhead += static_cast<double>(result.peak_reserved_high) / live_of(program) / count;
  candidate.served = std::min(candidate.served, served(result));
  return !is_stopped;
}

Trial Trials::run_each(const ConfigOf& config, const TrialBounds& bounds) const {
  Trial trial;
  const auto count = static_cast<double>(programs_.size());
  // The bytes of all programs together: the least, or for those that were run the measured ones.
  double taken = 0;
  std::vector<double> least(programs_.size());
  if (std::isfinite(bounds.most_overhead)) {
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      least[i] = least_overhead(i, options_for(*programs_[i], config(*programs_[i])));
      taken += least[i];
    }
  }
  const double most = bounds.most_overhead * count;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    trial.was_stopped = trial.was_stopped || taken > most;
    if (trial.was_stopped) break;
    taken -= least[i];
    const double before = trial.candidate.overhead;
    trial.was_stopped = !run_program(i,
                                     options_for(*programs_[i], config(*programs_[i])),
                                     {.most_overhead = most - taken,
                                      .least_served = bounds.least_served,
                                      .may_pass_limit = bounds.may_pass_limit},
                                     trial);
    taken += (trial.candidate.overhead - before) * count;
  }
  return trial;
}

Trial Trials::run(const memory::AllocatorConfig& config, const TrialBounds& bounds) const {
  return run_each([&](const Program&) -> const memory::AllocatorConfig& { return config; }, bounds);
}

Trial Trials::run_as_recorded() const {
  return run_each(
      [](const Program& program) -> const memory::AllocatorConfig& { return program.config; },
      {.may_pass_limit = true});
}

}  // namespace headroom::replay::internal
