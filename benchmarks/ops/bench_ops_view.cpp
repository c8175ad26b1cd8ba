#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "benchmarks/bench_views.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

using report::Align;

std::string draw_costs(const std::string& title,
                       const std::string& unit,
                       const std::vector<OpCost>& costs,
                       const Context& context) {
  if (costs.empty()) return {};
  report::Table table({{.title = title},
                       {.title = "us", .align = Align::kRight},
                       {.title = "plain us", .align = Align::kRight},
                       {.title = unit, .align = Align::kRight},
                       {.title = "speed", .align = Align::kRight},
                       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops},
                       {.title = "goal", .align = Align::kRight}});
  for (const OpCost& cost : costs) {
    table.add_row({cost.name,
                   fmt::format("{:.1f}", cost.ours_us.median),
                   fmt::format("{:.1f}", cost.plain_us.median),
                   fmt::format("{:.1f}", cost.per_second / 1e9),
                   fmt::format("{:.2f}", cost.speed.median),
                   fmt::format("{:.2f} to {:.2f}", cost.speed.low, cost.speed.high),
                   cost.wanted == 0 ? "" : fmt::format("{:.2f}", cost.wanted)});
  }
  return table.render(context.out) + "\n";
}

std::string draw_dispatch(const OpsBench& bench, const Context& context) {
  if (bench.dispatch.empty()) return {};
  report::Table table({{.title = "on 2 x 2"},
                       {.title = "ns per op", .align = Align::kRight},
                       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops},
                       {.title = "goal", .align = Align::kRight}});
  for (const DispatchCost& cost : bench.dispatch) {
    table.add_row({cost.name,
                   fmt::format("{:.0f}", cost.ns.median),
                   fmt::format("{:.0f} to {:.0f}", cost.ns.low, cost.ns.high),
                   "1000"});
  }
  return table.render(context.out) + "\n";
}

nlohmann::json costs_json(const std::vector<OpCost>& costs) {
  nlohmann::json out = nlohmann::json::array();
  for (const OpCost& cost : costs) {
    out.push_back({{"name", cost.name},
                   {"ours_us", spread_json(cost.ours_us)},
                   {"plain_us", spread_json(cost.plain_us)},
                   {"speed", spread_json(cost.speed)},
                   {"wanted", cost.wanted},
                   {"per_second", cost.per_second}});
  }
  return out;
}

}  // namespace

std::string ops_bench_json(const OpsBench& bench) {
  nlohmann::json dispatch = nlohmann::json::array();
  for (const DispatchCost& cost : bench.dispatch) {
    dispatch.push_back({{"name", cost.name}, {"ns", spread_json(cost.ns)}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "ops"},
                           {"device", bench.device},
                           {"threads", bench.threads},
                           {"size_bytes", bench.size_bytes},
                           {"matrices", costs_json(bench.matrices)},
                           {"convolutions", costs_json(bench.convolutions)},
                           {"attention", costs_json(bench.attention)},
                           {"elements", costs_json(bench.elements)},
                           {"dispatch", dispatch}};
  return out.dump(2) + "\n";
}

std::string draw_ops_bench(const OpsBench& bench, const Context& context) {
  std::string text = report::wrapped(fmt::format("Ops on {} with {} threads, beside plain calls of "
                                                 "OpenBLAS and plain loops over the same "
                                                 "bytes, in turn: the median of the rounds, each "
                                                 "the quickest of its turns. Speed: 1 is as "
                                                 "fast as plain, more is faster.",
                                                 bench.device,
                                                 bench.threads),
                                     0,
                                     context.out.width) +
                     "\n";
  text += draw_costs("matrices", "GFLOP/s", bench.matrices, context);
  text += draw_costs("convolutions, 4 images", "GFLOP/s", bench.convolutions, context);
  text += draw_costs("12 heads of 64", "GFLOP/s", bench.attention, context);
  text += draw_costs(
      "elements, " + format_bytes(bench.size_bytes) + " each", "GB/s", bench.elements, context);
  return text + draw_dispatch(bench, context) +
         context.next("bench ops --json", "the same for programs");
}

}  // namespace headroom::cli
