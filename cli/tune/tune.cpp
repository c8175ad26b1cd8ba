#include "cli/tune/tune.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/analysis/index.h"
#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/base/suggest.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/settings.h"

#include "cli/commands.h"
#include "cli/input/trace_input.h"
#include "cli/input/typed_values.h"

namespace headroom::cli {
namespace {

using replay::Program;

struct TuneArguments {
  std::vector<std::string> paths{};
  std::string limit{};
  std::string card{};
  std::string version{};
  std::vector<std::string> without{};
};

void check_key(const std::string& key) {
  const auto keys = replay::tunable_keys();
  if (std::ranges::find(keys, key) != keys.end()) return;
  if (const auto meant = suggest(key, keys)) {
    throw UsageError(fmt::format(
        "--without: '{}' is not a key that tune changes; did you mean '{}'?", key, *meant));
  }
  throw UsageError(fmt::format(
      "--without: '{}' is not a key that tune changes; those are {}", key, fmt::join(keys, ", ")));
}

TuneRequest request_of(const TuneArguments& typed) {
  TuneRequest request{.paths = typed.paths};
  replay::TuneOptions& options = request.options;
  options.limit_bytes = typed_limit(typed.limit);
  if (const auto card = typed_card(typed.card)) options.card_bytes = card->size_bytes;
  options.version = typed_pytorch(typed.version);
  for (const std::string& key : typed.without) check_key(key);
  options.without = typed.without;
  return request;
}

std::string progress_line(const replay::TuneProgress& progress) {
  std::string line =
      fmt::format("replaying under other settings ... {} of {}", progress.tried, progress.planned);
  if (progress.best != nullptr && progress.best->fits) {
    line += fmt::format(", best {}", format_bytes(progress.best->peak_reserved));
  }
  return line;
}

std::string history_name(const std::string& path,
                         const trace::Trace& trace,
                         const trace::DeviceTrace& device,
                         bool is_alone) {
  const std::string name(file_name(path));
  return is_alone ? name : name + " " + device_name(trace, device);
}

MadeBy maker_of(const trace::Trace& trace) {
  if (trace::is_of_paged(trace)) return MadeBy::kPaged;
  return trace.origin == trace::Origin::kHeadroom ? MadeBy::kNative : MadeBy::kPyTorch;
}

ExitCode run(const TuneArguments& typed, const Context& context) {
  const TuneRequest request = request_of(typed);
  std::vector<trace::Trace> traces;
  for (const std::string& path : request.paths) {
    traces.push_back(read_input(path, context).trace);
  }
  const TuneReport report = search_settings(traces, request, context);
  context.print(context.is_json ? tune_json(report) : draw_tune(report, context));
  return report.result.best.fits ? ExitCode::kDone : ExitCode::kBadNews;
}

RunFunction add_tune(CLI::App& app) {
  auto typed = std::make_shared<TuneArguments>();
  app.add_option("RECORDING",
                 typed->paths,
                 "PyTorch snapshots or .hrt files, plain or .zst; of several, the setting that is "
                 "best for all")
      ->type_name("RECORDING")
      ->required()
      ->group(kOptionsGroup);
  add_limit_option(app,
                   typed->limit,
                   "the most that the allocator may reserve, such as 12GiB (default: as recorded)");
  add_card_option(app, typed->card);
  add_pytorch_option(
      app,
      typed->version,
      "the PyTorch release that will run the program, such as 2.11 (default: inferred)");
  app.add_option("--without",
                 typed->without,
                 "do not change this key, such as expandable_segments; may be repeated")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->group(kOptionsGroup);
  return [typed](const Context& context) { return run(*typed, context); };
}

}  // namespace

TuneReport search_settings(std::span<const trace::Trace> traces,
                           const TuneRequest& request,
                           const Context& context) {
  TuneReport report{.request = request, .is_version_known = true};
  std::vector<std::unique_ptr<const Program>> programs;
  std::vector<const Program*> pointers;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const auto devices = replay::replayable(traces[i]);
    for (const trace::DeviceTrace* device : devices) {
      const Program program = replay::compile_with_empty_caches(
          traces[i],
          *device,
          {.card_bytes = request.options.card_bytes, .limit_bytes = request.options.limit_bytes});
      // What the recorded settings had cached by then, another would have cached otherwise.
      programs.push_back(std::make_unique<const Program>(from_live_blocks(program)));
      pointers.push_back(programs.back().get());
      report.histories.push_back(
          {.name = history_name(request.paths[i], traces[i], *device, devices.size() == 1),
           .allocs = program.allocs,
           .peak_live = program.peak_live,
           .failures = program.failures,
           .start_reserved = program.start.reserved_bytes,
           .made_by = maker_of(traces[i]),
           .recorded_reserved = analysis::TraceIndex(traces[i], *device).peaks().reserved.bytes});
      report.is_version_known = report.is_version_known && program.is_version_known;
      report.version =
          pointers.size() == 1 ? program.version : std::min(report.version, program.version);
    }
  }
  if (pointers.empty()) {
    throw Error(fmt::format(
        "{}: it has no events to replay; was torch.cuda.memory._record_memory_history() called?",
        fmt::join(request.paths, ", ")));
  }
  replay::TuneOptions options = request.options;
  if (options.version) {
    report.version = *options.version;
    report.is_version_known = true;
  }
  options.progress = [&](const replay::TuneProgress& now) { context.progress(progress_line(now)); };
  report.result = replay::tune(pointers, options);
  context.progress("");
  return report;
}

Command tune_command() {
  return {
      .name = "tune",
      .group = "Look into a recording",
      .summary = "find the PYTORCH_ALLOC_CONF setting that takes the least memory",
      .examples =
          "tune snapshot.pickle  the best setting, and the line to export\n"
          "tune snapshot.pickle --limit 16GiB  a setting that fits in 16GiB\n"
          "tune snapshot.pickle --without expandable_segments  for a program that cannot use them\n"
          "tune train.pickle eval.pickle  one setting for two programs",
      .add = add_tune};
}

}  // namespace headroom::cli
