#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/report/table.h"

#include "cli/bench_alloc.h"
#include "cli/bench_replay.h"
#include "cli/commands.h"

namespace headroom::cli {
namespace {

struct BenchQuestion {
  std::string what = "alloc";
  AllocBenchOptions alloc{};
  std::vector<std::string> recordings{};
};

nlohmann::json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

std::string bench_json(const AllocBench& bench) {
  nlohmann::json cases = nlohmann::json::array();
  for (const AllocCase& entry : bench.cases) {
    nlohmann::json results = nlohmann::json::array();
    for (const AllocResult& result : entry.results) {
      results.push_back({{"allocator", result.allocator},
                         {"pair_ns", to_json(result.pair_ns)},
                         {"ratio", to_json(result.to_baseline)}});
    }
    cases.push_back({{"case", entry.name}, {"threads", entry.threads}, {"results", results}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "alloc"},
                           {"baseline", bench.baseline},
                           {"notes", bench.notes},
                           {"cases", cases}};
  return out.dump(2) + "\n";
}

std::string draw(const AllocBench& bench, const Context& context) {
  std::string text = fmt::format(
      "Nanoseconds for a pair of allocate and free: median (lowest to highest) of the rounds,\n"
      "threads together. Ratios are over {}, round by round.\n",
      bench.baseline);
  for (const AllocCase& entry : bench.cases) {
    report::Table table(
        {{.title = fmt::format(
              "{}, {} thread{}", entry.name, entry.threads, entry.threads == 1 ? "" : "s")},
         {.title = "ns a pair", .align = report::Align::kRight},
         {.title = "spread", .align = report::Align::kRight},
         {.title = "ratio", .align = report::Align::kRight}});
    for (const AllocResult& result : entry.results) {
      table.add_row({result.allocator,
                     fmt::format("{:.0f}", result.pair_ns.median),
                     fmt::format("{:.0f} to {:.0f}", result.pair_ns.low, result.pair_ns.high),
                     fmt::format("{:.2f}", result.to_baseline.median)});
    }
    text += "\n" + table.render(context.out);
  }
  for (const std::string& note : bench.notes) text += "\n" + note + "\n";
  return text + "\n" + context.next("bench alloc --json", "the same for a script");
}

ExitCode run_replay(const BenchQuestion& question, const Context& context) {
  const auto cases =
      bench_replay({.paths = question.recordings, .rounds = question.alloc.rounds}, context);
  context.print(context.is_json ? bench_replay_json(cases) : draw(cases, context));
  return ExitCode::kDone;
}

ExitCode run(const BenchQuestion& question, const Context& context) {
  if (question.what == "replay") return run_replay(question, context);
  if (!question.recordings.empty()) {
    throw UsageError("bench alloc reads no recordings; did you mean bench replay?");
  }
  const AllocBench bench =
      bench_alloc(question.alloc, [&](std::string_view line) { context.progress(line); });
  context.print(context.is_json ? bench_json(bench) : draw(bench, context));
  return ExitCode::kDone;
}

RunFunction add(CLI::App& app) {
  auto question = std::make_shared<BenchQuestion>();
  app.add_option("what", question->what, "What to measure: alloc or replay")
      ->check(CLI::IsMember({"alloc", "replay"}));
  app.add_option("recordings", question->recordings, "For replay; else the samples");
  app.add_option("--threads", question->alloc.threads, "How many threads, one case each")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--rounds", question->alloc.rounds, "Rounds to take the median of")
      ->check(CLI::Range(1, 1000));
  app.add_option("--pairs", question->alloc.pairs, "Pairs a thread and round")
      ->check(CLI::Range(1, 100'000'000));
  return [question](const Context& context) { return run(*question, context); };
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .group = "Measure",
          .summary = "measure side by side, in one run",
          .examples =
              "bench alloc  our allocators beside malloc and mimalloc\n"
              "bench alloc --threads 1 --json  one thread, for a script\n"
              "bench replay  the sample recordings, under each policy",
          .add = add};
}

}  // namespace headroom::cli
