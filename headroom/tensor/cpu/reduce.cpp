// Every reduction is: fold a block of elements into a small state, merge states, finish. Blocks and
// the cuts between states depend on shapes alone, and partial sums are kept in f64, so the result
// has the same bits whatever the number of threads, and its error does not grow with the length.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "headroom/tensor/cpu/internal/exponential.h"
#include "headroom/tensor/cpu/internal/sums.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

template <class C>
struct Sum {
  using State = Wide<C>;
  static State start() { return {}; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    wide([&s, x, count] { s += add_up<C>(count, [x](std::int64_t i) { return x[i]; }); });
  }
  static void merge(State& s, const State& o) { s += o; }
  static C finish(const State& s, double, double) { return static_cast<C>(s); }
};

template <class C>
struct Mean : Sum<C> {
  static C finish(const typename Sum<C>::State& s, double count, double) {
    return static_cast<C>(static_cast<double>(s) / count);
  }
};

template <class C>
struct Norm1 : Sum<C> {
  static void fold(Wide<C>& s, const C* x, std::int64_t count, std::int64_t) {
    s += add_up<C>(count, [x](std::int64_t i) { return x[i] < C{0} ? -x[i] : x[i]; });
  }
};

// Squares in f64: those of an f32 may pass its range.
template <class C>
struct Norm2 {
  using State = double;
  static State start() { return 0; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    double lanes[4] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      lanes[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    s += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
  static void merge(State& s, const State& o) { s += o; }
  static C finish(const State& s, double, double) { return static_cast<C>(std::sqrt(s)); }
};

template <class C>
struct NormInf {
  using State = C;
  static State start() { return 0; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    for (std::int64_t i = 0; i < count; ++i) merge(s, x[i] < C{0} ? static_cast<C>(-x[i]) : x[i]);
  }
  static void merge(State& s, const State& o) { s = o != o || o > s ? o : s; }
  static C finish(const State& s, double, double) { return s; }
};

template <class C>
struct Prod {
  using State = std::conditional_t<std::is_floating_point_v<C>, double, std::uint64_t>;
  static State start() { return 1; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    for (std::int64_t i = 0; i < count; ++i) s *= static_cast<State>(x[i]);
  }
  static void merge(State& s, const State& o) { s *= o; }
  static C finish(const State& s, double, double) { return static_cast<C>(s); }
};

// The first extreme, NaN before all.
template <class C, bool kLargest>
struct Extreme {
  struct State {
    C value;
    std::int64_t index;
  };
  static State start() { return {C{0}, -1}; }
  static bool beats(C a, C b) { return (a != a && b == b) || (kLargest ? a > b : a < b); }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t first) {
    for (std::int64_t i = 0; i < count; ++i) merge(s, {x[i], first + i});
  }
  static void merge(State& s, const State& o) {
    if (o.index >= 0 && (s.index < 0 || beats(o.value, s.value))) s = o;
  }
  static C finish(const State& s, double, double) { return s.value; }
};

template <class C, bool kAny>
struct Test {
  using State = std::uint8_t;  // not bool, of which a vector packs eight into a byte
  static State start() { return kAny ? 0 : 1; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    for (std::int64_t i = 0; i < count; ++i) merge(s, static_cast<State>(x[i] != C{0}));
  }
  static void merge(State& s, const State& o) { s = static_cast<State>(kAny ? s | o : s & o); }
  static C finish(const State& s, double, double) { return static_cast<C>(s); }
};

// Chan, Golub and LeVeque: counts, means and squared deviations of parts can be merged.
template <class C>
struct Var {
  struct State {
    double count, mean, squares;
  };
  static State start() { return {0, 0, 0}; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    const auto n = static_cast<double>(count);
    const double mean =
        static_cast<double>(add_up<C>(count, [x](std::int64_t i) { return x[i]; })) / n;
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double d = static_cast<double>(x[i]) - mean;
      squares += d * d;
    }
    merge(s, {n, mean, squares});
  }
  static void merge(State& s, const State& o) {
    if (o.count == 0) return;
    const double count = s.count + o.count;
    const double delta = o.mean - s.mean;
    s = {count,
         s.mean + delta * o.count / count,
         s.squares + o.squares + delta * delta * s.count * o.count / count};
  }
  static C finish(const State& s, double, double correction) {
    return static_cast<C>(s.squares / std::max(s.count - correction, 0.0));
  }
};

template <class C>
struct LogSumExp {
  struct State {
    double max, sum;
  };
  static State start() { return {-std::numeric_limits<double>::infinity(), 0}; }
  static void fold(State& s, const C* x, std::int64_t count, std::int64_t) {
    C max = x[0];
    for (std::int64_t i = 1; i < count; ++i) max = x[i] > max ? x[i] : max;
    if (!std::isfinite(max)) {
      // Infinities and NaN by themselves: their difference is not a number.
      for (std::int64_t i = 0; i < count; ++i) merge(s, {static_cast<double>(x[i]), 1});
      return;
    }
    merge(s, {static_cast<double>(max), add_up<C>(count, [x, max](std::int64_t i) {
                return exponential(x[i] - max);
              })});
  }
  static void merge(State& s, const State& o) {
    if (s.max == o.max) {
      s.sum += o.sum;
      return;
    }
    // The larger one is not scaled: where it is infinite, its difference from itself is no number.
    if (o.max > s.max || o.max != o.max) {
      s = {o.max, o.sum + s.sum * std::exp(s.max - o.max)};
    } else {
      s.sum += o.sum * std::exp(o.max - s.max);
    }
  }
  static C finish(const State& s, double, double) {
    return static_cast<C>(s.max + std::log(s.sum));
  }
};

std::int64_t product(const Shape& shape) {
  std::int64_t out = 1;
  for (const std::int64_t size : shape) out *= size;
  return out;
}

// The elements of one reduction.
template <class C>
class Reduction {
 public:
  explicit Reduction(const ReduceArgs& args)
      : args_(args),
        outputs_(product(args.kept)),
        count_(product(args.reduced)),
        element_bytes_(static_cast<std::int64_t>(headroom::size_bytes(args.in.dtype))),
        inner_{.dtype = args.in.dtype} {
    std::copy(
        args.in.strides.begin() + args.kept.size(), args.in.strides.end(), inner_.strides.begin());
  }

  [[nodiscard]] std::int64_t outputs() const { return outputs_; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const ReduceArgs& args() const { return args_; }

  // Folds elements [begin, end) of output `at` into the state.
  template <class R>
  void fold(typename R::State& state,
            std::int64_t at,
            std::int64_t begin,
            std::int64_t end,
            Block<C>& buffer) const {
    Operand row = inner_;
    row.data = static_cast<char*>(args_.in.data) + offset_of(at) * element_bytes_;
    for (std::int64_t i = begin; i < end; i += kBlock) {
      const std::int64_t n = std::min(kBlock, end - i);
      R::fold(state, read(row, args_.reduced, i, n, buffer.values), n, i);
    }
  }

  template <class R>
  void finish(std::int64_t at, const typename R::State& state) const {
    const C value = R::finish(state, static_cast<double>(count_), args_.parameter);
    put(at, value);
  }

  void put(std::int64_t at, C value) const {
    const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args_.out_dtype));
    store_run(static_cast<char*>(args_.out) + at * bytes, args_.out_dtype, 1, 1, &value);
  }

 private:
  [[nodiscard]] std::int64_t offset_of(std::int64_t at) const {
    std::int64_t offset = 0;
    for (int i = args_.kept.size() - 1; i >= 0; --i) {
      offset += at % args_.kept[i] * args_.in.strides[static_cast<std::size_t>(i)];
      at /= args_.kept[i];
    }
    return offset;
  }

  const ReduceArgs& args_;
  std::int64_t outputs_;
  std::int64_t count_;
  std::int64_t element_bytes_;
  Operand inner_;
};

constexpr std::int64_t kPart = 64 * kBlock;

// A few long rows: parts of each in parallel, merged in order.
template <class R, class C, class Finish>
void reduce_parts(const Reduction<C>& reduction, std::int64_t at, Finish&& finish) {
  const std::int64_t parts = (reduction.count() + kPart - 1) / kPart;
  std::vector<typename R::State> states;
  for (std::int64_t i = 0; i < parts; ++i) states.push_back(R::start());
  parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    Block<C> buffer;
    for (std::int64_t i = begin; i < end; ++i) {
      auto state = R::start();
      const std::int64_t first = i * kPart;
      reduction.template fold<R>(
          state, at, first, std::min(first + kPart, reduction.count()), buffer);
      states[static_cast<std::size_t>(i)] = state;
    }
  });
  auto total = R::start();
  for (const auto& state : states) R::merge(total, state);
  finish(at, total);
}

// Rows in parallel.
template <class R, class C, class Finish>
void reduce_rows(const Reduction<C>& reduction, Finish&& finish) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, reduction.count()));
  parallel_for(reduction.outputs(), grain, [&](std::int64_t begin, std::int64_t end) {
    Block<C> buffer;
    for (std::int64_t at = begin; at < end; ++at) {
      auto state = R::start();
      reduction.template fold<R>(state, at, 0, reduction.count(), buffer);
      finish(at, state);
    }
  });
}

template <class R, class C, class Finish>
void reduce_with(const Reduction<C>& reduction, Finish&& finish) {
  constexpr std::int64_t kFew = 16;
  if (reduction.outputs() > kFew || reduction.count() <= kPart) {
    reduce_rows<R>(reduction, finish);
    return;
  }
  for (std::int64_t at = 0; at < reduction.outputs(); ++at) reduce_parts<R>(reduction, at, finish);
}

template <class R, class C>
void reduce_values(const Reduction<C>& reduction) {
  reduce_with<R>(reduction, [&](std::int64_t at, const typename R::State& state) {
    reduction.template finish<R>(at, state);
  });
}

template <class R, class C>
void reduce_extreme(const Reduction<C>& reduction) {
  const ReduceArgs& args = reduction.args();
  const bool only_index = args.op == ReduceOp::kArgmax || args.op == ReduceOp::kArgmin;
  reduce_with<R>(reduction, [&](std::int64_t at, const typename R::State& state) {
    if (args.index_out != nullptr) args.index_out[at] = state.index;
    if (only_index) {
      static_cast<std::int64_t*>(args.out)[at] = state.index;
    } else {
      reduction.put(at, state.value);
    }
  });
}

// --- Columns ------------------------------------------------------------------------------------

// Elements of a column lie a row apart: rows are added to a strip of columns at a time, so that
// memory is read in order.
template <class C>
class ColumnSum {
 public:
  ColumnSum(const ReduceArgs& args, bool is_mean)
      : args_(args),
        columns_(args.kept[args.kept.size() - 1]),
        rows_(product(args.reduced)),
        bands_(product(args.kept) / std::max<std::int64_t>(columns_, 1)),
        is_mean_(is_mean) {}

  static bool applies(const ReduceArgs& args) {
    const int last = args.kept.size() - 1;
    if (last < 0 || args.kept[last] < 8 || args.reduced.size() != 1) return false;
    return args.in.strides[static_cast<std::size_t>(last)] == 1;
  }

  void run() const {
    const std::int64_t strips = (columns_ + kBlock - 1) / kBlock;
    const std::int64_t grain =
        std::max<std::int64_t>(1, kGrain / (kBlock * std::max<std::int64_t>(rows_, 1)));
    parallel_for(bands_ * strips, grain, [&](std::int64_t begin, std::int64_t end) {
      Buffers buffers;
      for (std::int64_t i = begin; i < end; ++i)
        add_strip(i / strips, i % strips * kBlock, buffers);
    });
  }

 private:
  struct Buffers {
    Block<C> row;
    Block<C> part;
    Block<Wide<C>> total;
  };

  void add_strip(std::int64_t band, std::int64_t first, Buffers& b) const {
    const std::int64_t width = std::min(kBlock, columns_ - first);
    const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args_.in.dtype));
    const std::int64_t start = band_offset(band) + first;
    const std::int64_t stride = args_.in.strides[static_cast<std::size_t>(args_.kept.size())];
    std::fill_n(b.total.values, width, Wide<C>{});
    constexpr std::int64_t kRows = 64;  // summed in C before they go to the wide totals
    for (std::int64_t row = 0; row < rows_; row += kRows) {
      std::fill_n(b.part.values, width, C{0});
      for (std::int64_t i = row; i < std::min(row + kRows, rows_); ++i) {
        const char* data = static_cast<const char*>(args_.in.data) + (start + i * stride) * bytes;
        add_row(data, width, b);
      }
      for (std::int64_t j = 0; j < width; ++j) {
        b.total.values[j] += static_cast<Wide<C>>(b.part.values[j]);
      }
    }
    finish(band * columns_ + first, width, b);
  }

  void add_row(const char* data, std::int64_t width, Buffers& b) const {
    const auto* row = reinterpret_cast<const C*>(data);
    if (args_.in.dtype != kNative<C>) {
      load_run(data, args_.in.dtype, 1, width, b.row.values);
      row = b.row.values;
    }
    using Adding = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;
    wide([=, part = b.part.values] {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < width; ++j) {
        part[j] = static_cast<C>(static_cast<Adding>(part[j]) + static_cast<Adding>(row[j]));
      }
    });
  }

  void finish(std::int64_t at, std::int64_t width, Buffers& b) const {
    for (std::int64_t j = 0; j < width; ++j) {
      b.row.values[j] =
          is_mean_
              ? static_cast<C>(static_cast<double>(b.total.values[j]) / static_cast<double>(rows_))
              : static_cast<C>(b.total.values[j]);
    }
    const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args_.out_dtype));
    store_run(static_cast<char*>(args_.out) + at * bytes, args_.out_dtype, 1, width, b.row.values);
  }

  [[nodiscard]] std::int64_t band_offset(std::int64_t band) const {
    std::int64_t offset = 0;
    for (int i = args_.kept.size() - 2; i >= 0; --i) {
      offset += band % args_.kept[i] * args_.in.strides[static_cast<std::size_t>(i)];
      band /= args_.kept[i];
    }
    return offset;
  }

  const ReduceArgs& args_;
  std::int64_t columns_;
  std::int64_t rows_;
  std::int64_t bands_;
  bool is_mean_;
};

template <class C>
void reduce_as(const ReduceArgs& args) {
  using enum ReduceOp;
  const bool is_sum = args.op == kSum || args.op == kMean;
  if (is_sum && ColumnSum<C>::applies(args)) return ColumnSum<C>(args, args.op == kMean).run();
  const Reduction<C> reduction(args);
  switch (args.op) {
    case kSum:
      return reduce_values<Sum<C>>(reduction);
    case kMean:
      return reduce_values<Mean<C>>(reduction);
    case kProd:
      return reduce_values<Prod<C>>(reduction);
    case kMax:
    case kArgmax:
      return reduce_extreme<Extreme<C, true>>(reduction);
    case kMin:
    case kArgmin:
      return reduce_extreme<Extreme<C, false>>(reduction);
    case kAny:
      return reduce_values<Test<C, true>>(reduction);
    case kAll:
      return reduce_values<Test<C, false>>(reduction);
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    switch (args.op) {
      case kNorm1:
        return reduce_values<Norm1<C>>(reduction);
      case kNorm2:
        return reduce_values<Norm2<C>>(reduction);
      case kNormInf:
        return reduce_values<NormInf<C>>(reduction);
      case kVar:
        return reduce_values<Var<C>>(reduction);
      default:
        return reduce_values<LogSumExp<C>>(reduction);
    }
  }
}

}  // namespace

void reduce(const ReduceArgs& args, const Launch&) {
  with_compute_type(args.compute, [&]<class C>() { reduce_as<C>(args); });
}

}  // namespace headroom::tensor::cpu
