#include "cli/bench_train.h"

#include <algorithm>
#include <cblas.h>
#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/device/registry.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/report/table.h"

#include "cli/json_values.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWantedOverhead = 0.15;

// c [m, n] of a and b over k, so many times.
struct Product {
  CBLAS_TRANSPOSE a = CblasNoTrans;
  CBLAS_TRANSPOSE b = CblasNoTrans;
  int m = 0;
  int n = 0;
  int k = 0;
  int times = 1;

  [[nodiscard]] double operations() const { return 2.0 * m * n * k * times; }
};

// y = x w^T and its two gradients; of the first layer only that of the weight.
void add_linear(int rows, int in, int out, bool needs_input, std::vector<Product>& products) {
  products.push_back({CblasNoTrans, CblasTrans, rows, out, in});
  products.push_back({CblasTrans, CblasNoTrans, out, in, rows});
  if (needs_input) products.push_back({CblasNoTrans, CblasNoTrans, rows, in, out});
}

std::vector<Product> deepnet_products(int depth, int width, int batch) {
  std::vector<Product> out;
  for (int i = 0; i < 2 * depth; ++i) add_linear(batch, width, width, i > 0, out);
  return out;
}

struct GptShape {
  int depth;
  int width;
  int heads;
  int seq;
  int batch;
  int vocabulary;
};

std::vector<Product> gpt_products(const GptShape& s) {
  std::vector<Product> out;
  const int rows = s.batch * s.seq;
  const int head = s.width / s.heads;
  for (int i = 0; i < s.depth; ++i) {
    add_linear(rows, s.width, 3 * s.width, true, out);
    add_linear(rows, s.width, s.width, true, out);
    add_linear(rows, s.width, 4 * s.width, true, out);
    add_linear(rows, 4 * s.width, s.width, true, out);
    // Scores and values; the scores again and four gradients. Half of each: what is masked is left
    // out.
    const int half = std::max(s.batch * s.heads / 2, 1);
    out.push_back({CblasNoTrans, CblasTrans, s.seq, s.seq, head, 3 * half});
    out.push_back({CblasNoTrans, CblasNoTrans, s.seq, head, s.seq, 4 * half});
  }
  add_linear(rows, s.width, s.vocabulary, true, out);
  return out;
}

// The calls alone, each over operands of its own, as a step's are; and the update of SGD, a call of
// OpenBLAS too.
class PlainStep {
 public:
  explicit PlainStep(std::vector<Product> products) : products_(std::move(products)) {
    const auto filled = [](int rows, int columns) {
      return std::vector<float>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns),
                                0.5F);
    };
    for (const Product& p : products_) {
      operands_.push_back({filled(p.m, p.k), filled(p.k, p.n), filled(p.m, p.n)});
    }
  }

  void run() {
    for (std::size_t i = 0; i < products_.size(); ++i) multiply(products_[i], operands_[i]);
    for (std::size_t i = 0; i < products_.size(); ++i) {
      // The gradient of a weight is a^T b; what it is added to has its size.
      if (products_[i].a != CblasTrans) continue;
      std::vector<float>& gradient = operands_[i].c;
      weight_.resize(std::max(weight_.size(), gradient.size()));
      cblas_saxpy(static_cast<int>(gradient.size()), -0.01F, gradient.data(), 1, weight_.data(), 1);
    }
  }
  [[nodiscard]] double operations() const {
    double out = 0;
    for (const Product& p : products_) out += p.operations();
    return out;
  }

 private:
  struct Operands {
    std::vector<float> a;
    std::vector<float> b;
    std::vector<float> c;
  };

  static void multiply(const Product& p, Operands& o) {
    for (int i = 0; i < p.times; ++i) {
      cblas_sgemm(CblasRowMajor,
                  p.a,
                  p.b,
                  p.m,
                  p.n,
                  p.k,
                  1,
                  o.a.data(),
                  p.a == CblasTrans ? p.m : p.k,
                  o.b.data(),
                  p.b == CblasTrans ? p.k : p.n,
                  0,
                  o.c.data(),
                  p.n);
    }
  }

  std::vector<Product> products_;
  std::vector<Operands> operands_{};
  std::vector<float> weight_{};
};

template <class F>
double once_ms(F&& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

TrainCost measure_step(const train::StepConfig& config,
                       std::vector<Product> products,
                       device::Device& device,
                       int rounds) {
  constexpr int kTurns = 5;
  memory::CachingAllocator allocator(device);
  train::StepRunner runner(config, allocator);
  PlainStep plain(std::move(products));
  (void)runner.step();
  plain.run();
  std::vector<double> steps;
  std::vector<double> plains;
  std::vector<double> overheads;
  for (int i = 0; i < rounds; ++i) {
    double step = once_ms([&] { (void)runner.step(); });
    double alone = once_ms([&] { plain.run(); });
    for (int turn = 1; turn < kTurns; ++turn) {
      step = std::min(step, once_ms([&] { (void)runner.step(); }));
      alone = std::min(alone, once_ms([&] { plain.run(); }));
    }
    steps.push_back(step);
    plains.push_back(alone);
    overheads.push_back(step / alone - 1);
  }
  return {.config = runner.config(),
          .step_ms = spread_of(steps),
          .plain_ms = spread_of(plains),
          .overhead = spread_of(overheads),
          .operations = plain.operations()};
}

}  // namespace

TrainBench bench_train(int rounds, const Progress& progress) {
  const auto found = device::registry().find("cpu:0");
  if (!found) throw Error(found.error());
  TrainBench out{.device = "cpu:0"};
  const auto measure =
      [&](std::string name, const train::StepConfig& config, std::vector<Product> products) {
        progress("measuring " + name);
        out.costs.push_back(measure_step(config, std::move(products), **found, rounds));
        out.costs.back().name = std::move(name);
      };
  measure("deepnet, 20 blocks of 512, batch 128",
          {.model = {.name = "deepnet"}},
          deepnet_products(20, 512, 128));
  measure(
      "gpt2-tiny, 2 blocks of 256, 4 x 128 tokens",
      {.model = {.name = "gpt2-tiny", .width = 256, .seq = 128}, .batch = 4, .optimizer = "sgd"},
      gpt_products({2, 256, 8, 128, 4, 256}));
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
  report::Table table({{.title = "step", .fit = report::Fit::kShrinks},
                       {.title = "ms", .align = Align::kRight},
                       {.title = "products ms", .align = Align::kRight},
                       {.title = "overhead", .align = Align::kRight},
                       {.title = "spread", .align = Align::kRight, .fit = report::Fit::kDrops},
                       {.title = "may", .align = Align::kRight}});
  for (const TrainCost& cost : bench.costs) {
    table.add_row(
        {cost.name,
         fmt::format("{:.1f}", cost.step_ms.median),
         fmt::format("{:.1f}", cost.plain_ms.median),
         fmt::format("{:.0f} %", cost.overhead.median * 100),
         fmt::format("{:.0f} to {:.0f}", cost.overhead.low * 100, cost.overhead.high * 100),
         fmt::format("{:.0f} %", kWantedOverhead * 100)});
  }
  return fmt::format(
             "Whole training steps on {}, beside their matrix products and update alone, as plain "
             "calls\n"
             "of OpenBLAS, in turn: the median of rounds, each the quickest of five.\n\n",
             bench.device) +
         table.render(context.out) + "\n" + context.next("bench train --json", "for a script");
}

}  // namespace headroom::cli
