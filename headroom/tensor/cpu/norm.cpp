// Norms. The mean comes first and then the squares of what is left, so that a large mean costs no
// digits; sums are blocks in f32 added up in f64 (sums.h).
#include <algorithm>
#include <cmath>

#include "headroom/tensor/cpu/internal/sums.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// A group that is normalised together: runs of elements, `step` apart in each, `gap` from run to
// run. A row of layer norm is one run, a channel of batch norm one for each image.
struct Group {
  std::int64_t start;
  std::int64_t runs;
  std::int64_t gap;
  std::int64_t length;
  std::int64_t step;

  [[nodiscard]] std::int64_t count() const { return runs * length; }
};

// The elements of a group, block by block.
template <class C>
class Elements {
 public:
  Elements(const void* data, DType dtype, const Group& group)
      : data_(const_cast<char*>(static_cast<const char*>(data))),
        dtype_(dtype),
        bytes_(static_cast<std::int64_t>(headroom::size_bytes(dtype))),
        group_(group) {}

  // From element `first` of run `run`.
  [[nodiscard]] const C* read(std::int64_t run,
                              std::int64_t first,
                              std::int64_t count,
                              Block<C>& buffer) const {
    char* at = place(run, first);
    if (is_direct()) return reinterpret_cast<const C*>(at);
    load_run(at, dtype_, group_.step, count, buffer.values);
    return buffer.values;
  }
  // Where a block is computed: in place, or in `buffer`; write() brings it home.
  [[nodiscard]] C* to(std::int64_t run, std::int64_t first, Block<C>& buffer) const {
    return is_direct() ? reinterpret_cast<C*>(place(run, first)) : buffer.values;
  }
  void write(std::int64_t run, std::int64_t first, std::int64_t count, const C* from) const {
    if (!is_direct()) store_run(place(run, first), dtype_, group_.step, count, from);
  }
  // To what is there.
  void add(std::int64_t run,
           std::int64_t first,
           std::int64_t count,
           const C* from,
           Block<C>& buffer) const {
    (void)read(run, first, count, buffer);
    C* const sum = to(run, first, buffer);
    for (std::int64_t i = 0; i < count; ++i) sum[i] += from[i];
    write(run, first, count, sum);
  }

 private:
  [[nodiscard]] bool is_direct() const { return dtype_ == kNative<C> && group_.step == 1; }
  [[nodiscard]] char* place(std::int64_t run, std::int64_t first) const {
    return data_ + (group_.start + run * group_.gap + first * group_.step) * bytes_;
  }

  char* data_;
  DType dtype_;
  std::int64_t bytes_;
  const Group& group_;
};

template <class F>
void for_group(const Group& group, F&& f) {
  for (std::int64_t run = 0; run < group.runs; ++run) {
    for (std::int64_t first = 0; first < group.length; first += kBlock) {
      f(run, first, std::min(kBlock, group.length - first));
    }
  }
}

struct Moments {
  double mean = 0;
  double var = 0;  // divided by the count
};

template <class C>
Moments moments_of(const Elements<C>& x, const Group& group) {
  Block<C> buffer;
  const auto count = static_cast<double>(group.count());
  Moments out;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, buffer);
    wide([&out, from, n] { out.mean += add_up<C>(n, [from](std::int64_t i) { return from[i]; }); });
  });
  out.mean /= count;
  const C shift = static_cast<C>(out.mean);
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, buffer);
    wide([&out, from, shift, n] {
      out.var += add_up<C>(
          n, [from, shift](std::int64_t i) { return (from[i] - shift) * (from[i] - shift); });
    });
  });
  const double rest = out.mean - static_cast<double>(shift);  // what rounding the mean left
  out.var = std::max(out.var / count - rest * rest, 0.0);
  return out;
}

// Numbers beside a group: one of them, or as many as a run.
template <class C>
C number_at(const void* data, DType dtype, std::int64_t at, C otherwise) {
  if (data == nullptr) return otherwise;
  C out{};
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(dtype));
  load_run(static_cast<const char*>(data) + at * bytes, dtype, 1, 1, &out);
  return out;
}

template <class C>
void put_number(void* data, DType dtype, std::int64_t at, double value) {
  if (data == nullptr) return;
  const C own = static_cast<C>(value);
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(dtype));
  store_run(static_cast<char*>(data) + at * bytes, dtype, 1, 1, &own);
}

// A stretch of parameters of layer norm.
template <class C>
const C* parameters(const void* data,
                    DType dtype,
                    std::int64_t first,
                    std::int64_t count,
                    C otherwise,
                    Block<C>& buffer) {
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(dtype));
  if (data != nullptr && dtype == kNative<C>) return static_cast<const C*>(data) + first;
  if (data == nullptr) {
    std::fill_n(buffer.values, count, otherwise);
  } else {
    load_run(static_cast<const char*>(data) + first * bytes, dtype, 1, count, buffer.values);
  }
  return buffer.values;
}

std::int64_t group_grain(std::int64_t count) {
  return std::max<std::int64_t>(1, kGrain / 8 / std::max<std::int64_t>(count, 1));
}

// --- Layer norm
// -----------------------------------------------------------------------------------

Group row_group(const LayerNormArgs& a, std::int64_t row) {
  return {.start = row * a.width, .runs = 1, .gap = 0, .length = a.width, .step = 1};
}

template <class C>
void normalize_row(const LayerNormArgs& a, std::int64_t row) {
  const Group group = row_group(a, row);
  const Elements<C> x(a.x, a.dtype, group);
  const Elements<C> y(a.y, a.dtype, group);
  const Moments moments = moments_of(x, group);
  const C mean = static_cast<C>(moments.mean);
  const C rstd = static_cast<C>(1 / std::sqrt(moments.var + a.eps));
  if (a.mean != nullptr) static_cast<C*>(a.mean)[row] = mean;
  if (a.rstd != nullptr) static_cast<C*>(a.rstd)[row] = rstd;
  Block<C> in;
  Block<C> weights;
  Block<C> biases;
  Block<C> out;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, in);
    const C* w = parameters(a.weight, a.parameter_dtype, first, n, C{1}, weights);
    const C* b = parameters(a.bias, a.parameter_dtype, first, n, C{0}, biases);
    C* const to = y.to(run, first, out);
    wide([=] {
      for (std::int64_t i = 0; i < n; ++i) to[i] = (from[i] - mean) * rstd * w[i] + b[i];
    });
    y.write(run, first, n, to);
  });
}

// With h = g * weight and z = (x - mean) * rstd: rstd * (h - mean(h) - z * mean(h z)).
template <class C>
void row_gradient(const LayerNormArgs& a, std::int64_t row) {
  const Group group = row_group(a, row);
  const Elements<C> x(a.x, a.dtype, group);
  const Elements<C> grad(a.grad, a.dtype, group);
  const Elements<C> to(a.x_grad, a.dtype, group);
  const C mean = static_cast<const C*>(a.mean)[row];
  const C rstd = static_cast<const C*>(a.rstd)[row];
  Block<C> xs;
  Block<C> gs;
  Block<C> weights;
  Block<C> out;
  Block<C> before;
  double sum = 0;
  double dot = 0;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, xs);
    const C* g = grad.read(run, first, n, gs);
    const C* w = parameters(a.weight, a.parameter_dtype, first, n, C{1}, weights);
    wide([=, &sum, &dot] {
      sum += add_up<C>(n, [=](std::int64_t i) { return g[i] * w[i]; });
      dot += add_up<C>(n, [=](std::int64_t i) { return g[i] * w[i] * ((from[i] - mean) * rstd); });
    });
  });
  const C sum_mean = static_cast<C>(sum / static_cast<double>(a.width));
  const C dot_mean = static_cast<C>(dot / static_cast<double>(a.width));
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, xs);
    const C* g = grad.read(run, first, n, gs);
    const C* w = parameters(a.weight, a.parameter_dtype, first, n, C{1}, weights);
    C* const place = a.adds_x_grad ? out.values : to.to(run, first, out);
    wide([=] {
      for (std::int64_t i = 0; i < n; ++i) {
        place[i] = rstd * (g[i] * w[i] - sum_mean - (from[i] - mean) * rstd * dot_mean);
      }
    });
    a.adds_x_grad ? to.add(run, first, n, place, before) : to.write(run, first, n, place);
  });
}

constexpr std::int64_t kStrip = 64;  // columns added up side by side

// Of the columns [first, first + count): down all rows, in order.
template <class C>
void column_gradients(const LayerNormArgs& a, std::int64_t first, std::int64_t count) {
  double weight_sums[kStrip] = {};
  double bias_sums[kStrip] = {};
  Block<C> xs;
  Block<C> gs;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const Group group = row_group(a, row);
    const C* x = Elements<C>(a.x, a.dtype, group).read(0, first, count, xs);
    const C* g = Elements<C>(a.grad, a.dtype, group).read(0, first, count, gs);
    const C mean = static_cast<const C*>(a.mean)[row];
    const C rstd = static_cast<const C*>(a.rstd)[row];
    wide([=, &weight_sums, &bias_sums] {
      for (std::int64_t i = 0; i < count; ++i) {
        weight_sums[i] += static_cast<double>(g[i] * ((x[i] - mean) * rstd));
        bias_sums[i] += static_cast<double>(g[i]);
      }
    });
  }
  for (std::int64_t i = 0; i < count; ++i) {
    put_number<C>(a.weight_grad, a.parameter_dtype, first + i, weight_sums[i]);
    put_number<C>(a.bias_grad, a.parameter_dtype, first + i, bias_sums[i]);
  }
}

template <class C>
void add_residual_row(const LayerNormArgs& a, std::int64_t row) {
  const Group group = row_group(a, row);
  const Elements<C> x(a.x, a.dtype, group);
  const Elements<C> residual(a.residual, a.residual_dtype, group);
  const Elements<C> sum(a.sum, a.dtype, group);
  Block<C> xs;
  Block<C> residuals;
  Block<C> out;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, xs);
    const C* other = residual.read(run, first, n, residuals);
    C* const to = sum.to(run, first, out);
    wide([=] {
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] + other[i];
    });
    sum.write(run, first, n, to);
  });
}

template <class C>
void residual_layer_norm_as(const LayerNormArgs& a) {
  LayerNormArgs own = a;
  own.x = a.sum;
  parallel_for(a.rows, group_grain(a.width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      add_residual_row<C>(a, row);
      normalize_row<C>(own, row);
    }
  });
}

template <class C>
void layer_norm_as(const LayerNormArgs& a) {
  if (!a.is_backward || a.x_grad != nullptr) {
    parallel_for(a.rows, group_grain(a.width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        a.is_backward ? row_gradient<C>(a, row) : normalize_row<C>(a, row);
      }
    });
  }
  if (a.weight_grad == nullptr && a.bias_grad == nullptr) return;
  const std::int64_t strips = (a.width + kStrip - 1) / kStrip;
  parallel_for(strips, group_grain(a.rows * kStrip), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip) {
      column_gradients<C>(a, strip * kStrip, std::min(kStrip, a.width - strip * kStrip));
    }
  });
}

// --- Batch norm
// -----------------------------------------------------------------------------------

Group channel_group(const BatchNormArgs& a, std::int64_t channel) {
  const std::int64_t image = a.channels * a.inner;
  if (a.inner == 1) {
    return {.start = channel, .runs = 1, .gap = 0, .length = a.batch, .step = image};
  }
  return {.start = channel * a.inner, .runs = a.batch, .gap = image, .length = a.inner, .step = 1};
}

template <class C>
void move_running(const BatchNormArgs& a, std::int64_t channel, const Moments& m, double count) {
  const auto move = [&a](void* data, std::int64_t at, double towards) {
    const auto now = static_cast<double>(number_at<C>(data, a.running_dtype, at, C{0}));
    put_number<C>(data, a.running_dtype, at, (1 - a.momentum) * now + a.momentum * towards);
  };
  move(a.running_mean, channel * a.running_mean_stride, m.mean);
  move(a.running_var, channel * a.running_var_stride, m.var * count / (count - 1));
}

template <class C>
struct Scale {
  C mean;
  C rstd;
};

// The numbers that normalise a channel in the forward.
template <class C>
Scale<C> scale_of(const BatchNormArgs& a, std::int64_t channel, const Group& group) {
  if (!a.uses_batch) {
    const C mean =
        number_at<C>(a.running_mean, a.running_dtype, channel * a.running_mean_stride, C{0});
    const C var =
        number_at<C>(a.running_var, a.running_dtype, channel * a.running_var_stride, C{1});
    return {mean, static_cast<C>(1 / std::sqrt(static_cast<double>(var) + a.eps))};
  }
  const Moments m = moments_of(Elements<C>(a.x, a.dtype, group), group);
  if (!a.is_backward) move_running<C>(a, channel, m, static_cast<double>(group.count()));
  return {static_cast<C>(m.mean), static_cast<C>(1 / std::sqrt(m.var + a.eps))};
}

template <class C>
void normalize_channel(const BatchNormArgs& a, std::int64_t channel) {
  const Group group = channel_group(a, channel);
  const Elements<C> x(a.x, a.dtype, group);
  const Elements<C> y(a.y, a.dtype, group);
  const Scale<C> scale = scale_of<C>(a, channel, group);
  if (a.mean != nullptr) static_cast<C*>(a.mean)[channel] = scale.mean;
  if (a.rstd != nullptr) static_cast<C*>(a.rstd)[channel] = scale.rstd;
  const C w = number_at<C>(a.weight, a.parameter_dtype, channel, C{1});
  const C b = number_at<C>(a.bias, a.parameter_dtype, channel, C{0});
  Block<C> in;
  Block<C> out;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* from = x.read(run, first, n, in);
    C* const to = y.to(run, first, out);
    wide([=] {
      for (std::int64_t i = 0; i < n; ++i) to[i] = (from[i] - scale.mean) * scale.rstd * w + b;
    });
    y.write(run, first, n, to);
  });
}

// As for a row, but the weight is one number; running statistics do not depend on x.
template <class C>
void channel_gradient(const BatchNormArgs& a, std::int64_t channel) {
  const Group group = channel_group(a, channel);
  const Elements<C> x(a.x, a.dtype, group);
  const Elements<C> grad(a.grad, a.dtype, group);
  const Scale<C> scale = a.uses_batch ? Scale<C>{static_cast<const C*>(a.mean)[channel],
                                                 static_cast<const C*>(a.rstd)[channel]}
                                      : scale_of<C>(a, channel, group);
  const C mean = scale.mean;
  const C rstd = scale.rstd;
  Block<C> xs;
  Block<C> gs;
  double sum = 0;
  double dot = 0;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* g = grad.read(run, first, n, gs);
    wide([=, &sum] { sum += add_up<C>(n, [=](std::int64_t i) { return g[i]; }); });
    if (a.x == nullptr) return;
    const C* from = x.read(run, first, n, xs);
    wide([=, &dot] {
      dot += add_up<C>(n, [=](std::int64_t i) { return g[i] * ((from[i] - mean) * rstd); });
    });
  });
  put_number<C>(a.weight_grad, a.parameter_dtype, channel, dot);
  put_number<C>(a.bias_grad, a.parameter_dtype, channel, sum);
  if (a.x_grad == nullptr) return;
  const Elements<C> to(a.x_grad, a.dtype, group);
  const auto count = static_cast<double>(group.count());
  const C sum_mean = static_cast<C>(a.uses_batch ? sum / count : 0);
  const C dot_mean = static_cast<C>(a.uses_batch ? dot / count : 0);
  const C factor = rstd * number_at<C>(a.weight, a.parameter_dtype, channel, C{1});
  Block<C> out;
  for_group(group, [&](std::int64_t run, std::int64_t first, std::int64_t n) {
    const C* g = grad.read(run, first, n, gs);
    C* const place = to.to(run, first, out);
    if (!a.uses_batch) {
      wide([=] {
        for (std::int64_t i = 0; i < n; ++i) place[i] = factor * g[i];
      });
    } else {
      const C* from = x.read(run, first, n, xs);
      wide([=] {
        for (std::int64_t i = 0; i < n; ++i) {
          place[i] = factor * (g[i] - sum_mean - (from[i] - mean) * rstd * dot_mean);
        }
      });
    }
    to.write(run, first, n, place);
  });
}

template <class C>
void batch_norm_as(const BatchNormArgs& a) {
  parallel_for(
      a.channels, group_grain(a.batch * a.inner), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t channel = begin; channel < end; ++channel) {
          a.is_backward ? channel_gradient<C>(a, channel) : normalize_channel<C>(a, channel);
        }
      });
}

}  // namespace

void layer_norm(const LayerNormArgs& args, const Launch&) {
  args.dtype == DType::kF64 ? layer_norm_as<double>(args) : layer_norm_as<float>(args);
}

void residual_layer_norm(const LayerNormArgs& args, const Launch&) {
  args.dtype == DType::kF64 ? residual_layer_norm_as<double>(args)
                            : residual_layer_norm_as<float>(args);
}

void batch_norm(const BatchNormArgs& args, const Launch&) {
  args.dtype == DType::kF64 ? batch_norm_as<double>(args) : batch_norm_as<float>(args);
}

}  // namespace headroom::tensor::cpu
