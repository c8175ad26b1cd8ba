#include "headroom/replay/compare.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/tune.h"
#include "headroom/trace/device_name.h"

namespace headroom::replay {
namespace {

constexpr std::array kUsualPolicies{
    "pytorch", "pytorch:default", "pytorch:expandable_segments:True", "cudaMallocAsync", "paged"};

void tell(const CompareOptions& options, std::string_view line) {
  if (options.progress) options.progress(line);
}

// The setting that tune() finds, where it is none that is there already.
std::optional<Policy> tuned_policy(const Program& program, const CompareOptions& options) {
  const TuneOptions search{.progress = [&](const TuneProgress& now) {
    tell(options, fmt::format("looking for the best setting: {} tried", now.tried));
  }};
  const std::array programs{&program};
  const TuneResult found = tune(programs, search);
  if (found.is_current_best()) return std::nullopt;
  return policy_of_conf(found.best.conf);
}

std::vector<Policy> policies_for(const Program& program, const CompareOptions& options) {
  std::vector<Policy> all = options.policies;
  if (all.empty()) {
    for (const char* name : kUsualPolicies) all.push_back(parse_policy(name).value());
  }
  if (!options.tunes) return all;
  const std::optional<Policy> tuned = tuned_policy(program, options);
  const bool is_new = tuned && std::ranges::find(all, tuned->choice, &Policy::choice) == all.end();
  if (is_new) all.insert(all.begin() + std::min<std::ptrdiff_t>(1, std::ssize(all)), *tuned);
  return all;
}

std::optional<double> quickest_op_ns(const Program& program, const Policy& policy, int rounds) {
  const std::optional<ReplayOptions> options = replay_options(program, policy);
  if (!options || program.ops.empty()) return std::nullopt;
  double seconds = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    seconds = std::min(seconds, replay(program, *options).seconds);
  }
  return seconds * 1e9 / static_cast<double>(program.ops.size());
}

ComparedPolicy run_one(const Program& program,
                       const Policy& policy,
                       const CompareOptions& options) {
  const PolicyResult entry =
      run_policy(program,
                 policy,
                 {.finds_smallest_limit = options.finds_smallest_limit, .checks_bound = true});
  const ReplayResult& result = entry.result;
  ComparedPolicy row{.policy = policy.name,
                     .is_model = entry.is_model,
                     .fits = result.fits,
                     .is_bound_exceeded = result.is_bound_exceeded(),
                     .peak_live = result.peak_live,
                     .peak_reserved = result.peak_reserved,
                     .calls = result.calls,
                     .driver_us_second_half = result.driver_us_second_half,
                     .op_ns = quickest_op_ns(program, policy, options.rounds)};
  if (entry.smallest) row.smallest_limit = entry.smallest->bytes;
  return row;
}

ComparedRecording compare_device(const trace::Trace& trace,
                                 const trace::DeviceTrace& device,
                                 std::string name,
                                 const CompareOptions& options) {
  tell(options, name + ": reading the events");
  const Program program = compile_with_empty_caches(trace, device);
  ComparedRecording out{.recording = std::move(name),
                        .events = program.events,
                        .ops = program.ops.size(),
                        .peak_live = program.peak_live,
                        .peak_live_if_served = program.peak_live_if_served,
                        .duration_us = program.duration_us(),
                        .duration_us_second_half = program.duration_us(program.ops.size() / 2)};
  for (const Policy& policy : policies_for(program, options)) {
    tell(options, fmt::format("{}: {}", out.recording, policy.name));
    out.rows.push_back(run_one(program, policy, options));
  }
  tell(options, "");
  return out;
}

std::optional<double> share_of(double part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return part / static_cast<double>(whole);
}

}  // namespace

std::vector<ComparedRecording> compare(const trace::Trace& trace,
                                       const std::string& name,
                                       const CompareOptions& options) {
  std::vector<ComparedRecording> out;
  const auto devices = replayable(trace);
  out.reserve(devices.size());
  for (const trace::DeviceTrace* device : devices) {
    out.push_back(compare_device(
        trace,
        *device,
        devices.size() == 1 ? name : name + ", " + trace::device_name(trace, *device),
        options));
  }
  return out;
}

std::optional<double> over_live(const ComparedPolicy& row) {
  return share_of(static_cast<double>(row.peak_reserved), row.peak_live);
}

std::optional<double> smallest_limit_over_live(const ComparedRecording& trace,
                                               const ComparedPolicy& row) {
  if (!row.smallest_limit) return std::nullopt;
  return share_of(static_cast<double>(*row.smallest_limit), trace.peak_live_if_served);
}

std::optional<double> driver_share(const ComparedRecording& trace, const ComparedPolicy& row) {
  if (row.is_model) return std::nullopt;
  return share_of(row.calls.driver_us, trace.duration_us);
}

std::optional<double> driver_share_second_half(const ComparedRecording& trace,
                                               const ComparedPolicy& row) {
  if (row.is_model) return std::nullopt;
  return share_of(row.driver_us_second_half, trace.duration_us_second_half);
}

}  // namespace headroom::replay
