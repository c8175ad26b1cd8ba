// Rows are read a block at a time, so that a row as long as a vocabulary needs no copy of itself.
#include <cmath>
#include <limits>

#include "headroom/tensor/cpu/internal/exponential.h"
#include "headroom/tensor/cpu/internal/sums.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// One row of a [outer, classes, inner] array of any floating type, read and written in blocks of C.
template <class C>
class Row {
 public:
  Row(const void* data, DType dtype, const RowsShape& rows, std::int64_t at)
      : dtype_(dtype),
        stride_(rows.inner),
        bytes_(static_cast<std::int64_t>(headroom::size_bytes(dtype))) {
    const std::int64_t start = at / rows.inner * rows.classes * rows.inner + at % rows.inner;
    // Rows of outputs are written to by the function that has them as such.
    data_ = const_cast<char*>(static_cast<const char*>(data)) + start * bytes_;
  }

  const C* read(std::int64_t first, std::int64_t count, C* buffer) const {
    if (is_direct()) return reinterpret_cast<const C*>(data_) + first;
    load_run(data_ + first * stride_ * bytes_, dtype_, stride_, count, buffer);
    return buffer;
  }
  // Where a block is computed: in place, or in `buffer`; write() brings it home.
  [[nodiscard]] C* place(std::int64_t first, C* buffer) const {
    return is_direct() ? reinterpret_cast<C*>(data_) + first : buffer;
  }
  void write(std::int64_t first, std::int64_t count, const C* from) const {
    if (is_direct()) return;
    store_run(data_ + first * stride_ * bytes_, dtype_, stride_, count, from);
  }
  [[nodiscard]] C at(std::int64_t index) const {
    C out{};
    load_run(data_ + index * stride_ * bytes_, dtype_, 1, 1, &out);
    return out;
  }

 private:
  [[nodiscard]] bool is_direct() const { return dtype_ == kNative<C> && stride_ == 1; }

  char* data_ = nullptr;
  DType dtype_;
  std::int64_t stride_;
  std::int64_t bytes_;
};

template <class F>
void for_blocks(std::int64_t count, F&& f) {
  for (std::int64_t first = 0; first < count; first += kBlock)
    f(first, std::min(kBlock, count - first));
}

template <class C>
C largest_of_row(const Row<C>& row, std::int64_t classes, Block<C>& buffer) {
  C max = -std::numeric_limits<C>::infinity();
  for_blocks(classes, [&](std::int64_t first, std::int64_t count) {
    const C* x = row.read(first, count, buffer.values);
    wide([&] { max = largest(x, count, max); });
  });
  return max;
}

// The largest of a row and the sum of exp(x - largest). They are used one after the other, never as
// their log-sum-exp: beside large logits its rounding would be larger than what is left of them.
template <class C>
struct Normalizer {
  C max;
  double sum = 0;

  Normalizer(const Row<C>& row, std::int64_t classes, Block<C>& buffer)
      : max(largest_of_row(row, classes, buffer)) {
    for_blocks(classes, [&](std::int64_t first, std::int64_t count) {
      const C* x = row.read(first, count, buffer.values);
      wide([this, x, count, shift = max] {
        sum += add_up<C>(count, [x, shift](std::int64_t i) { return exponential(x[i] - shift); });
      });
    });
  }
};

template <class F>
void for_rows(const RowsShape& rows, F&& f) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / 8 / std::max<std::int64_t>(rows.classes, 1));
  parallel_for(rows.outer * rows.inner, grain, f);
}

template <class C>
void softmax_as(const SoftmaxArgs& args) {
  for_rows(args.rows, [&](std::int64_t begin, std::int64_t end) {
    Block<C> in;
    Block<C> out;
    for (std::int64_t at = begin; at < end; ++at) {
      const Row<C> x(args.in, args.dtype, args.rows, at);
      const Row<C> y(args.out, args.dtype, args.rows, at);
      const Normalizer<C> norm(x, args.rows.classes, in);
      const C scale = static_cast<C>(1 / norm.sum);
      const C log_sum = static_cast<C>(std::log(norm.sum));
      for_blocks(args.rows.classes, [&](std::int64_t first, std::int64_t count) {
        const C* from = x.read(first, count, in.values);
        C* const to = y.place(first, out.values);
        wide([=, shift = norm.max, is_log = args.is_log] {
          if (is_log) {
            for (std::int64_t i = 0; i < count; ++i) to[i] = (from[i] - shift) - log_sum;
          } else {
            for (std::int64_t i = 0; i < count; ++i) to[i] = exponential(from[i] - shift) * scale;
          }
        });
        y.write(first, count, to);
      });
    }
  });
}

// softmax: y * (g - sum(g * y)); log-softmax: g - exp(y) * sum(g).
template <class C>
void softmax_backward_as(const SoftmaxArgs& args) {
  for_rows(args.rows, [&](std::int64_t begin, std::int64_t end) {
    Block<C> ys;
    Block<C> gs;
    Block<C> out;
    for (std::int64_t at = begin; at < end; ++at) {
      const Row<C> y_row(args.in, args.dtype, args.rows, at);
      const Row<C> g_row(args.grad, args.dtype, args.rows, at);
      const Row<C> out_row(args.out, args.dtype, args.rows, at);
      double total = 0;
      for_blocks(args.rows.classes, [&](std::int64_t first, std::int64_t count) {
        const C* y = y_row.read(first, count, ys.values);
        const C* g = g_row.read(first, count, gs.values);
        wide([&] {
          total += args.is_log ? add_up<C>(count, [g](std::int64_t i) { return g[i]; })
                               : add_up<C>(count, [g, y](std::int64_t i) { return g[i] * y[i]; });
        });
      });
      const C sum = static_cast<C>(total);
      for_blocks(args.rows.classes, [&](std::int64_t first, std::int64_t count) {
        const C* y = y_row.read(first, count, ys.values);
        const C* g = g_row.read(first, count, gs.values);
        C* const to = out_row.place(first, out.values);
        wide([=, is_log = args.is_log] {
          if (is_log) {
            for (std::int64_t i = 0; i < count; ++i) to[i] = g[i] - exponential(y[i]) * sum;
          } else {
            for (std::int64_t i = 0; i < count; ++i) to[i] = y[i] * (g[i] - sum);
          }
        });
        out_row.write(first, count, to);
      });
    }
  });
}

template <class C>
std::int64_t count_targets(const CrossEntropyArgs& args) {
  std::int64_t count = 0;
  for (std::int64_t at = 0; at < args.rows.outer * args.rows.inner; ++at) {
    count += static_cast<std::int64_t>(args.target[at] != args.ignore_index);
  }
  return count;
}

// One number per row is kept for the way back. At least 0, it is the loss: probabilities are
// exp(x - target's logit) * exp(-loss), and that logit is read again at no cost. Where it lies too
// far below the largest for their difference to be exact, the number is minus the sum of exp(x -
// largest), and the largest costs a pass to find again.
template <class C>
C kept_of(const Normalizer<C>& norm, double below_largest, C loss) {
  constexpr double kNear = 16;
  return below_largest <= kNear ? loss : static_cast<C>(-norm.sum);
}

template <class C>
void cross_entropy_forward(const CrossEntropyArgs& args) {
  auto* losses = static_cast<C*>(args.losses);
  auto* kept = static_cast<C*>(args.kept);
  for_rows(args.rows, [&](std::int64_t begin, std::int64_t end) {
    Block<C> buffer;
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t target = args.target[at];
      losses[at] = 0;
      if (kept != nullptr) kept[at] = 0;
      if (target == args.ignore_index) continue;
      const Row<C> row(args.logits, args.dtype, args.rows, at);
      const Normalizer<C> norm(row, args.rows.classes, buffer);
      const double below = static_cast<double>(norm.max) - static_cast<double>(row.at(target));
      losses[at] = static_cast<C>(below + std::log(norm.sum));
      if (kept != nullptr) kept[at] = kept_of(norm, below, losses[at]);
    }
  });
  if (args.out == nullptr) return;
  double total = 0;
  for (std::int64_t at = 0; at < args.rows.outer * args.rows.inner; ++at)
    total += static_cast<double>(losses[at]);
  if (args.is_mean) total /= static_cast<double>(count_targets<C>(args));
  const C result = static_cast<C>(total);
  store_run(args.out, args.dtype, 1, 1, &result);
}

// softmax(x) * scale, less scale at the target.
template <class C>
void cross_entropy_row(
    const Row<C>& x, const Row<C>& dx, const CrossEntropyArgs& args, std::int64_t at, C scale) {
  Block<C> in;
  Block<C> out;
  const std::int64_t target = args.target[at];
  const C kept = static_cast<const C*>(args.kept)[at];
  const bool is_loss = kept >= C{0};
  const C shift = is_loss ? x.at(target) : largest_of_row(x, args.rows.classes, in);
  const C factor = is_loss ? scale * exponential(-kept) : scale / -kept;
  for_blocks(args.rows.classes, [&](std::int64_t first, std::int64_t count) {
    const C* from = x.read(first, count, in.values);
    C* const to = dx.place(first, out.values);
    wide([=] {
      for (std::int64_t i = 0; i < count; ++i) to[i] = factor * exponential(from[i] - shift);
    });
    if (target >= first && target < first + count) to[target - first] -= scale;
    dx.write(first, count, to);
  });
}

template <class C>
void clear_row(const Row<C>& row, std::int64_t classes) {
  Block<C> out;
  for_blocks(classes, [&](std::int64_t first, std::int64_t count) {
    C* const to = row.place(first, out.values);
    std::fill_n(to, count, C{0});
    row.write(first, count, to);
  });
}

template <class C>
void cross_entropy_backward(const CrossEntropyArgs& args) {
  const double divisor = args.is_mean ? static_cast<double>(count_targets<C>(args)) : 1;
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args.dtype));
  for_rows(args.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const Row<C> x(args.logits, args.dtype, args.rows, at);
      const Row<C> dx(args.out, args.dtype, args.rows, at);
      C grad{};
      load_run(static_cast<const char*>(args.grad) + (args.grad_is_row ? at : 0) * bytes,
               args.dtype,
               1,
               1,
               &grad);
      const C scale = static_cast<C>(static_cast<double>(grad) / divisor);
      if (args.target[at] == args.ignore_index || scale == C{0}) {
        clear_row(dx, args.rows.classes);
      } else {
        cross_entropy_row(x, dx, args, at, scale);
      }
    }
  });
}

template <class F>
void with_row_type(DType dtype, F&& f) {
  dtype == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace

void softmax(const SoftmaxArgs& args, const Launch&) {
  with_row_type(args.dtype, [&]<class C>() { softmax_as<C>(args); });
}

void softmax_backward(const SoftmaxArgs& args, const Launch&) {
  with_row_type(args.dtype, [&]<class C>() { softmax_backward_as<C>(args); });
}

void cross_entropy(const CrossEntropyArgs& args, const Launch&) {
  with_row_type(args.dtype, [&]<class C>() {
    args.is_backward ? cross_entropy_backward<C>(args) : cross_entropy_forward<C>(args);
  });
}

}  // namespace headroom::tensor::cpu
