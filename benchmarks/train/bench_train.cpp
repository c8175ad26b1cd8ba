#include "benchmarks/train/bench_train.h"

#include <algorithm>
#include <cblas.h>
#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/device/registry.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"
#include "headroom/train/plan.h"

#include "benchmarks/bench_threads.h"
#include "benchmarks/train/bench_train_plain.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWantedOverhead = 0.15;

template <class F>
double once_ms(F&& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// The quickest of a few in a row; the first brings the caches to what the others find.
template <class F>
double quickest_ms(F&& work) {
  constexpr int kInARow = 5;
  work();
  double out = once_ms(work);
  for (int i = 1; i < kInARow; ++i) out = std::min(out, once_ms(work));
  return out;
}

template <class Plain>
TrainCost measure_step(const train::StepConfig& config,
                       Plain plain,
                       device::Device& device,
                       int rounds) {
  const auto ours = memory::make_allocator(device);
  const auto pytorchs = memory::make_allocator(device, train::parse_settings("backend:native"));
  train::StepRunner runner(config, *ours);
  train::StepRunner other(config, *pytorchs);
  std::vector<double> steps;
  std::vector<double> others;
  std::vector<double> plains;
  std::vector<double> overheads;
  for (int i = 0; i < rounds; ++i) {
    let_threads_rest();
    const auto run_ours = [&] { steps.push_back(quickest_ms([&] { (void)runner.step(); })); };
    if (i % 2 == 0) run_ours();
    others.push_back(quickest_ms([&] { (void)other.step(); }));
    if (i % 2 != 0) run_ours();  // neither always comes first
    plains.push_back(quickest_ms([&] { plain.run(); }));
    overheads.push_back(steps.back() / plains.back() - 1);
  }
  return {.config = runner.config(),
          .step_ms = spread_of(steps),
          .pytorch_ms = spread_of(others),
          .plain_ms = spread_of(plains),
          .overhead = spread_of(overheads),
          .operations = plain.operations()};
}

}  // namespace

TrainBench bench_train(int rounds, const Progress& progress) {
  const auto found = device::registry().find("cpu:0");
  if (!found) throw Error(found.error());
  TrainBench out{.device = "cpu:0"};
  openblas_set_num_threads(bench_threads());
  const auto measure = [&](std::string name, const train::StepConfig& config, auto plain) {
    progress("measuring " + name);
    out.costs.push_back(measure_step(config, std::move(plain), **found, rounds));
    out.costs.back().name = std::move(name);
  };
  train::StepConfig deepnet;
  deepnet.model.name = "deepnet";
  measure("deepnet, 20 blocks of 512, batch 128", deepnet, plain::DeepNetStep(20, 512, 128));
  const auto measure_gpt = [&](const char* model, const plain::GptSizes& sizes) {
    train::StepConfig config;
    config.model = {.name = model, .depth = sizes.depth, .width = sizes.width, .seq = sizes.seq};
    config.batch = sizes.batch;
    config.optimizer = "sgd";
    measure(fmt::format("{}, {} blocks of {}, {} x {} tokens",
                        model,
                        sizes.depth,
                        sizes.width,
                        sizes.batch,
                        sizes.seq),
            config,
            plain::GptStep(sizes));
  };
  measure_gpt("gpt2",
              {.depth = 2, .width = 768, .heads = 12, .seq = 128, .batch = 4, .vocabulary = 50257});
  measure_gpt("gpt2-tiny",
              {.depth = 2, .width = 256, .heads = 8, .seq = 128, .batch = 4, .vocabulary = 256});
  progress("");
  return out;
}

std::string train_bench_json(const TrainBench& bench) {
  nlohmann::json costs = nlohmann::json::array();
  for (const TrainCost& cost : bench.costs) {
    costs.push_back({{"name", cost.name},
                     {"model", cost.config.model.name},
                     {"batch", cost.config.batch},
                     {"step_ms", spread_json(cost.step_ms)},
                     {"pytorch_ms", spread_json(cost.pytorch_ms)},
                     {"plain_ms", spread_json(cost.plain_ms)},
                     {"overhead", spread_json(cost.overhead)},
                     {"wanted", kWantedOverhead},
                     {"operations", cost.operations}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "train"},
                           {"device", bench.device},
                           {"costs", costs}};
  return out.dump(2) + "\n";
}

std::string draw_train_bench(const TrainBench& bench, const Context& context) {
  using report::Align;
  report::Table table({{.title = "step, times in ms"},
                       {.title = "paged", .align = Align::kRight},
                       {.title = "native", .align = Align::kRight},
                       {.title = "products", .align = Align::kRight},
                       {.title = "overhead", .align = Align::kRight},
                       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops}});
  for (const TrainCost& cost : bench.costs) {
    table.add_row(
        {cost.name,
         fmt::format("{:.1f}", cost.step_ms.median),
         fmt::format("{:.1f}", cost.pytorch_ms.median),
         fmt::format("{:.1f}", cost.plain_ms.median),
         fmt::format("{:.0f} %", cost.overhead.median * 100),
         fmt::format("{:.0f} to {:.0f}", cost.overhead.low * 100, cost.overhead.high * 100)});
  }
  return report::wrapped(
             fmt::format(
                 "Whole training steps on {}, with headroom's paged allocator and with its "
                 "native one (as PyTorch's), beside the matrix products and the update alone in a "
                 "plain loop of OpenBLAS calls, in turn: the median of the rounds, each the "
                 "quickest "
                 "of five. Overhead: the time that the step takes beyond that loop; the goal is "
                 "{:.0f} %.",
                 bench.device,
                 kWantedOverhead * 100),
             0,
             context.out.width) +
         "\n" + table.render(context.out) + "\n" +
         context.next("bench train --json", "the same for programs");
}

}  // namespace headroom::cli
