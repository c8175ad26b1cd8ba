// Pooling, plane by plane. The way back asks, for every pixel of x, which windows saw it: no pixel
// is written twice, so planes of 16 bits need no sums of their own.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "headroom/tensor/cpu/blocks.h"
#include "headroom/tensor/cpu/cpu_kernels.h"
#include "headroom/tensor/cpu/thread_pool.h"

namespace headroom::tensor::cpu {
namespace {

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// The pixels of x along dimension i that output `at` sees, padding left out.
Range window(const Pool2dArgs& a, std::size_t i, std::int64_t at) {
  const std::int64_t size = a.in_size[i];
  if (a.op == PoolOp::kAdaptive) {
    return {at * size / a.out_size[i], ((at + 1) * size + a.out_size[i] - 1) / a.out_size[i]};
  }
  const std::int64_t first = at * a.stride[i] - a.padding[i];
  return {std::max<std::int64_t>(first, 0), std::min(first + a.kernel[i], size)};
}

// The outputs that see pixel `at`.
Range seen_by(const Pool2dArgs& a, std::size_t i, std::int64_t at) {
  const std::int64_t out = a.out_size[i];
  if (a.op == PoolOp::kAdaptive) {
    return {at * out / a.in_size[i], ((at + 1) * out + a.in_size[i] - 1) / a.in_size[i]};
  }
  const std::int64_t place = at + a.padding[i];
  const std::int64_t before = place - a.kernel[i];
  return {before < 0 ? 0 : before / a.stride[i] + 1, std::min(place / a.stride[i] + 1, out)};
}

std::int64_t divisor(const Pool2dArgs& a, const Range& rows, const Range& columns) {
  if (a.op == PoolOp::kAverage) return a.kernel[0] * a.kernel[1];
  return (rows.end - rows.begin) * (columns.end - columns.begin);
}

// What 16-bit numbers are computed in.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
Computed<S> value_of(S stored) {
  return static_cast<Computed<S>>(stored);
}

struct Found {
  std::int64_t row;
  std::int64_t column;
};

template <class S>
Found largest(const S* plane, std::int64_t width, const Range& rows, const Range& columns) {
  Found out{rows.begin, columns.begin};
  auto best = -std::numeric_limits<Computed<S>>::infinity();
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    for (std::int64_t x = columns.begin; x < columns.end; ++x) {
      const auto value = value_of(plane[y * width + x]);
      if (!(value > best) && value == value) continue;
      if (best != best) continue;  // the first NaN stays
      best = value;
      out = {y, x};
    }
  }
  return out;
}

template <class S, class I>
void max_plane(const Pool2dArgs& a, const S* x, S* y, I* index) {
  for (std::int64_t i = 0; i < a.out_size[0]; ++i) {
    const Range rows = window(a, 0, i);
    const std::int64_t top = i * a.stride[0] - a.padding[0];
    for (std::int64_t j = 0; j < a.out_size[1]; ++j) {
      const std::int64_t left = j * a.stride[1] - a.padding[1];
      const Found found = largest(x, a.in_size[1], rows, window(a, 1, j));
      *y++ = x[found.row * a.in_size[1] + found.column];
      if (index == nullptr) continue;
      *index++ = static_cast<I>((found.row - top) * a.kernel[1] + found.column - left);
    }
  }
}

template <class S, class I>
void max_plane_back(const Pool2dArgs& a, const S* g, const I* index, S* dx) {
  for (std::int64_t y = 0; y < a.in_size[0]; ++y) {
    const Range rows = seen_by(a, 0, y);
    for (std::int64_t x = 0; x < a.in_size[1]; ++x) {
      const Range columns = seen_by(a, 1, x);
      Computed<S> sum = 0;
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const std::int64_t row = (y - (i * a.stride[0] - a.padding[0])) * a.kernel[1];
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const std::int64_t place = row + x - (j * a.stride[1] - a.padding[1]);
          const std::int64_t at = i * a.out_size[1] + j;
          sum += static_cast<std::int64_t>(index[at]) == place ? value_of(g[at]) : 0;
        }
      }
      *dx++ = static_cast<S>(sum);
    }
  }
}

template <class S>
void average_plane(const Pool2dArgs& a, const S* x, S* y) {
  for (std::int64_t i = 0; i < a.out_size[0]; ++i) {
    const Range rows = window(a, 0, i);
    for (std::int64_t j = 0; j < a.out_size[1]; ++j) {
      const Range columns = window(a, 1, j);
      double sum = 0;
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          sum += static_cast<double>(value_of(x[row * a.in_size[1] + column]));
        }
      }
      *y++ = static_cast<S>(
          static_cast<Computed<S>>(sum / static_cast<double>(divisor(a, rows, columns))));
    }
  }
}

template <class S>
void average_plane_back(const Pool2dArgs& a, const S* g, S* dx) {
  for (std::int64_t y = 0; y < a.in_size[0]; ++y) {
    const Range rows = seen_by(a, 0, y);
    for (std::int64_t x = 0; x < a.in_size[1]; ++x) {
      const Range columns = seen_by(a, 1, x);
      Computed<S> sum = 0;
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const std::int64_t count = divisor(a, window(a, 0, i), window(a, 1, j));
          sum += value_of(g[i * a.out_size[1] + j]) / static_cast<Computed<S>>(count);
        }
      }
      *dx++ = static_cast<S>(sum);
    }
  }
}

template <class S, class I>
void pool_plane(const Pool2dArgs& a, std::int64_t plane) {
  const std::int64_t x_size = a.in_size[0] * a.in_size[1];
  const std::int64_t y_size = a.out_size[0] * a.out_size[1];
  const S* in = static_cast<const S*>(a.in) + plane * (a.is_backward ? y_size : x_size);
  S* out = static_cast<S*>(a.out) + plane * (a.is_backward ? x_size : y_size);
  if (a.op != PoolOp::kMax) {
    a.is_backward ? average_plane_back(a, in, out) : average_plane(a, in, out);
    return;
  }
  I* index = a.index == nullptr ? nullptr : static_cast<I*>(a.index) + plane * y_size;
  a.is_backward ? max_plane_back(a, in, index, out) : max_plane(a, in, out, index);
}

template <class S>
void pool_as(const Pool2dArgs& a) {
  const std::int64_t work = a.in_size[0] * a.in_size[1] + a.out_size[0] * a.out_size[1];
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / 4 / work);
  parallel_for(a.planes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      a.index_dtype == DType::kU8 ? pool_plane<S, std::uint8_t>(a, plane)
                                  : pool_plane<S, std::int32_t>(a, plane);
    }
  });
}

}  // namespace

void pool2d(const Pool2dArgs& args, Launch) {
  switch (args.dtype) {
    case DType::kF64:
      return pool_as<double>(args);
    case DType::kF16:
      return pool_as<Half>(args);
    case DType::kBF16:
      return pool_as<BFloat16>(args);
    default:
      return pool_as<float>(args);
  }
}

}  // namespace headroom::tensor::cpu
