#include "benchmarks/ops/bench_ops.h"

#include <algorithm>
#include <cblas.h>
#include <chrono>
#include <functional>

#include <fmt/format.h>

#include "headroom/tensor.h"
#include "headroom/tensor/tape.h"

#include "benchmarks/bench_threads.h"
#include "benchmarks/ops/bench_ops_duel.h"
#include "benchmarks/ops/bench_ops_plain.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;
using Work = OpWork;

double time_us(const Work& work, int repeats) {
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return Microseconds(Clock::now() - begin).count() / repeats;
}

struct Turns {
  double ours_us;
  double plain_us;
};

// The quickest of some in a row, after whoever went before has come to rest: what else the machine
// does only ever adds.
double quickest_us(const Work& work, int repeats) {
  let_threads_rest();
  work();
  double out = time_us(work, 1);
  for (int i = 1; i < repeats; ++i) out = std::min(out, time_us(work, 1));
  return out;
}

Turns take_turns(const Duel& duel, int repeats, bool ours_first) {
  Turns out{};
  if (ours_first) out.ours_us = quickest_us(duel.ours, repeats);
  out.plain_us = quickest_us(duel.plain, repeats);
  if (!ours_first) out.ours_us = quickest_us(duel.ours, repeats);
  return out;
}

OpCost fight(const Duel& duel, int rounds) {
  constexpr double kRoundUs = 60'000;
  duel.ours();
  duel.plain();
  const int repeats =
      std::clamp(static_cast<int>(kRoundUs / time_us(duel.plain, 1)), duel.least_repeats, 4000);
  std::vector<double> ours;
  std::vector<double> plain;
  std::vector<double> speed;
  for (int i = 0; i < rounds; ++i) {
    const Turns turns = take_turns(duel, repeats, i % 2 == 0);
    ours.push_back(turns.ours_us);
    plain.push_back(turns.plain_us);
    speed.push_back(turns.plain_us / turns.ours_us);
  }
  OpCost out{.name = duel.name,
             .ours_us = spread_of(ours),
             .plain_us = spread_of(plain),
             .speed = spread_of(speed),
             .wanted = duel.wanted};
  out.per_second = duel.amount / out.ours_us.median * 1e6;
  return out;
}

// --- Matrices -----------------------------------------------------------------------------------

struct Sides {
  int m;
  int n;
  int k;
};

double operations(const Sides& s) { return 2.0 * s.m * s.n * s.k; }

// A product of a few microseconds is judged by what dispatch may cost, not by a ratio.
double wanted_of(const Sides& s) { return operations(s) < 1e6 ? 0 : 0.95; }

// BLAS has a function for each type.
auto product_of_blas(float /*type*/) { return cblas_sgemm; }
auto product_of_blas(double /*type*/) { return cblas_dgemm; }

template <class T>
Duel matmul_duel(const Sides& s, DType dtype, const char* name) {
  const TensorOptions options{.dtype = dtype, .device = "cpu"};
  const Tensor a = rand({s.m, s.k}, options);
  const Tensor b = rand({s.k, s.n}, options);
  const Tensor c = empty({s.m, s.n}, options);
  return {.name = fmt::format("{} {} x {} x {}", name, s.m, s.k, s.n),
          .ours = [a, b] { (void)matmul(a, b); },
          .plain =
              [a = a.data<T>(), b = b.data<T>(), c, s] {
                product_of_blas(T{})(CblasRowMajor,
                                     CblasNoTrans,
                                     CblasNoTrans,
                                     s.m,
                                     s.n,
                                     s.k,
                                     1,
                                     a,
                                     s.k,
                                     b,
                                     s.n,
                                     0,
                                     c.data<T>(),
                                     s.n);
              },
          .wanted = wanted_of(s),
          .amount = operations(s)};
}

// y = x w^T + b, beside filling the rows with b and one call.
Duel linear_duel(const Sides& s) {
  const Tensor x = rand({s.m, s.k}, {.device = "cpu"});
  const Tensor w = rand({s.n, s.k}, {.device = "cpu"});
  const Tensor b = rand({s.n}, {.device = "cpu"});
  const Tensor c = empty({s.m, s.n}, {.device = "cpu"});
  return {.name = fmt::format("linear {} x {} x {}", s.m, s.k, s.n),
          .ours = [x, w, b] { (void)linear(x, w, b); },
          .plain =
              [x = x.data<float>(), w = w.data<float>(), b, c, s] {
                for (std::int64_t i = 0; i < s.m; ++i) {
                  std::copy_n(b.data<float>(), s.n, c.data<float>() + i * s.n);
                }
                cblas_sgemm(CblasRowMajor,
                            CblasNoTrans,
                            CblasTrans,
                            s.m,
                            s.n,
                            s.k,
                            1,
                            x,
                            s.k,
                            w,
                            s.k,
                            1,
                            c.data<float>(),
                            s.n);
              },
          .wanted = wanted_of(s),
          .amount = operations(s)};
}

Duel bmm_duel(int batch, const Sides& s) {
  const Tensor a = rand({batch, s.m, s.k}, {.device = "cpu"});
  const Tensor b = rand({batch, s.k, s.n}, {.device = "cpu"});
  const Tensor c = empty({batch, s.m, s.n}, {.device = "cpu"});
  return {.name = fmt::format("bmm {} of {} x {} x {}", batch, s.m, s.k, s.n),
          .ours = [a, b] { (void)bmm(a, b); },
          .plain =
              [a, b, c, s, batch] {
                for (std::int64_t i = 0; i < batch; ++i) {
                  cblas_sgemm(CblasRowMajor,
                              CblasNoTrans,
                              CblasNoTrans,
                              s.m,
                              s.n,
                              s.k,
                              1,
                              a.data<float>() + i * s.m * s.k,
                              s.k,
                              b.data<float>() + i * s.k * s.n,
                              s.n,
                              0,
                              c.data<float>() + i * s.m * s.n,
                              s.n);
                }
              },
          .wanted = wanted_of(s),
          .amount = batch * operations(s)};
}

std::vector<std::function<Duel()>> matrix_duels() {
  std::vector<std::function<Duel()>> out;
  for (const int side : {64, 128, 256, 512, 1024}) {
    out.emplace_back([side] { return matmul_duel<float>({side, side, side}, kF32, "matmul"); });
  }
  out.emplace_back([] { return matmul_duel<float>({64, 1024, 4096}, kF32, "matmul"); });
  out.emplace_back([] { return matmul_duel<double>({512, 512, 512}, kF64, "matmul f64"); });
  out.emplace_back([] { return linear_duel({256, 1024, 1024}); });
  out.emplace_back([] { return bmm_duel(32, {128, 128, 64}); });
  return out;
}

// --- Elements -----------------------------------------------------------------------------------

// Arrays of one size, shared by all duels: nothing is measured that the allocator does first.
class Elements {
 public:
  Elements(std::uint64_t size_bytes, int threads)
      : count_(static_cast<std::int64_t>(size_bytes / sizeof(float)) / kRow * kRow),
        threads_(threads),
        a_(rand({count_ / kRow, kRow}, {.device = "cpu"})),
        b_(rand({count_ / kRow, kRow}, {.device = "cpu"})),
        out_(zeros({count_ / kRow, kRow}, {.device = "cpu"})) {}

  [[nodiscard]] std::vector<Duel> duels() const {
    const Tensor a = a_;
    const Tensor b = b_;
    const Tensor row = b_[0];
    const Tensor out = out_;
    return {
        duel(
            "add", 3, [a, b] { (void)(a + b); }, [l = loop()] { plain::add(l); }),
        duel(
            "add a row", 2, [a, row] { (void)(a + row); }, [l = loop(kRow)] { plain::add_row(l); }),
        duel(
            "mul by a number", 2, [a] { (void)(a * 2.5); }, [l = loop()] { plain::scale(l); }),
        duel(
            "relu", 2, [a] { (void)relu(a); }, [l = loop()] { plain::relu(l); }),
        duel(
            "add_", 3, [out, b] { out.add_(b); }, [l = in_place()] { plain::add(l); }),
        duel(
            "clone", 2, [a] { (void)a.clone(); }, [l = loop()] { plain::copy(l); }),
        duel(
            "exp", 2, [a] { (void)exp(a); }, [l = loop()] { plain::exponential(l); }),
        duel(
            "sum", 1, [a] { (void)sum(a); }, [l = loop()] { (void)plain::sum(l); })};
  }

 private:
  static constexpr std::int64_t kRow = 4096;

  [[nodiscard]] plain::Loop loop(std::int64_t row = 1) const {
    return {.out = out_.data<float>(),
            .a = a_.data<float>(),
            .b = b_.data<float>(),
            .count = count_,
            .row = row,
            .threads = threads_};
  }
  [[nodiscard]] plain::Loop in_place() const {
    plain::Loop out = loop();
    out.a = out.out;
    return out;
  }
  [[nodiscard]] Duel duel(std::string name, int arrays, Work ours, Work plain) const {
    return {.name = std::move(name),
            .ours = std::move(ours),
            .plain = std::move(plain),
            .wanted = 0.8,
            .amount = static_cast<double>(arrays) * static_cast<double>(count_) * sizeof(float)};
  }

  std::int64_t count_;
  int threads_;
  Tensor a_;
  Tensor b_;
  Tensor out_;
};

// --- Dispatch -----------------------------------------------------------------------------------

// The quickest of short batches: one that is interrupted does not count.
double dispatch_round_ns(const Work& work) {
  constexpr int kBatches = 100;
  constexpr int kRepeats = 200;
  std::vector<double> batches;
  batches.reserve(kBatches);
  for (int i = 0; i < kBatches; ++i) batches.push_back(time_us(work, kRepeats) * 1000);
  return spread_of(std::move(batches)).low;
}

std::vector<DispatchCost> dispatch(int rounds) {
  const TensorOptions here{.device = "cpu"};
  const Tensor x = rand({2, 2}, here);
  const Tensor y = rand({2, 2}, here);
  const std::vector<std::pair<std::string, Work>> ops{
      {"add", [&] { (void)(x + y); }},
      {"add a number", [&] { (void)(x + 1); }},
      {"relu", [&] { (void)relu(x); }},
      {"add_", [&] { x.add_(y); }},
      {"sum", [&] { (void)sum(x); }},
      {"transpose", [&] { (void)x.transpose(0, 1); }},
      {"matmul", [&] { (void)matmul(x, y); }}};
  std::vector<DispatchCost> out;
  for (const auto& [name, work] : ops) {
    (void)time_us(work, 1000);
    std::vector<double> samples;
    samples.reserve(static_cast<std::size_t>(rounds));
    for (int i = 0; i < rounds; ++i) samples.push_back(dispatch_round_ns(work));
    out.push_back({.name = name, .ns = spread_of(samples)});
  }
  return out;
}

}  // namespace

OpsBench bench_ops(const OpsBenchOptions& options, const Progress& progress) {
  const GradModeScope no_grad(false);
  OpsBench bench{.device = "cpu:0", .threads = bench_threads(), .size_bytes = options.size_bytes};
  openblas_set_num_threads(bench.threads);
  const auto is_asked = [&](const std::string& group, const std::string& name) {
    return (group + ": " + name).find(options.filter) != std::string::npos;
  };
  const auto measure = [&](const Duel& duel, std::vector<OpCost>& costs) {
    progress("measuring " + duel.name);
    costs.push_back(fight(duel, options.rounds));
  };
  const auto measure_layers = [&](const std::string& group,
                                  const std::vector<DuelMaker>& makers,
                                  std::vector<OpCost>& costs) {
    for (const DuelMaker& maker : makers) {
      if (is_asked(group, maker.name)) measure(maker.make(maker.name), costs);
    }
  };
  if (is_asked("dispatch", "")) {
    progress("measuring dispatch");
    bench.dispatch = dispatch(options.rounds);
  }
  for (const auto& make : matrix_duels()) {
    const Duel duel = make();
    if (is_asked("matrices", duel.name)) measure(duel, bench.matrices);
  }
  measure_layers("convolutions", convolution_duels(bench.threads), bench.convolutions);
  measure_layers("attention", attention_duels(), bench.attention);
  for (const Duel& duel : Elements(options.size_bytes, bench.threads).duels()) {
    if (is_asked("elements", duel.name)) measure(duel, bench.elements);
  }
  progress("");
  return bench;
}

}  // namespace headroom::cli
