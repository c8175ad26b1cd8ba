#include "benchmarks/paged/bench_paged_view.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/output/json_values.h"
#include "cli/output/layout.h"
#include "cli/output/spread.h"

namespace headroom::bench {
namespace {

using cli::counted;
using cli::Spread;
using cli::spread_json;
using cli::spread_of;
using cli::value_json;
using report::Align;
using report::Fit;
using report::Tone;
using Json = nlohmann::ordered_json;

Spread over_rounds(const TrafficRow& row, const std::function<double(const TrafficRound&)>& of) {
  std::vector<double> values;
  for (const TrafficRound& round : row.rounds) values.push_back(of(round));
  return spread_of(std::move(values));
}

Spread over_floor(const TrafficRow& row, Contender contender) {
  return over_rounds(row, [&](const TrafficRound& round) { return round.over_floor(contender); });
}

Spread driver_share(const TrafficRow& row, Contender contender) {
  return over_rounds(row, [&](const TrafficRound& round) { return round.driver_share(contender); });
}

std::uint64_t median_floor(const TrafficRow& row) {
  return static_cast<std::uint64_t>(over_rounds(row, [](const TrafficRound& round) {
                                      return static_cast<double>(round.floor);
                                    }).median);
}

bool keeps(const TrafficRow& row, bool (TrafficRound::*claim)() const) {
  return std::ranges::all_of(row.rounds, claim);
}

// `yes`, or what is too much.
std::string verdict_word(const TrafficRow& row) {
  const bool memory = keeps(row, &TrafficRound::keeps_memory);
  const bool time = keeps(row, &TrafficRound::keeps_time);
  if (memory && time) return "yes";
  return memory ? "time" : time ? "memory" : "both";
}

std::string verdict_cell(const TrafficRow& row, const cli::Context& context) {
  const std::string word = verdict_word(row);
  return report::styled(word, word == "yes" ? Tone::kGood : Tone::kBad, context.out);
}

std::string ratio_cell(double ratio) { return fmt::format("{:.3f}", ratio); }
// Nothing compares with what could not be served.
std::string reserved_cell(const TrafficRow& row, Contender contender) {
  const bool fits = std::ranges::all_of(row.rounds, [&](const TrafficRound& round) {
    return round.outcome(contender).failures == 0;
  });
  return fits ? ratio_cell(over_floor(row, contender).median) : "fails";
}
std::string share_cell(double share) {
  return fmt::format("{:.{}f} %", 100 * share, share < 1 ? 1 : 0);
}

// Calls `group` before the first row of each group.
void for_groups(const PagedBench& bench,
                const std::function<void(std::string_view)>& group,
                const std::function<void(const TrafficRow&)>& row) {
  std::string_view last;
  for (const TrafficRow& entry : bench.rows) {
    if (entry.generator.group != last) group(entry.generator.group);
    last = entry.generator.group;
    row(entry);
  }
}

std::string reserved_table(const PagedBench& bench, const cli::Context& context) {
  const bool has_spread = bench.options.rounds > 1;
  report::Table table({{.title = "traffic"},
                       {.title = has_spread ? "" : "live", .align = Align::kRight},
                       {.title = "paged", .align = Align::kRight},
                       {.title = has_spread ? "spread" : "", .align = Align::kRight},
                       {.title = "default", .align = Align::kRight},
                       {.title = "expand", .align = Align::kRight},
                       {.title = "async", .align = Align::kRight},
                       {.title = "time", .align = Align::kRight},
                       {.title = "keeps"}});
  for_groups(
      bench,
      [&](std::string_view group) { table.add_row({std::string(group)}); },
      [&](const TrafficRow& row) {
        const Spread paged = over_floor(row, Contender::kPaged);
        table.add_row({" " + std::string(row.generator.name),
                       has_spread ? "" : format_bytes(median_floor(row)),
                       reserved_cell(row, Contender::kPaged),
                       has_spread ? fmt::format("{:.2f} to {:.2f}", paged.low, paged.high) : "",
                       reserved_cell(row, Contender::kDefault),
                       reserved_cell(row, Contender::kExpandable),
                       reserved_cell(row, Contender::kAsync),
                       share_cell(driver_share(row, Contender::kPaged).median),
                       verdict_cell(row, context)});
      });
  return table.render(context.out);
}

double limit_ratio(const TrafficRound& round, Contender contender) {
  return static_cast<double>(round.outcome(contender).smallest_limit.value_or(0)) /
         static_cast<double>(round.floor);
}

std::string limit_table(const PagedBench& bench, const cli::Context& context) {
  report::Table table({{.title = "smallest limit"},
                       {.title = "live", .align = Align::kRight},
                       {.title = "paged", .align = Align::kRight},
                       {.title = "default", .align = Align::kRight},
                       {.title = "expand", .align = Align::kRight},
                       {.title = "async", .align = Align::kRight}});
  const auto cell = [](const TrafficRow& row, Contender contender) {
    return ratio_cell(over_rounds(row, [&](const TrafficRound& round) {
                        return limit_ratio(round, contender);
                      }).median);
  };
  for_groups(
      bench,
      [&](std::string_view group) { table.add_row({std::string(group)}); },
      [&](const TrafficRow& row) {
        table.add_row({" " + std::string(row.generator.name),
                       format_bytes(median_floor(row)),
                       cell(row, Contender::kPaged),
                       cell(row, Contender::kDefault),
                       cell(row, Contender::kExpandable),
                       cell(row, Contender::kAsync)});
      });
  return table.render(context.out);
}

Json round_json(const TrafficRound& round) {
  Json results = Json::array();
  for (std::size_t i = 0; i < kContenders; ++i) {
    const auto contender = static_cast<Contender>(i);
    const Outcome& outcome = round.outcome(contender);
    const bool is_model = contender == Contender::kAsync;
    results.push_back(
        {{"policy", policy_of(contender)},
         {"is_model", is_model},
         {"peak_reserved", outcome.peak_reserved},
         {"over_floor", round.over_floor(contender)},
         {"driver_calls", is_model ? Json(nullptr) : Json(outcome.driver_calls)},
         {"driver_us", is_model ? Json(nullptr) : Json(outcome.driver_us)},
         {"driver_share", is_model ? Json(nullptr) : Json(round.driver_share(contender))},
         {"failures", outcome.failures},
         {"smallest_limit", value_json(outcome.smallest_limit)}});
  }
  const auto allowed = round.allowed_bytes();
  return {{"seed", round.seed},
          {"requests", round.requests},
          {"ops", round.ops},
          {"steps", round.steps},
          {"streams", round.streams},
          {"private_pools", round.pools},
          {"peak_live", round.peak_live},
          {"floor", round.floor},
          {"is_of_small_blocks", round.is_of_small},
          {"is_within_bound", round.is_within_bound},
          {"allowed_bytes", value_json(allowed)},
          {"keeps_memory", round.keeps_memory()},
          {"keeps_time", round.keeps_time()},
          {"results", results}};
}

Json generator_json(const Generator& generator) {
  return {{"group", generator.group},
          {"name", generator.name},
          {"summary", generator.summary},
          {"keeps_blocks", generator.keeps}};
}

std::string as_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string promise_sentence(const PagedBench& bench) {
  return fmt::format(
      "{} of {} keep the promise: at most the better of PyTorch's two plus {:.0f} % plus {} (where "
      "blocks to 64 KiB dominate: within the bound of PagedAllocator), with at most {:.0f} % "
      "driver "
      "time.",
      kept(bench),
      counted(bench.rows.size(), "row", "rows"),
      100 * kMostOverBest,
      format_bytes(kMostBytesOverBest),
      100 * kMostDriverShare);
}

std::string draw_paged_bench(const PagedBench& bench, const cli::Context& context) {
  std::string text = report::wrapped(
      fmt::format(
          "Peak reserved over peak live, for programs made by `{}` of a seed: paged, "
          "PyTorch's default, its expandable segments and a model of cudaMallocAsync. With "
          "private pools, live is the least that the pools allow. Time: what the driver "
          "takes for paged's calls on an H200, as a share of {:.0f} us of work per request.",
          "bench paged",
          kWorkUsPerRequest),
      0,
      context.out.width);
  text += "\n" + reserved_table(bench, context);
  if (bench.options.finds_smallest_limit) text += "\n" + limit_table(bench, context);
  return text + "\n" + report::wrapped(promise_sentence(bench), 0, context.out.width) + "\n" +
         context.next("bench paged -o traffic.html", "the same as a page with bars");
}

Json paged_bench_values(const PagedBench& bench) {
  Json rows = Json::array();
  for (const TrafficRow& row : bench.rows) {
    Json one = generator_json(row.generator);
    one["keeps_promise"] = row.keeps_promise();
    one["paged_over_floor"] = spread_json(over_floor(row, Contender::kPaged));
    one["rounds"] = Json::array();
    for (const TrafficRound& round : row.rounds) one["rounds"].push_back(round_json(round));
    rows.push_back(std::move(one));
  }
  return {{"schema", 1},
          {"command", "bench"},
          {"what", "paged"},
          {"seed", bench.options.seed},
          {"work_us_per_request", kWorkUsPerRequest},
          {"promise", promise_sentence(bench)},
          {"kept", kept(bench)},
          {"rows", rows}};
}

std::string paged_bench_json(const PagedBench& bench) { return as_text(paged_bench_values(bench)); }

std::string draw_generators(const std::vector<Generator>& generators, const cli::Context& context) {
  report::Table table({{.title = "traffic"}, {.title = "what happens", .fit = Fit::kShrinks}});
  for (const Generator& generator : generators) {
    table.add_row(
        {fmt::format("{}: {}", generator.group, generator.name), std::string(generator.summary)});
  }
  return table.render(context.out) + "\n" +
         context.next("bench paged --filter serving", "only rows with that in their name");
}

std::string generators_json(const std::vector<Generator>& generators) {
  Json all = Json::array();
  for (const Generator& generator : generators) all.push_back(generator_json(generator));
  return as_text({{"schema", 1}, {"command", "bench"}, {"what", "paged"}, {"generators", all}});
}

}  // namespace headroom::bench
