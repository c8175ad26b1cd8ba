// Pooling, plane by plane. The way back adds to x window by window; planes of 16 bits, which cannot
// hold sums, ask for every pixel which windows saw it, and write it once.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"
#include "headroom/tensor/internal/sizes.h"

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

// The type that 16-bit numbers are computed in.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
Computed<S> value_of(S stored) {
  return static_cast<Computed<S>>(stored);
}

// --- The largest
// ----------------------------------------------------------------------------------

// A stretch of a row of outputs: the best so far and its place in the window.
template <class C>
struct BestOf {
  Block<C> values;
  std::int32_t places[kBlock];
};

// The outputs from `first` to `end` whose window has a pixel under column `tap`.
Range under_tap(const Pool2dArgs& a, std::int64_t tap, std::int64_t first, std::int64_t end) {
  const std::int64_t shift = a.padding[1] - tap;  // output j meets pixel j * stride - shift
  const std::int64_t step = a.stride[1];
  const std::int64_t low = shift <= 0 ? 0 : divide_up(shift, step);
  const std::int64_t room = a.in_size[1] + shift;
  const std::int64_t high = room <= 0 ? 0 : divide_up(room, step);
  return {std::max(low, first), std::min(high, end)};
}

// The columns of the kernel that meet a pixel in any output from `first` to `end`: a window may be
// far larger than the image.
Range taps_over(const Pool2dArgs& a, std::int64_t first, std::int64_t end) {
  return {std::max<std::int64_t>(a.padding[1] - (end - 1) * a.stride[1], 0),
          std::min(a.padding[1] - first * a.stride[1] + a.in_size[1], a.kernel[1])};
}

// Each starts at the first pixel of its window, so that a window of minus infinity has a place too.
template <class S>
void start_best(const Pool2dArgs& a,
                std::int64_t row,
                const Range& outputs,
                BestOf<Computed<S>>& best) {
  for (std::int64_t j = outputs.begin; j < outputs.end; ++j) {
    const std::int64_t skipped = std::max<std::int64_t>(a.padding[1] - j * a.stride[1], 0);
    best.values.values[j - outputs.begin] = -std::numeric_limits<Computed<S>>::infinity();
    best.places[j - outputs.begin] = static_cast<std::int32_t>(row * a.kernel[1] + skipped);
  }
}

template <class S>
void compare_tap(const Pool2dArgs& a,
                 const S* x,
                 std::int64_t place,
                 const Range& outputs,
                 std::int64_t first,
                 BestOf<Computed<S>>& best) {
  const std::int64_t step = a.stride[1];
  const auto own = static_cast<std::int32_t>(place);
  const std::int64_t count = outputs.end - outputs.begin;
  Computed<S>* values = best.values.values + (outputs.begin - first);
  std::int32_t* places = best.places + (outputs.begin - first);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = value_of(x[i * step]);
    const auto now = values[i];
    const bool is_better =
        (value > now) | ((value != value) & (now == now));  // the first NaN stays
    values[i] = is_better ? value : now;
    places[i] = is_better ? own : places[i];
  }
}

template <class S, class I>
void max_plane(const Pool2dArgs& a, const S* x, S* y, I* index) {
  BestOf<Computed<S>> best;
  for (std::int64_t i = 0; i < a.out_size[0]; ++i) {
    const Range rows = window(a, 0, i);
    const std::int64_t top = i * a.stride[0] - a.padding[0];
    for (std::int64_t first = 0; first < a.out_size[1]; first += kBlock) {
      const std::int64_t end = std::min(first + kBlock, a.out_size[1]);
      const Range taps = taps_over(a, first, end);
      start_best<S>(a, rows.begin - top, {first, end}, best);
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t tap = taps.begin; tap < taps.end; ++tap) {
          const Range outputs = under_tap(a, tap, first, end);
          const std::int64_t pixel = outputs.begin * a.stride[1] - a.padding[1] + tap;
          const std::int64_t place = (row - top) * a.kernel[1] + tap;
          if (outputs.begin >= outputs.end) continue;
          compare_tap(a, x + row * a.in_size[1] + pixel, place, outputs, first, best);
        }
      }
      const std::int64_t at = i * a.out_size[1] + first;
      store_run(y + at, kDTypeOf<S>, 1, end - first, best.values.values);
      if (index != nullptr) std::copy_n(best.places, end - first, index + at);
    }
  }
}

// By output, where what is added up can be kept in x itself.
template <class S, class I>
void max_plane_back(const Pool2dArgs& a,
                    const S* g,
                    const I* index,
                    S* dx) requires std::is_floating_point_v<S> {
  std::fill_n(dx, a.in_size[0] * a.in_size[1], S{0});
  for (std::int64_t i = 0; i < a.out_size[0]; ++i) {
    const std::int64_t top = i * a.stride[0] - a.padding[0];
    for (std::int64_t j = 0; j < a.out_size[1]; ++j) {
      const std::int64_t place = *index++;
      const std::int64_t row = top + place / a.kernel[1];
      const std::int64_t column = j * a.stride[1] - a.padding[1] + place % a.kernel[1];
      dx[row * a.in_size[1] + column] += *g++;
    }
  }
}

// By pixel otherwise: which windows saw it, and took it.
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

// --- The mean
// -------------------------------------------------------------------------------------

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
void average_plane_back(const Pool2dArgs& a,
                        const S* g,
                        S* dx) requires std::is_floating_point_v<S> {
  std::fill_n(dx, a.in_size[0] * a.in_size[1], S{0});
  for (std::int64_t i = 0; i < a.out_size[0]; ++i) {
    const Range rows = window(a, 0, i);
    for (std::int64_t j = 0; j < a.out_size[1]; ++j) {
      const Range columns = window(a, 1, j);
      const S share = *g++ / static_cast<S>(divisor(a, rows, columns));
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        S* to = dx + row * a.in_size[1];
        for (std::int64_t x = columns.begin; x < columns.end; ++x) to[x] += share;
      }
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

void pool2d(const Pool2dArgs& args, const Launch&) {
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
