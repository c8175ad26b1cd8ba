#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/base/file_name.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "benchmarks/bench_views.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

using report::Align;

std::string spread_text(const Spread& spread) {
  return fmt::format("{:.1f} to {:.1f}", spread.low, spread.high);
}

std::string draw_recording(const TraceBench& bench, const Context& context) {
  report::Table table({{.title = "recording"},
                       {.title = "ns per pair", .align = Align::kRight},
                       {.title = "added per event", .align = Align::kRight},
                       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops},
                       {.title = "goal", .align = Align::kRight}});
  for (const RecordingCost& cost : bench.recording) {
    const bool is_base = &cost == &bench.recording.front();
    table.add_row({cost.name,
                   fmt::format("{:.0f}", cost.pair_ns.median),
                   is_base ? "" : fmt::format("{:.1f}", cost.added_ns.median),
                   is_base ? "" : spread_text(cost.added_ns),
                   cost.budget_ns == 0 ? "" : fmt::format("{:.0f}", cost.budget_ns)});
  }
  return table.render(context.out);
}

std::string draw_files(const TraceBench& bench, const Context& context) {
  report::Table table(
      {{.title =
            fmt::format("{}, {} events", file_name(bench.file), format_count(bench.file_events))},
       {.title = "file", .align = Align::kRight},
       {.title = "ms", .align = Align::kRight},
       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops},
       {.title = "Python takes", .align = Align::kRight}});
  for (const FileCost& cost : bench.files) {
    table.add_row({cost.name,
                   format_bytes(cost.file_bytes),
                   fmt::format("{:.1f}", cost.ms.median),
                   spread_text(cost.ms),
                   cost.ratio ? fmt::format("{:.1f} x", cost.ratio->median) : ""});
  }
  return table.render(context.out);
}

}  // namespace

std::string trace_bench_json(const TraceBench& bench) {
  nlohmann::json recording = nlohmann::json::array();
  for (const RecordingCost& cost : bench.recording) {
    recording.push_back({{"name", cost.name},
                         {"pair_ns", spread_json(cost.pair_ns)},
                         {"added_ns", spread_json(cost.added_ns)},
                         {"budget_ns", cost.budget_ns}});
  }
  nlohmann::json files = nlohmann::json::array();
  for (const FileCost& cost : bench.files) {
    files.push_back({{"name", cost.name},
                     {"file_bytes", cost.file_bytes},
                     {"ms", spread_json(cost.ms)},
                     {"ratio", cost.ratio ? spread_json(*cost.ratio) : nlohmann::json()}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "trace"},
                           {"recording", recording},
                           {"packing_ns", spread_json(bench.packing_ns)},
                           {"file", bench.file},
                           {"file_events", bench.file_events},
                           {"files", files},
                           {"notes", bench.notes}};
  return out.dump(2) + "\n";
}

std::string draw_trace_bench(const TraceBench& bench, const Context& context) {
  std::string text = report::wrapped(
                         "The cost of recording, in nanoseconds per allocate and free (a pair, "
                         "three events) on the "
                         "meta device: the median of the rounds, each the quickest of ten tries.",
                         0,
                         context.out.width) +
                     "\n";
  text += draw_recording(bench, context);
  text += fmt::format("\nThe recorder's own thread compresses an event of a file in {:.0f} ns.\n",
                      bench.packing_ns.median);
  if (!bench.files.empty()) text += "\n" + draw_files(bench, context);
  for (const std::string& note : bench.notes) text += "\n" + note + "\n";
  return text + "\n" + context.next("bench trace --file SNAPSHOT", "with your own recording");
}

}  // namespace headroom::cli
