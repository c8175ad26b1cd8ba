#include "benchmarks/replay/bench_replay.h"

#include <algorithm>
#include <array>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/report/bar.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/input/samples.h"
#include "cli/input/trace_input.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

using replay::Policy;
using replay::Program;

constexpr std::array kPolicies{"pytorch",
                               "pytorch:default",
                               "pytorch:expandable_segments:True",
                               "pytorch:roundup_power2_divisions:4",
                               "pytorch:max_split_size_mb:128",
                               "cudaMallocAsync"};

std::string name_of(const std::string& path) { return without_endings(file_name(path)); }

void measure_speed(const Program& program, int rounds, ReplayBenchCase& out) {
  const replay::ReplayOptions options = replay::as_recorded(program);
  std::vector<double> by_wall;
  std::vector<double> by_cpu;
  const auto events = static_cast<double>(program.events);
  // Short recordings are over before a clock ticks: run them several times between two readings.
  const int repeats =
      static_cast<int>(std::clamp<std::uint64_t>(500'000 / (program.events + 1), 1, 1000));
  for (int round = 0; round < rounds + 1; ++round) {
    double seconds = 0;
    const std::clock_t before = std::clock();
    for (int i = 0; i < repeats; ++i) seconds += replay::replay(program, options).seconds;
    const double cpu_seconds =
        static_cast<double>(std::clock() - before) / static_cast<double>(CLOCKS_PER_SEC);
    if (round == 0) continue;  // the first warms up
    by_wall.push_back(events * repeats / std::max(seconds, 1e-9));
    by_cpu.push_back(events * repeats / std::max(cpu_seconds, 1e-9));
  }
  out.events_per_second = spread_of(std::move(by_wall));
  out.events_per_cpu_second = spread_of(std::move(by_cpu));
}

ReplayBenchRow measure_policy(const Program& program, const Policy& policy) {
  const replay::PolicyResult entry = replay::run_policy(program, policy);
  const replay::ReplayResult& result = entry.result;
  return {.policy = policy.name,
          .peak_reserved = result.peak_reserved,
          .over_live = static_cast<double>(result.peak_reserved) /
                       static_cast<double>(std::max<std::uint64_t>(result.peak_live, 1)),
          .driver_us = result.calls.driver_us,
          .retries = result.retries,
          .is_model = entry.is_model};
}

ReplayBenchCase bench_one(const std::string& path, int rounds, const Context& context) {
  const trace::TraceFile file = read_input(path, context);
  const auto devices = replay::replayable(file.trace);
  if (devices.empty()) throw Error(path + ": it has no events to replay");
  const Program program = replay::compile_with_empty_caches(file.trace, *devices.front());
  ReplayBenchCase out{.recording = name_of(path),
                      .events = program.events,
                      .allocs = program.allocs,
                      .peak_live = program.peak_live};
  context.stage("measuring " + out.recording);
  measure_speed(program, rounds, out);
  for (const char* name : kPolicies) {
    context.stage(fmt::format("measuring {}: {}", out.recording, name));
    out.rows.push_back(measure_policy(program, replay::parse_policy(name).value()));
  }
  context.stage("");
  return out;
}

std::string speed_text(const Spread& spread) {
  return fmt::format("{} ({} to {})",
                     report::format_large(spread.median),
                     report::format_large(spread.low),
                     report::format_large(spread.high));
}

}  // namespace

std::vector<ReplayBenchCase> bench_replay(const ReplayBenchOptions& options,
                                          const Context& context) {
  std::vector<ReplayBenchCase> cases;
  for (const std::string& path :
       options.paths.empty() ? all_samples("bench replay") : options.paths) {
    cases.push_back(bench_one(path, options.rounds, context));
  }
  return cases;
}

std::string bench_replay_json(const std::vector<ReplayBenchCase>& cases) {
  nlohmann::ordered_json out{{"schema", 1}, {"command", "bench"}, {"what", "replay"}};
  out["cases"] = nlohmann::ordered_json::array();
  for (const ReplayBenchCase& entry : cases) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const ReplayBenchRow& row : entry.rows) {
      rows.push_back({{"policy", row.policy},
                      {"peak_reserved", row.peak_reserved},
                      {"over_live", row.over_live},
                      {"driver_us", row.driver_us},
                      {"retries", row.retries},
                      {"is_model", row.is_model}});
    }
    out["cases"].push_back({{"recording", entry.recording},
                            {"events", entry.events},
                            {"allocs", entry.allocs},
                            {"peak_live", entry.peak_live},
                            {"events_per_second", spread_json(entry.events_per_second)},
                            {"events_per_cpu_second", spread_json(entry.events_per_cpu_second)},
                            {"results", rows}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string draw(const std::vector<ReplayBenchCase>& cases, const Context& context) {
  std::string text = report::wrapped(
      "Replayed as recorded, with one thread, without the reading: the median of the rounds, and "
      "the lowest to the highest. Then the peak reserved under each policy, how many times the "
      "peak "
      "live it is, and what the driver's calls take on an H200.",
      0,
      context.out.width);
  for (const ReplayBenchCase& entry : cases) {
    text += fmt::format("\n{}  {} events, {} live at the peak\n",
                        report::styled(entry.recording, report::Tone::kStrong, context.out),
                        format_count(entry.events),
                        format_bytes(entry.peak_live));
    text += fmt::format("  {} events per second\n  {} per second of processor time\n",
                        speed_text(entry.events_per_second),
                        speed_text(entry.events_per_cpu_second));
    // Short titles and columns that give way, so that the names of the policies stay whole.
    report::Table table(
        {{.title = "policy"},
         {.title = "reserved", .align = report::Align::kRight},
         {.title = "times live", .align = report::Align::kRight},
         {.title = "driver", .align = report::Align::kRight, .fit = report::Fit::kDrops},
         {.title = "retries", .align = report::Align::kRight, .fit = report::Fit::kDrops}});
    for (const ReplayBenchRow& row : entry.rows) {
      table.add_row({row.policy + (row.is_model ? " (modelled)" : ""),
                     format_bytes(row.peak_reserved),
                     fmt::format("{:.3f}", row.over_live),
                     row.is_model ? "" : report::format_duration_ns(row.driver_us * 1e3),
                     row.is_model ? "" : format_count(row.retries)});
    }
    text += table.render(context.out, 2);
  }
  return text + "\n" + context.next("bench replay --json", "the same for programs");
}

}  // namespace headroom::cli
