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
                                        const ReplayQuestion& question,
                                        const Context& context) {
  const replay::TuneOptions options{
      .limit_bytes = question.limit_bytes,
      .card_bytes = question.card_bytes,
      .version = question.version,
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
                                   const ReplayQuestion& question,
                                   const Context& context) {
  std::vector<Policy> all{Policy{}};
  const std::optional<std::string> best = best_setting(program, question, context);
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
                           const ReplayQuestion& question,
                           DecisionLog* log,
                           const Context& context) {
  DeviceReplay out{
      .name = trace::device_name(trace, device), .device = device.device, .rank = device.rank};
  context.progress(out.name + ": reading the events");
  out.program = replay::compile_with_empty_caches(
      trace,
      device,
      {.version = question.version,
       .card_bytes = question.card_bytes,
       .limit_bytes = question.verifies ? question.limit_bytes : std::nullopt});
  const std::vector<Policy> policies = question.policies.empty()
                                           ? usual_policies(out.program, question, context)
                                           : question.policies;
  for (const Policy& policy : policies) {
    context.progress(fmt::format("{}: {}", out.name, policy.name));
    out.results.push_back(replay::run_policy(out.program,
                                             policy,
                                             {.version = question.version,
                                              .card_bytes = question.card_bytes,
                                              .limit_bytes = question.limit_bytes,
                                              .verifies = question.verifies,
                                              .finds_smallest_limit = question.finds_smallest_limit,
                                              .checks_bound = true,
                                              .timeline_samples = kTimelineSamples,
                                              .sink = log}));
  }
  context.progress("");
  return out;
}

void check(const ReplayQuestion& question, std::size_t devices) {
  if (!question.decisions_path.empty()) {
    if (question.policies.size() != 1) {
      throw UsageError("-o writes the decisions of one policy; name it with --policy, once");
    }
    if (question.policies[0].kind == PolicyKind::kAsyncPool) {
      throw UsageError(
          "-o: cudaMallocAsync is modelled and has no decisions; name paged or a pytorch policy");
    }
    if (devices > 1) {
      throw UsageError("-o writes the decisions on one device, and this recording has " +
                       std::to_string(devices));
    }
  }
  if (!question.verifies || question.policies.empty()) return;
  const bool compares = std::ranges::any_of(
      question.policies, [](const Policy& p) { return p.kind == PolicyKind::kAsRecorded; });
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
                        const ReplayQuestion& question,
                        const Context& context) {
  const auto devices = replay::replayable(trace);
  if (devices.empty()) {
    throw Error(question.path +
                ": it has no events to replay; record them with "
                "torch.cuda.memory._record_memory_history() before the run");
  }
  check(question, devices.size());
  if (question.verifies && trace::is_of_paged(trace)) {
    throw UsageError(
        "--verify needs a recording of PyTorch, and this one was made by the paged allocator; "
        "leave "
        "--verify out to replay it");
  }
  ReplayReport report{.path = question.path, .question = question};
  DecisionLog log;
  DecisionLog* const used = question.decisions_path.empty() ? nullptr : &log;
  for (const trace::DeviceTrace* device : devices) {
    report.devices.push_back(replay_device(trace, *device, question, used, context));
  }
  if (used != nullptr) log.write(question.decisions_path, question.force);
  return report;
}

ExitCode verdict(const ReplayReport& report) {
  for (const DeviceReplay& device : report.devices) {
    if (std::ranges::any_of(device.results, is_bad_news)) return ExitCode::kBadNews;
  }
  return ExitCode::kDone;
}

namespace {

struct ReplayWords {
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

ReplayQuestion read(const ReplayWords& words) {
  ReplayQuestion question{.path = words.path,
                          .limit_bytes = typed_limit(words.limit),
                          .verifies = words.verifies,
                          .finds_smallest_limit = words.finds_smallest_limit,
                          .decisions_path = words.decisions_path,
                          .force = words.force};
  for (const std::string& text : words.policies) {
    auto policy = replay::parse_policy(text);
    if (!policy) throw UsageError("--policy: " + policy.error());
    question.policies.push_back(*std::move(policy));
  }
  question.version = typed_pytorch(words.version);
  if (const auto card = typed_card(words.card)) question.card_bytes = card->size_bytes;
  return question;
}

ExitCode run(const ReplayWords& words, const Context& context) {
  const ReplayQuestion question = read(words);
  if (!question.decisions_path.empty()) check_output_file(question.decisions_path, question.force);
  const trace::TraceFile file = read_input(question.path, context);
  try {
    const ReplayReport report = replay_all(file.trace, question, context);
    context.print(context.is_json ? replay_json(report) : draw(report, context));
    return verdict(report);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

RunFunction add_replay(CLI::App& app) {
  auto words = std::make_shared<ReplayWords>();
  app.add_option("RECORDING", words->path, "a PyTorch snapshot or a .hrt file, plain or .zst")
      ->type_name("RECORDING")
      ->required()
      ->group("Options");
  app.add_option(
         "--policy",
         words->policies,
         "the allocator: pytorch (as recorded), pytorch:default, pytorch:CONF with CONF as in "
         "PYTORCH_ALLOC_CONF, paged (headroom's own) or cudaMallocAsync (modelled); may be "
         "repeated (default: the usual ones)")
      ->type_name("P")
      ->allow_extra_args(false)
      ->group("Options");
  app.add_option("--limit",
                 words->limit,
                 "the most that the allocator may reserve, such as 12GiB (default: as recorded)")
      ->type_name("SIZE")
      ->group("Options");
  app.add_option("--card",
                 words->card,
                 "the card: a name such as h100 or rtx4090, or a size such as 24GiB; --card list "
                 "names them")
      ->type_name("CARD")
      ->group("Options");
  app.add_option("--pytorch",
                 words->version,
                 "follow the rules of this PyTorch release, such as 2.11 (default: inferred)")
      ->type_name("VERSION")
      ->group("Options");
  app.add_flag("--verify",
               words->verifies,
               "compare every address with the recorded one; needs --policy pytorch")
      ->group("Options");
  app.add_flag("--smallest-limit",
               words->finds_smallest_limit,
               "find the smallest limit without an out-of-memory error")
      ->group("Options");
  app.add_option("-o,--output",
                 words->decisions_path,
                 "write every decision of the allocator as CSV; needs one --policy")
      ->type_name("FILE")
      ->group("Options");
  app.add_flag("-f,--force", words->force, "overwrite FILE if it exists")->group("Options");
  return [words](const Context& context) { return run(*words, context); };
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
