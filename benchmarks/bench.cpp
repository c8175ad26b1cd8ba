#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "headroom/device/registry.h"

#include "benchmarks/alloc/bench_alloc.h"
#include "benchmarks/bench_views.h"
#include "benchmarks/claims/claims.h"
#include "benchmarks/device/bench_device.h"
#include "benchmarks/ops/bench_ops.h"
#include "benchmarks/paged/bench_paged.h"
#include "benchmarks/paged/bench_paged_view.h"
#include "benchmarks/replay/bench_replay.h"
#include "benchmarks/trace/bench_trace.h"
#include "benchmarks/train/bench_train.h"
#include "cli/commands.h"
#include "cli/input/typed_values.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

struct BenchRequest {
  std::string what = "alloc";
  std::string device{};  // none: meta for alloc, for device a GPU or else the cpu
  std::optional<int> rounds{};
  std::string filter{};
  AllocBenchOptions alloc{};
  DeviceBenchOptions calls{};
  OpsBenchOptions ops{};
  TraceBenchOptions trace{};
  bench::PagedBenchOptions paged{};
  bool lists = false;
  std::vector<std::string> recordings{};
  std::string output{};  // of claims and paged; none is standard output
  bool force = false;

  // The options that only some measurements take, with the names of those.
  std::vector<std::pair<const CLI::Option*, std::vector<std::string_view>>> belongs{};

  // A seed's programs are the same each time, so `paged` needs one; what is timed needs more.
  [[nodiscard]] int rounds_or(int usual = 7) const { return rounds.value_or(usual); }
};

ExitCode run_claims(const BenchRequest& request, const Context& context) {
  if (!request.output.empty()) check_output_file(request.output, request.force);
  const std::vector<Claim> claims = measure_claims(context);
  const std::string text = context.is_json ? claims_json(claims) : claims_document(claims);
  if (request.output.empty()) {
    context.print(text);
    return ExitCode::kDone;
  }
  write_output_file(request.output, text, request.force);
  context.say(fmt::format("{} claims in {}", claims.size(), request.output));
  return ExitCode::kDone;
}

ExitCode run_alloc(const BenchRequest& request, const Context& context, const Progress& progress) {
  const Contenders contenders = find_contenders(request.device.empty() ? "meta" : request.device);
  AllocBenchOptions options = request.alloc;
  options.rounds = request.rounds_or();
  options.filter = request.filter;
  const AllocBench bench = bench_alloc(options, contenders, progress);
  if (bench.cases.empty()) {
    throw UsageError(fmt::format(
        "--filter: no case has '{}' in its name; there are hot (512B, 4KiB, 64KiB, 64MiB) and "
        "churn (small, large, mixed)",
        options.filter));
  }
  context.print(context.is_json ? alloc_bench_json(bench) : draw_alloc_bench(bench, context));
  return ExitCode::kDone;
}

ExitCode run_device(const BenchRequest& request, const Context& context, const Progress& progress) {
  std::string name = request.device;
  if (name.empty()) {
    name = device::registry().count(device::DeviceKind::kCuda) > 0 ? "cuda" : "cpu";
  }
  std::unique_ptr<device::Device> own;
  DeviceBenchOptions options = request.calls;
  options.rounds = request.rounds_or();
  const DeviceBench bench = bench_device(find_device(name, own), options, progress);
  context.print(context.is_json ? device_bench_json(bench) : draw_device_bench(bench, context));
  return ExitCode::kDone;
}

void check_is_cpu(const BenchRequest& request) {
  if (request.device.empty() || request.device == "cpu") return;
  throw UsageError(fmt::format("bench {} runs on cpu, not on {}", request.what, request.device));
}

ExitCode run_ops(const BenchRequest& request, const Context& context, const Progress& progress) {
  check_is_cpu(request);
  OpsBenchOptions options = request.ops;
  options.rounds = request.rounds_or();
  options.filter = request.filter;
  const OpsBench bench = bench_ops(options, progress);
  if (bench.is_empty()) {
    throw UsageError(fmt::format(
        "--filter: no op has '{}' in \"group: name\"; the groups are dispatch, matrices, "
        "convolutions, attention and elements",
        options.filter));
  }
  context.print(context.is_json ? ops_bench_json(bench) : draw_ops_bench(bench, context));
  return ExitCode::kDone;
}

ExitCode run_train(const BenchRequest& request, const Context& context, const Progress& progress) {
  check_is_cpu(request);
  const TrainBench bench = bench_train(request.rounds_or(), progress);
  context.print(context.is_json ? train_bench_json(bench) : draw_train_bench(bench, context));
  return ExitCode::kDone;
}

ExitCode run_trace(const BenchRequest& request, const Context& context, const Progress& progress) {
  TraceBenchOptions options = request.trace;
  options.rounds = request.rounds_or();
  if (request.recordings.size() > 1) throw UsageError("bench trace reads one recording");
  if (!request.recordings.empty()) options.file = request.recordings.front();
  const TraceBench bench = bench_trace(options, progress);
  context.print(context.is_json ? trace_bench_json(bench) : draw_trace_bench(bench, context));
  return ExitCode::kDone;
}

ExitCode run_replay(const BenchRequest& request, const Context& context) {
  const auto cases =
      bench_replay({.paths = request.recordings, .rounds = request.rounds_or()}, context);
  context.print(context.is_json ? bench_replay_json(cases) : draw(cases, context));
  return ExitCode::kDone;
}

ExitCode run_paged(const BenchRequest& request, const Context& context) {
  bench::PagedBenchOptions options = request.paged;
  options.filter = request.filter;
  options.rounds = request.rounds_or(1);
  const std::vector<bench::Generator> generators = bench::generators_like(options.filter);
  if (generators.empty()) {
    throw UsageError(fmt::format(
        "--filter: no traffic has '{}' in \"group: name\"; --list shows all", options.filter));
  }
  if (request.lists) {
    context.print(context.is_json ? bench::generators_json(generators)
                                  : bench::draw_generators(generators, context));
    return ExitCode::kDone;
  }
  if (!request.output.empty()) check_output_file(request.output, request.force);
  const std::size_t jobs = generators.size() * static_cast<std::size_t>(options.rounds);
  const bench::PagedBench bench = bench::bench_paged(options, [&](std::size_t done) {
    const std::string line = fmt::format("measuring traffic: {} of {}", done, jobs);
    // A log gets every tenth part.
    done * 10 / jobs > (done - 1) * 10 / jobs ? context.stage(line) : context.progress(line);
  });
  context.progress("");
  if (!request.output.empty()) {
    write_output_file(request.output, bench::paged_bench_page(bench), request.force);
    context.say(bench::promise_sentence(bench));
    context.say(fmt::format("wrote {}; open it in a browser", request.output));
    return ExitCode::kDone;
  }
  context.print(context.is_json ? bench::paged_bench_json(bench)
                                : bench::draw_paged_bench(bench, context));
  return ExitCode::kDone;
}

// An option that the measurement has no use for was meant for another.
void refuse_what_belongs_elsewhere(const BenchRequest& request) {
  for (const auto& [option, names] : request.belongs) {
    if (option->count() == 0 || std::ranges::find(names, request.what) != names.end()) continue;
    throw UsageError(fmt::format("bench {} takes no --{}; bench {} {}",
                                 request.what,
                                 option->get_lnames().front(),
                                 fmt::join(names, ", "),
                                 names.size() == 1 ? "does" : "do"));
  }
  if (request.lists && !request.output.empty()) {
    throw UsageError("--list measures nothing, so there is no page for -o; leave one of them out");
  }
}

ExitCode run(const BenchRequest& request, const Context& context) {
  refuse_what_belongs_elsewhere(request);
  const auto progress = [&](std::string_view line) { context.stage(line); };
  if (request.what == "replay") return run_replay(request, context);
  if (request.what == "trace") return run_trace(request, context, progress);
  if (!request.recordings.empty()) {
    throw UsageError(
        fmt::format("bench {} takes no recordings; did you mean bench replay?", request.what));
  }
  if (request.what == "claims") return run_claims(request, context);
  if (request.what == "paged") return run_paged(request, context);
  if (request.what == "device") return run_device(request, context, progress);
  if (request.what == "train") return run_train(request, context, progress);
  if (request.what == "ops") return run_ops(request, context, progress);
  return run_alloc(request, context, progress);
}

RunFunction add_bench(CLI::App& app) {
  auto request = std::make_shared<BenchRequest>();
  app.add_option(
         "WHAT",
         request->what,
         "what to measure: alloc (default), claims, device, ops, paged, replay, trace or train")
      ->type_name("WHAT")
      ->check(
          CLI::IsMember({"alloc", "claims", "device", "ops", "paged", "replay", "trace", "train"}));
  app.add_option("RECORDING",
                 request->recordings,
                 "replay, trace: recordings to measure with (default: the samples)")
      ->type_name("RECORDING");
  app.add_option("--device", request->device, "alloc, device: meta, cpu or cuda:N")
      ->type_name("DEVICE");
  app.add_option("--rounds",
                 request->rounds,
                 "rounds, of which the median counts; paged: seeds, from --seed on")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  app.add_option("--threads", request->alloc.threads, "alloc: numbers of threads, such as 1,16")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option(
         "--pairs", request->alloc.pairs, "alloc: the most allocate-free pairs per thread and turn")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--turn-ms",
                 request->alloc.turn_ms,
                 "alloc: the most milliseconds per turn; a round has three")
      ->type_name("MS")
      ->check(CLI::Range(1, 600'000));
  app.add_option("--load-ms",
                 request->calls.load_ms,
                 "device: milliseconds of work beside each call; 0 for none")
      ->type_name("MS")
      ->check(CLI::Range(0, 10'000));
  app.add_option_function<std::string>(
         "--size",
         [request](const std::string& text) {
           if (const auto bytes = typed_size(text, "--size", kLeastOpsBytes)) {
             request->ops.size_bytes = *bytes;
           }
         },
         "ops: bytes of an operand, well above the cache (default 64MiB)")
      ->type_name("SIZE");
  app.add_option(
         "--filter", request->filter, "alloc, ops, paged: only cases with TEXT in their name")
      ->type_name("TEXT");
  app.add_option("--seed", request->paged.seed, "paged: the first seed of the programs (default 1)")
      ->type_name("N");
  app.add_flag("--smallest-limit",
               request->paged.finds_smallest_limit,
               "paged: look for the smallest limit of each, which is slow");
  app.add_flag("--list", request->lists, "paged: say what each program does, and measure nothing");
  app.add_option("-o,--output", request->output, "claims, paged: the page to write")
      ->type_name("FILE");
  app.add_flag("-f,--force", request->force, "claims, paged: overwrite FILE if it exists");
  app.add_option("--file", request->trace.file, "trace: a PyTorch snapshot to read")
      ->type_name("FILE");
  request->belongs = {
      {app.get_option("--device"), {"alloc", "device", "ops", "train"}},
      {app.get_option("--rounds"), {"alloc", "device", "ops", "paged", "replay", "trace", "train"}},
      {app.get_option("--threads"), {"alloc"}},
      {app.get_option("--pairs"), {"alloc"}},
      {app.get_option("--turn-ms"), {"alloc"}},
      {app.get_option("--load-ms"), {"device"}},
      {app.get_option("--size"), {"ops"}},
      {app.get_option("--filter"), {"alloc", "ops", "paged"}},
      {app.get_option("--seed"), {"paged"}},
      {app.get_option("--smallest-limit"), {"paged"}},
      {app.get_option("--list"), {"paged"}},
      {app.get_option("--output"), {"claims", "paged"}},
      {app.get_option("--force"), {"claims", "paged"}},
      {app.get_option("--file"), {"trace"}}};
  return [request](const Context& context) { return run(*request, context); };
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .group = "Measure",
          .summary = "measure allocators, devices, ops, replay, recording and training",
          .examples =
              "bench alloc  our allocators beside malloc and mimalloc\n"
              "bench alloc --device cuda  beside cudaMalloc and PyTorch, on a GPU\n"
              "bench alloc --threads 1 --json  one thread, for programs\n"
              "bench alloc --filter hot --threads 1,16  only these cases\n"
              "bench claims  claims about GPU memory, measured, as docs/guide/claims.md\n"
              "bench device  the cost of each device call, idle and busy\n"
              "bench ops  tensor ops beside plain OpenBLAS and plain loops\n"
              "bench paged  programs made to break allocators, under four of them\n"
              "bench replay  the speed of replay, and each policy on the samples\n"
              "bench trace  the cost of recording, and reading beside Python's pickle\n"
              "bench train  training steps beside their matrix products alone",
          .add = add_bench};
}

}  // namespace headroom::cli
