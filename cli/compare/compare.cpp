#include "cli/compare/compare.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/tune.h"
#include "headroom/trace/device_name.h"

#include "cli/commands.h"
#include "cli/input/samples.h"
#include "cli/input/trace_input.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

using replay::Policy;
using replay::Program;

constexpr std::array kUsualPolicies{
    "pytorch", "pytorch:default", "pytorch:expandable_segments:True", "cudaMallocAsync", "paged"};

std::vector<std::string> sample_paths() {
  std::vector<std::string> paths;
  for (const char* name : {"gpt2_varlen.pickle.zst", "leak_loss.pickle.zst"}) {
    if (auto path = find_sample(name)) paths.push_back(*std::move(path));
  }
  if (paths.empty()) {
    throw UsageError("compare: the samples were not found; name a recording: compare RECORDING...");
  }
  return paths;
}

// The setting that tune() finds, where it is none that is there already.
std::optional<Policy> tuned_policy(const Program& program, const Context& context) {
  const replay::TuneOptions options{.progress = [&](const replay::TuneProgress& now) {
    context.progress(fmt::format("looking for the best setting: {} tried", now.tried));
  }};
  const std::array programs{&program};
  const replay::TuneResult found = replay::tune(programs, options);
  if (found.is_current_best()) return std::nullopt;
  return replay::policy_of_conf(found.best.conf);
}

std::vector<Policy> policies_for(const Program& program,
                                 const CompareQuestion& question,
                                 const Context& context) {
  std::vector<Policy> all = question.policies;
  if (all.empty()) {
    for (const char* name : kUsualPolicies) all.push_back(replay::parse_policy(name).value());
  }
  if (!question.tunes) return all;
  const std::optional<Policy> tuned = tuned_policy(program, context);
  const bool is_new = tuned && std::ranges::find(all, tuned->choice, &Policy::choice) == all.end();
  if (is_new) all.insert(all.begin() + std::min<std::ptrdiff_t>(1, std::ssize(all)), *tuned);
  return all;
}

std::optional<double> quickest_op_ns(const Program& program, const Policy& policy, int rounds) {
  const std::optional<replay::ReplayOptions> options = replay::replay_options(program, policy);
  if (!options || program.ops.empty()) return std::nullopt;
  double seconds = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    seconds = std::min(seconds, replay::replay(program, *options).seconds);
  }
  return seconds * 1e9 / static_cast<double>(program.ops.size());
}

ComparedPolicy run_one(const Program& program,
                       const Policy& policy,
                       const CompareQuestion& question) {
  const replay::PolicyResult entry = replay::run_policy(
      program,
      policy,
      {.finds_smallest_limit = question.finds_smallest_limit, .checks_bound = true});
  const replay::ReplayResult& result = entry.result;
  ComparedPolicy row{.policy = policy.name,
                     .is_model = entry.is_model,
                     .fits = result.fits,
                     .is_bound_exceeded = result.is_bound_exceeded(),
                     .peak_live = result.peak_live,
                     .peak_reserved = result.peak_reserved,
                     .calls = result.calls,
                     .driver_us_second_half = result.driver_us_second_half,
                     .op_ns = quickest_op_ns(program, policy, question.rounds)};
  if (entry.smallest) row.smallest_limit = entry.smallest->bytes;
  return row;
}

ComparedTrace compare_device(const trace::Trace& trace,
                             const trace::DeviceTrace& device,
                             std::string name,
                             const CompareQuestion& question,
                             const Context& context) {
  context.progress(name + ": reading the events");
  const Program program = replay::compile_with_empty_caches(trace, device);
  ComparedTrace out{.recording = std::move(name),
                    .events = program.events,
                    .ops = program.ops.size(),
                    .peak_live = program.peak_live,
                    .peak_live_if_served = program.peak_live_if_served,
                    .duration_us = program.duration_us(),
                    .duration_us_second_half = program.duration_us(program.ops.size() / 2)};
  for (const Policy& policy : policies_for(program, question, context)) {
    context.progress(fmt::format("{}: {}", out.recording, policy.name));
    out.rows.push_back(run_one(program, policy, question));
  }
  context.progress("");
  return out;
}

void compare_file(const std::string& path, Comparison& out, const Context& context) {
  const trace::TraceFile file = read_input(path, context);
  const auto devices = replay::replayable(file.trace);
  if (devices.empty()) throw Error(path + ": it has no events to replay");
  const std::string stem =
      without_endings(std::string_view(path).substr(path.find_last_of('/') + 1));
  for (const trace::DeviceTrace* device : devices) {
    const std::string name =
        devices.size() == 1 ? stem : stem + ", " + trace::device_name(file.trace, *device);
    out.traces.push_back(compare_device(file.trace, *device, name, out.question, context));
  }
}

std::optional<double> share_of(double part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return part / static_cast<double>(whole);
}

}  // namespace

Comparison compare(const CompareQuestion& question, const Context& context) {
  Comparison out{.question = question};
  for (const std::string& path : question.paths.empty() ? sample_paths() : question.paths) {
    compare_file(path, out, context);
  }
  return out;
}

ExitCode verdict(const Comparison& comparison) {
  const bool is_bad = std::ranges::any_of(comparison.traces, [](const ComparedTrace& trace) {
    return std::ranges::any_of(trace.rows, &ComparedPolicy::is_bound_exceeded);
  });
  return is_bad ? ExitCode::kBadNews : ExitCode::kDone;
}

std::optional<double> over_live(const ComparedPolicy& row) {
  return share_of(static_cast<double>(row.peak_reserved), row.peak_live);
}

std::optional<double> smallest_limit_over_live(const ComparedTrace& trace,
                                               const ComparedPolicy& row) {
  if (!row.smallest_limit) return std::nullopt;
  return share_of(static_cast<double>(*row.smallest_limit), trace.peak_live_if_served);
}

std::optional<double> driver_share(const ComparedTrace& trace, const ComparedPolicy& row) {
  if (row.is_model) return std::nullopt;
  return share_of(row.calls.driver_us, trace.duration_us);
}

std::optional<double> driver_share_second_half(const ComparedTrace& trace,
                                               const ComparedPolicy& row) {
  if (row.is_model) return std::nullopt;
  return share_of(row.driver_us_second_half, trace.duration_us_second_half);
}

namespace {

struct CompareWords {
  CompareQuestion question{};
  std::vector<std::string> policies{};
  std::string output{};
  bool force = false;
};

ExitCode run_compare(const CompareWords& words, const Context& context) {
  CompareQuestion question = words.question;
  for (const std::string& text : words.policies) {
    auto policy = replay::parse_policy(text);
    if (!policy) throw UsageError("--policy: " + policy.error());
    question.policies.push_back(*std::move(policy));
  }
  if (!words.output.empty()) check_output_file(words.output, words.force);
  Comparison found;
  try {
    found = compare(question, context);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
  if (words.output.empty()) {
    context.print(context.is_json ? comparison_json(found) : draw_comparison(found, context));
    return verdict(found);
  }
  write_output_file(
      words.output, context.is_json ? comparison_json(found) : comparison_page(found), words.force);
  context.say(fmt::format("{} in {}",
                          found.traces.size() == 1
                              ? std::string("one recording")
                              : fmt::format("{} recordings", found.traces.size()),
                          words.output));
  return verdict(found);
}

RunFunction add_compare(CLI::App& app) {
  constexpr const char* kGroup = "Options";
  auto words = std::make_shared<CompareWords>();
  app.add_option("RECORDING",
                 words->question.paths,
                 "PyTorch snapshots or .hrt files (default: the samples)")
      ->type_name("RECORDING")
      ->group(kGroup);
  app.add_option("--policy",
                 words->policies,
                 "a policy as in replay; may be repeated (default: pytorch, pytorch:default, "
                 "pytorch:expandable_segments:True, cudaMallocAsync and paged)")
      ->type_name("P")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_flag(
         "--tune", words->question.tunes, "add the best setting that tune finds for each recording")
      ->group(kGroup);
  app.add_flag("--smallest-limit",
               words->question.finds_smallest_limit,
               "find the smallest limit of each without an out-of-memory error")
      ->group(kGroup);
  app.add_option("--rounds",
                 words->question.rounds,
                 "replays per policy, of which the quickest is timed (default 3)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->group(kGroup);
  app.add_option("-o,--output", words->output, "write a page of Markdown instead")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_flag("-f,--force", words->force, "overwrite FILE if it exists")->group(kGroup);
  return [words](const Context& context) { return run_compare(*words, context); };
}

}  // namespace

Command compare_command() {
  return {.name = "compare",
          .group = "Look into a recording",
          .summary = "replay recordings under several policies: memory, driver time, speed",
          .examples =
              "compare  the samples under five policies\n"
              "compare run.pickle --smallest-limit  add the smallest limit of each\n"
              "compare run.pickle --policy pytorch --policy paged --json  two policies, for "
              "programs\n"
              "compare -o docs/guide/comparison.md --force  make the page of the guide",
          .add = add_compare};
}

}  // namespace headroom::cli
