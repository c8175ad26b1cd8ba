#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "benchmarks/bench_views.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f}", *share) : "";
}

// Two digits that say something: at 16 threads we may be a thousandth.
std::string ratio_text(double ratio) {
  return ratio < 0.095 ? fmt::format("{:.2g}", ratio) : fmt::format("{:.2f}", ratio);
}

bool has_reserved(const AllocCase& entry) {
  return std::ranges::any_of(
      entry.results, [](const auto& result) { return result.reserved_over_live.has_value(); });
}

}  // namespace

std::string alloc_bench_json(const AllocBench& bench) {
  nlohmann::json cases = nlohmann::json::array();
  for (const AllocCase& entry : bench.cases) {
    nlohmann::json results = nlohmann::json::array();
    for (const AllocResult& result : entry.results) {
      results.push_back({{"allocator", result.allocator},
                         {"pair_ns", spread_json(result.pair_ns)},
                         {"ratio", spread_json(result.to_baseline)},
                         {"scaling", value_json(result.scaling)},
                         {"reserved_over_live", value_json(result.reserved_over_live)},
                         {"pairs", result.pairs}});
    }
    cases.push_back({{"case", entry.name}, {"threads", entry.threads}, {"results", results}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "alloc"},
                           {"device", bench.device},
                           {"baseline", bench.baseline},
                           {"notes", bench.notes},
                           {"cases", cases}};
  return out.dump(2) + "\n";
}

std::string draw_alloc_bench(const AllocBench& bench, const Context& context) {
  std::string text = report::wrapped(
      fmt::format(
          "Nanoseconds for one allocate and one free (a pair) on {}, all threads together: the "
          "median "
          "of the rounds, and the lowest to the highest; a round is the quickest of three turns. "
          "Ratio: the time divided by that of {}. Scaling: pairs per second, divided by those of "
          "one "
          "thread. Reserved: the most taken from the device, divided by the most that was live.",
          bench.device,
          bench.baseline),
      0,
      context.out.width);
  for (const AllocCase& entry : bench.cases) {
    report::Table table(
        {{.title = fmt::format(
              "{}, {} thread{}", entry.name, entry.threads, entry.threads == 1 ? "" : "s")},
         {.title = "ns per pair", .align = report::Align::kRight},
         {.title = "spread", .align = report::Align::kRight},
         {.title = "ratio", .align = report::Align::kRight},
         {.title = has_reserved(entry) ? "reserved" : "", .align = report::Align::kRight},
         {.title = entry.threads == 1 ? "" : "scaling", .align = report::Align::kRight}});
    for (const AllocResult& result : entry.results) {
      table.add_row({result.allocator,
                     fmt::format("{:.0f}", result.pair_ns.median),
                     fmt::format("{:.0f} to {:.0f}", result.pair_ns.low, result.pair_ns.high),
                     ratio_text(result.to_baseline.median),
                     share_text(result.reserved_over_live),
                     share_text(result.scaling)});
    }
    text += "\n" + table.render(context.out);
  }
  for (const std::string& note : bench.notes) text += "\n" + note + "\n";
  const bool is_meta = bench.device.starts_with("meta");
  return text + "\n" +
         (is_meta ? context.next("bench alloc --json", "the same for programs")
                  : context.next(fmt::format("bench device --device {}", bench.device),
                                 "the cost of each driver call"));
}

}  // namespace headroom::cli
