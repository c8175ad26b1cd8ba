#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/bench_alloc.h"
#include "cli/bench_views.h"
#include "cli/commands.h"

namespace headroom::cli {
namespace {

struct BenchQuestion {
  std::string what = "alloc";
  AllocBenchOptions alloc{};
};

ExitCode run(const BenchQuestion& question, const Context& context) {
  const auto progress = [&](std::string_view line) { context.progress(line); };
  const Contenders contenders = find_contenders(question.alloc.device);
  const AllocBench bench = bench_alloc(question.alloc, contenders, progress);
  context.print(context.is_json ? alloc_bench_json(bench) : draw_alloc_bench(bench, context));
  return ExitCode::kDone;
}

RunFunction add(CLI::App& app) {
  auto question = std::make_shared<BenchQuestion>();
  app.add_option("what", question->what, "What to measure: alloc")->check(CLI::IsMember({"alloc"}));
  app.add_option("--device", question->alloc.device, "Where: meta (default), cpu or cuda:N")
      ->type_name("DEVICE");
  app.add_option("--threads", question->alloc.threads, "How many threads, one case each")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--rounds", question->alloc.rounds, "Rounds to take the median of")
      ->check(CLI::Range(1, 1000));
  app.add_option("--pairs", question->alloc.pairs, "Most pairs a thread and round")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--round-ms", question->alloc.round_ms, "What an allocator's round may take")
      ->check(CLI::Range(1, 600'000));
  return [question](const Context& context) { return run(*question, context); };
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .group = "Measure",
          .summary = "measure side by side, in one run",
          .examples =
              "bench alloc  our allocators beside malloc and mimalloc\n"
              "bench alloc --device cuda  beside cudaMalloc and PyTorch, on a GPU\n"
              "bench alloc --threads 1 --json  one thread, for a script",
          .add = add};
}

}  // namespace headroom::cli
