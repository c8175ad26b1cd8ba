#include "cli/compare/compare.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/file_name.h"

#include "cli/commands.h"
#include "cli/input/samples.h"
#include "cli/input/trace_input.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

void compare_file(const std::string& path,
                  const replay::CompareOptions& options,
                  const Context& context,
                  std::vector<ComparedRecording>& out) {
  const trace::TraceFile file = read_input(path, context);
  const std::string stem = without_endings(file_name(path));
  std::vector<ComparedRecording> devices = compare(file.trace, stem, options);
  if (devices.empty()) throw Error(path + ": it has no events to replay");
  std::ranges::move(devices, std::back_inserter(out));
}

}  // namespace

Comparison compare(const CompareRequest& request, const Context& context) {
  Comparison out{.request = request};
  replay::CompareOptions options = request.options;
  options.progress = [&](std::string_view line) { context.progress(line); };
  for (const std::string& path : request.paths.empty() ? all_samples("compare") : request.paths) {
    compare_file(path, options, context, out.recordings);
  }
  return out;
}

ExitCode verdict(const Comparison& comparison) {
  const bool is_bad =
      std::ranges::any_of(comparison.recordings, [](const ComparedRecording& recording) {
        return std::ranges::any_of(recording.rows, &ComparedPolicy::is_bound_exceeded);
      });
  return is_bad ? ExitCode::kBadNews : ExitCode::kDone;
}

namespace {

struct CompareArguments {
  CompareRequest request{};
  std::vector<std::string> policies{};
  std::string output{};
  bool force = false;
};

// The command line that was typed, in the order of the help.
std::string as_typed(const CompareArguments& typed) {
  const replay::CompareOptions& options = typed.request.options;
  std::string out = "headroom compare";
  for (const std::string& path : typed.request.paths) out += " " + shell_word(path);
  for (const std::string& policy : typed.policies) out += " --policy " + shell_word(policy);
  if (options.tunes) out += " --tune";
  if (options.finds_smallest_limit) out += " --smallest-limit";
  if (options.rounds != replay::CompareOptions{}.rounds) {
    out += fmt::format(" --rounds {}", options.rounds);
  }
  if (!typed.output.empty()) out += " -o " + shell_word(typed.output);
  if (typed.force) out += " --force";
  return out;
}

ExitCode run_compare(const CompareArguments& typed, const Context& context) {
  CompareRequest request = typed.request;
  request.as_typed = as_typed(typed);
  for (const std::string& text : typed.policies) {
    auto policy = replay::parse_policy(text);
    if (!policy) throw UsageError("--policy: " + policy.error());
    request.options.policies.push_back(*std::move(policy));
  }
  if (!typed.output.empty()) check_output_file(typed.output, typed.force);
  Comparison found;
  try {
    found = compare(request, context);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
  if (typed.output.empty()) {
    context.print(context.is_json ? comparison_json(found) : draw_comparison(found, context));
    return verdict(found);
  }
  write_output_file(
      typed.output, context.is_json ? comparison_json(found) : comparison_page(found), typed.force);
  context.say(fmt::format("{} in {}",
                          found.recordings.size() == 1
                              ? std::string("one recording")
                              : fmt::format("{} recordings", found.recordings.size()),
                          typed.output));
  return verdict(found);
}

RunFunction add_compare(CLI::App& app) {
  auto typed = std::make_shared<CompareArguments>();
  app.add_option("RECORDING",
                 typed->request.paths,
                 "PyTorch snapshots or .hrt files (default: the samples)")
      ->type_name("RECORDING")
      ->group(kOptionsGroup);
  app.add_option("--policy",
                 typed->policies,
                 "a policy as in replay; may be repeated (default: pytorch, pytorch:default, "
                 "pytorch:expandable_segments:True, cudaMallocAsync and paged)")
      ->type_name("P")
      ->allow_extra_args(false)
      ->group(kOptionsGroup);
  app.add_flag("--tune",
               typed->request.options.tunes,
               "add the best setting that tune finds for each recording")
      ->group(kOptionsGroup);
  app.add_flag("--smallest-limit",
               typed->request.options.finds_smallest_limit,
               "find the smallest limit of each without an out-of-memory error")
      ->group(kOptionsGroup);
  app.add_option("--rounds",
                 typed->request.options.rounds,
                 "replays per policy, of which the quickest is timed (default 3)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->group(kOptionsGroup);
  app.add_option("-o,--output", typed->output, "write a page of Markdown instead")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", typed->force, "overwrite FILE if it exists")->group(kOptionsGroup);
  return [typed](const Context& context) { return run_compare(*typed, context); };
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
              "compare run.pickle -o comparison.md  the same as a page of Markdown",
          .add = add_compare};
}

}  // namespace headroom::cli
