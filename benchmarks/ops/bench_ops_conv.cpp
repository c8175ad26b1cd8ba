#include "benchmarks/ops/bench_ops_conv.h"

#include <algorithm>
#include <cblas.h>
#include <thread>

namespace headroom::cli::plain {
namespace {

// Channels in equal parts, the caller taking the first.
template <class Body>
void cut_channels(const Conv& conv, const Body& body) {
  const std::int64_t each = (conv.in + conv.threads - 1) / conv.threads;
  std::vector<std::jthread> threads;
  for (std::int64_t begin = each; begin < conv.in; begin += each) {
    threads.emplace_back(
        [&body, begin, end = std::min(begin + each, conv.in)] { body(begin, end); });
  }
  body(std::int64_t{0}, std::min(each, conv.in));
}

// Calls f(offset in x, offset in the columns, pixels) for every row of windows that is not padding
// alone, and fill(offset in the columns, pixels) for what is.
template <class F, class Fill>
void for_rows_of_channel(const Conv& c, std::int64_t channel, const F& f, const Fill& fill) {
  const std::int64_t side = c.out_size();
  for (std::int64_t tap = 0; tap < c.kernel * c.kernel; ++tap) {
    const std::int64_t left = tap % c.kernel - c.padding();
    const std::int64_t first = left >= 0 ? 0 : (-left + c.stride - 1) / c.stride;
    const std::int64_t end = std::min((c.size - left + c.stride - 1) / c.stride, side);
    for (std::int64_t row = 0; row < side; ++row) {
      const std::int64_t y = row * c.stride + tap / c.kernel - c.padding();
      const std::int64_t to = ((channel * c.kernel * c.kernel + tap) * side + row) * side;
      if (y < 0 || y >= c.size) {
        fill(to, side);
        continue;
      }
      fill(to, first);
      f((channel * c.size + y) * c.size + left + first * c.stride, to + first, end - first);
      fill(to + end, side - end);
    }
  }
}

void lay_out(const Conv& c, const float* x, float* columns) {
  cut_channels(c, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t channel = begin; channel < end; ++channel) {
      for_rows_of_channel(
          c,
          channel,
          [&](std::int64_t from, std::int64_t to, std::int64_t count) {
            if (c.stride == 1) {
              std::copy_n(x + from, count, columns + to);
              return;
            }
            for (std::int64_t i = 0; i < count; ++i) columns[to + i] = x[from + i * c.stride];
          },
          [&](std::int64_t to, std::int64_t count) { std::fill_n(columns + to, count, 0.0F); });
    }
  });
}

void add_back(const Conv& c, const float* columns, float* x) {
  cut_channels(c, [&](std::int64_t begin, std::int64_t end) {
    std::fill(x + begin * c.size * c.size, x + end * c.size * c.size, 0.0F);
    for (std::int64_t channel = begin; channel < end; ++channel) {
      for_rows_of_channel(
          c,
          channel,
          [&](std::int64_t to, std::int64_t from, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i) x[to + i * c.stride] += columns[from + i];
          },
          [](std::int64_t, std::int64_t) {});
    }
  });
}

struct Product {
  CBLAS_TRANSPOSE ta;
  CBLAS_TRANSPOSE tb;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  float beta;
};

void multiply(const Product& p, const float* a, const float* b, float* c) {
  cblas_sgemm(CblasRowMajor,
              p.ta,
              p.tb,
              static_cast<int>(p.m),
              static_cast<int>(p.n),
              static_cast<int>(p.k),
              1,
              a,
              static_cast<int>(p.ta == CblasTrans ? p.m : p.k),
              b,
              static_cast<int>(p.tb == CblasTrans ? p.k : p.n),
              p.beta,
              c,
              static_cast<int>(p.n));
}

// The windows of image n.
const float* windows(const Conv& c, ConvArrays& arrays, std::int64_t n) {
  const float* x = arrays.x + n * c.in * c.size * c.size;
  if (c.is_pixels()) return x;
  lay_out(c, x, arrays.columns.data());
  return arrays.columns.data();
}

}  // namespace

void conv_forward(const Conv& c, ConvArrays& arrays) {
  const std::int64_t pixels = c.out_size() * c.out_size();
  for (std::int64_t n = 0; n < c.batch; ++n) {
    multiply({CblasNoTrans, CblasNoTrans, c.out, pixels, c.window(), 0},
             arrays.weight,
             windows(c, arrays, n),
             arrays.y + n * c.out * pixels);
  }
}

void conv_backward(const Conv& c, ConvArrays& arrays) {
  const std::int64_t pixels = c.out_size() * c.out_size();
  for (std::int64_t n = 0; n < c.batch; ++n) {
    const float* grad = arrays.grad + n * c.out * pixels;
    multiply({CblasNoTrans, CblasTrans, c.out, c.window(), pixels, n == 0 ? 0.0F : 1.0F},
             grad,
             windows(c, arrays, n),
             arrays.weight_grad);
    float* x_grad = arrays.x_grad + n * c.in * c.size * c.size;
    float* columns = c.is_pixels() ? x_grad : arrays.columns.data();
    multiply(
        {CblasTrans, CblasNoTrans, c.window(), pixels, c.out, 0}, arrays.weight, grad, columns);
    if (!c.is_pixels()) add_back(c, columns, x_grad);
  }
}

}  // namespace headroom::cli::plain
