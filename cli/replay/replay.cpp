#include "cli/replay/replay.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/cards.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/tune.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/settings.h"

#include "cli/commands.h"
#include "cli/input/trace_input.h"
#include "cli/input/typed_values.h"
#include "cli/output/output_file.h"
#include "cli/replay/decisions.h"

namespace headroom::cli {
namespace {

using replay::Policy;
using replay::PolicyKind;
using replay::Program;

constexpr std::size_t kTimelineSamples = 240;

// The setting that tune() finds, where it is worth having.
std::optional<std::string> best_setting(const Program& program,
                                        const ReplayRequest& request,
                                        const Context& context) {
  const replay::TuneOptions options{
      .limit_bytes = request.limit_bytes,
      .card_bytes = request.card_bytes,
      .version = request.version,
      .progress = [&](const replay::TuneProgress& now) {
        context.progress(fmt::format("looking for the best setting: {} tried", now.tried));
      }};
  const std::array programs{&program};
  const replay::TuneResult found = replay::tune(programs, options);
  if (found.is_current_best()) return std::nullopt;
  return found.best.conf;
}

// As recorded, the best setting there is, our own allocator, and what people compare first.
std::vector<Policy> usual_policies(const Program& program,
                                   const ReplayRequest& request,
                                   const Context& context) {
  std::vector<Policy> all{Policy{}};
  const std::optional<std::string> best = best_setting(program, request, context);
  if (best) all.push_back(replay::policy_of_conf(*best));
  all.push_back({.kind = PolicyKind::kPaged, .name = "paged"});
  const memory::AllocatorConfig factory{};
  const bool is_factory = memory::to_string(program.config) == memory::to_string(factory);
  const std::string expandable = "expandable_segments:True";
  if (!is_factory && best != "") all.push_back(replay::policy_of_conf(""));
  if (!program.config.expandable_segments && best != expandable) {
    all.push_back(replay::policy_of_conf(expandable));
  }
  all.push_back({.kind = PolicyKind::kAsyncPool, .name = "cudaMallocAsync"});
  return all;
}

DeviceReplay replay_device(const trace::Trace& trace,
                           const trace::DeviceTrace& device,
                           const ReplayRequest& request,
                           DecisionLog* log,
                           const Context& context) {
  DeviceReplay out{
      .name = trace::device_name(trace, device), .device = device.device, .rank = device.rank};
  context.progress(out.name + ": reading the events");
  out.program = replay::compile_with_empty_caches(trace,
                                                  device,
                                                  {.version = request.version,
                                                   .card_bytes = request.card_bytes,
                                                   .limit_bytes = request.limit_bytes});
  // Under other bounds than the recorded ones, what was cached before the recording starts would
  // have been something else.
  const Program recorded = out.program;
  const replay::Bounds asked{.card_bytes = request.card_bytes, .limit_bytes = request.limit_bytes};
  if (!runs_as_recorded(recorded, asked)) out.program = from_live_blocks(std::move(out.program));
  const std::vector<Policy> policies =
      request.policies.empty() ? usual_policies(out.program, request, context) : request.policies;
  // What the recorded settings had cached when the recording begins, others would have cached
  // otherwise: all but the recording itself start with the blocks that were live then.
  const Program fair = from_live_blocks(recorded);
  for (const Policy& policy : policies) {
    context.progress(fmt::format("{}: {}", out.name, policy.name));
    const bool is_recorded = policy.kind == PolicyKind::kAsRecorded;
    out.results.push_back(replay::run_policy(is_recorded ? out.program : fair,
                                             policy,
                                             {.version = request.version,
                                              .card_bytes = request.card_bytes,
                                              .limit_bytes = request.limit_bytes,
                                              .verifies = request.verifies,
                                              .recorded = &recorded,
                                              .finds_smallest_limit = request.finds_smallest_limit,
                                              .checks_bound = true,
                                              .timeline_samples = kTimelineSamples,
                                              .sink = log}));
  }
  context.progress("");
  return out;
}

void check(const ReplayRequest& request, std::size_t devices) {
  if (!request.decisions_path.empty()) {
    if (request.policies.size() != 1) {
      throw UsageError("-o writes the decisions of one policy; name it with --policy, once");
    }
    if (request.policies[0].kind == PolicyKind::kAsyncPool) {
      throw UsageError(
          "-o: cudaMallocAsync is modelled and has no decisions; name paged or a pytorch policy");
    }
    if (devices > 1) {
      throw UsageError("-o writes the decisions on one device, and this recording has " +
                       std::to_string(devices));
    }
  }
  if (!request.verifies || request.policies.empty()) return;
  const bool compares = std::ranges::any_of(
      request.policies, [](const Policy& p) { return p.kind == PolicyKind::kAsRecorded; });
  if (!compares) {
    throw UsageError("--verify compares with the recorded decisions; add --policy pytorch");
  }
}

bool is_bad_news(const replay::PolicyResult& result) {
  if (result.result.is_bound_exceeded()) return true;
  if (result.verification) return !result.verification->is_exact();
  return !result.result.fits;
}

}  // namespace

ReplayReport replay_all(const trace::Trace& trace,
                        const ReplayRequest& request,
                        const Context& context) {
  const auto devices = replay::replayable(trace);
  if (devices.empty()) {
    throw Error(request.path +
                ": it has no events to replay; record them with "
                "torch.cuda.memory._record_memory_history() before the run");
  }
  check(request, devices.size());
  if (request.verifies && trace::is_of_paged(trace)) {
    throw UsageError(
        "--verify needs a recording of PyTorch, and this one was made by the paged allocator; "
        "leave "
        "--verify out to replay it");
  }
  ReplayReport report{.path = request.path, .request = request};
  DecisionLog log;
  DecisionLog* const used = request.decisions_path.empty() ? nullptr : &log;
  for (const trace::DeviceTrace* device : devices) {
    report.devices.push_back(replay_device(trace, *device, request, used, context));
  }
  if (used != nullptr) log.write(request.decisions_path, request.force);
  return report;
}

ExitCode verdict(const ReplayReport& report) {
  for (const DeviceReplay& device : report.devices) {
    if (std::ranges::any_of(device.results, is_bad_news)) return ExitCode::kBadNews;
  }
  return ExitCode::kDone;
}

namespace {

struct ReplayArguments {
  std::string path;
  std::vector<std::string> policies;
  std::string version;
  std::string card;
  std::string limit;
  bool verifies = false;
  bool finds_smallest_limit = false;
  std::string decisions_path;
  bool force = false;
};

ReplayRequest read(const ReplayArguments& typed) {
  ReplayRequest request{.path = typed.path,
                        .limit_bytes = typed_limit(typed.limit),
                        .verifies = typed.verifies,
                        .finds_smallest_limit = typed.finds_smallest_limit,
                        .decisions_path = typed.decisions_path,
                        .force = typed.force};
  for (const std::string& text : typed.policies) {
    auto policy = replay::parse_policy(text);
    if (!policy) throw UsageError("--policy: " + policy.error());
    request.policies.push_back(*std::move(policy));
  }
  request.version = typed_pytorch(typed.version);
  if (const auto card = typed_card(typed.card)) request.card_bytes = card->size_bytes;
  return request;
}

ExitCode run(const ReplayArguments& typed, const Context& context) {
  const ReplayRequest request = read(typed);
  if (!request.decisions_path.empty()) check_output_file(request.decisions_path, request.force);
  const trace::TraceFile file = read_input(request.path, context);
  try {
    const ReplayReport report = replay_all(file.trace, request, context);
    context.print(context.is_json ? replay_json(report) : draw(report, context));
    return verdict(report);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

RunFunction add_replay(CLI::App& app) {
  auto typed = std::make_shared<ReplayArguments>();
  app.add_option("RECORDING", typed->path, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("RECORDING")
      ->required()
      ->group(kOptionsGroup);
  app.add_option(
         "--policy",
         typed->policies,
         "the allocator: pytorch (as recorded), pytorch:default, pytorch:CONF with CONF as in "
         "PYTORCH_ALLOC_CONF, paged (headroom's own) or cudaMallocAsync (modelled); may be "
         "repeated (default: the usual ones)")
      ->type_name("P")
      ->allow_extra_args(false)
      ->group(kOptionsGroup);
  add_limit_option(app,
                   typed->limit,
                   "the most that the allocator may reserve, such as 12GiB (default: as recorded)");
  add_card_option(app, typed->card);
  add_pytorch_option(app,
                     typed->version,
                     "follow the rules of this PyTorch release, such as 2.11 (default: inferred)");
  app.add_flag("--verify",
               typed->verifies,
               "compare every address with the recorded one; needs --policy pytorch")
      ->group(kOptionsGroup);
  app.add_flag("--smallest-limit",
               typed->finds_smallest_limit,
               "find the smallest limit without an out-of-memory error")
      ->group(kOptionsGroup);
  app.add_option("-o,--output",
                 typed->decisions_path,
                 "write every decision of the allocator as CSV; needs one --policy")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", typed->force, "overwrite FILE if it exists")->group(kOptionsGroup);
  return [typed](const Context& context) { return run(*typed, context); };
}

}  // namespace

Command replay_command() {
  return {
      .name = "replay",
      .group = "Look into a recording",
      .summary = "run a recording again under other settings, without a GPU",
      .examples =
          "replay run.pickle  as recorded, beside the usual policies\n"
          "replay run.pickle --verify --policy pytorch  is every address the same as in PyTorch?\n"
          "replay run.pickle --policy paged --smallest-limit  how little would paged need?\n"
          "replay run.pickle --policy pytorch:roundup_power2_divisions:4 --limit 16GiB  "
          "would it fit?\n"
          "replay run.pickle --smallest-limit --json  the same for programs",
      .add = add_replay};
}

}  // namespace headroom::cli
