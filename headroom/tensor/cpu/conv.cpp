// Convolution as matrix products: the windows of a few rows of the output become the columns of a
// matrix, and the library multiplies it. Images and tiles go one after the other, so sums have one
// order whatever the threads do. Where a group has one channel there is nothing to multiply: its
// planes are added up directly.
#include <algorithm>

#include "headroom/tensor/cpu/internal/gemm.h"
#include "headroom/tensor/cpu/internal/sums.h"
#include "headroom/tensor/cpu/internal/workspace.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"
#include "headroom/tensor/internal/sizes.h"

namespace headroom::tensor::cpu {
namespace {

std::int64_t area(const Pair& size) { return size[0] * size[1]; }

// How an image lies in memory: `parts` times a plane for each channel, or where the channels come
// last, a pixel of all channels after the other. A weight has a part for each output.
struct ImageShape {
  std::int64_t parts;
  std::int64_t channels;
  std::int64_t pixels;
  bool is_channels_last;

  [[nodiscard]] std::int64_t size() const { return parts * channels * pixels; }
};

// Images one after the other as arrays of C with the channels first: in place, or through a buffer
// where they are of 16 bits or lie otherwise.
template <class C>
class Images {
 public:
  Images(void* data, DType dtype, const ImageShape& shape, C* buffer)
      : data_(data), dtype_(dtype), shape_(shape), buffer_(buffer) {}

  // Where image n is; what it holds is not there yet when it is buffered.
  [[nodiscard]] C* at(std::int64_t n) const {
    return is_in_place() ? static_cast<C*>(data_) + n * shape_.size() : buffer_;
  }
  [[nodiscard]] C* read(std::int64_t n) const {
    if (is_in_place()) return at(n);
    for_runs(n, [this](void* stored, std::int64_t stride, std::int64_t count, C* own) {
      load_run(stored, dtype_, stride, count, own);
    });
    return buffer_;
  }
  void write(std::int64_t n) const {
    if (is_in_place()) return;
    for_runs(n, [this](void* stored, std::int64_t stride, std::int64_t count, const C* own) {
      store_run(stored, dtype_, stride, count, own);
    });
  }

 private:
  [[nodiscard]] bool is_in_place() const {
    return dtype_ == kNative<C> && !shape_.is_channels_last;
  }
  template <class F>
  void for_runs(std::int64_t n, F&& f) const {
    const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(dtype_));
    char* image = static_cast<char*>(data_) + n * shape_.size() * bytes;
    if (!shape_.is_channels_last) return f(image, 1, shape_.size(), buffer_);
    const std::int64_t part = shape_.channels * shape_.pixels;
    for (std::int64_t i = 0; i < shape_.parts * shape_.channels; ++i) {
      const std::int64_t channel = i % shape_.channels;
      const std::int64_t first = i / shape_.channels * part + channel;
      f(image + first * bytes, shape_.channels, shape_.pixels, buffer_ + i * shape_.pixels);
    }
  }

  void* data_;
  DType dtype_;
  ImageShape shape_;
  C* buffer_;
};

template <class C>
struct ConvArrays {
  ConvArrays(const Conv2dArgs& a, const Workspace& workspace)
      : columns(static_cast<C*>(workspace.data)),
        weight(a.weight, a.dtype, weight_shape(a), columns + conv_tile_elements(a)),
        x(a.x, a.dtype, x_shape(a), columns + conv_tile_elements(a) + conv_weight_buffer(a)),
        y(a.y,
          a.dtype,
          y_shape(a),
          columns + conv_tile_elements(a) + conv_weight_buffer(a) + conv_x_buffer(a)) {}

  static ImageShape weight_shape(const Conv2dArgs& a) {
    return {a.groups * a.out, a.in, area(a.kernel), a.weight_layout == ImageLayout::kChannelsLast};
  }
  static ImageShape x_shape(const Conv2dArgs& a) {
    return {1, a.groups * a.in, area(a.in_size), a.x_layout == ImageLayout::kChannelsLast};
  }
  static ImageShape y_shape(const Conv2dArgs& a) {
    return {1, a.groups * a.out, area(a.out_size), a.y_layout == ImageLayout::kChannelsLast};
  }

  C* columns;
  Images<C> weight;
  Images<C> x;
  Images<C> y;
};

// The pixels that one element of the kernel meets in one row of the output: `count` pixels, a
// stride apart in x. Pixels before `first` and after them are padding.
struct Reach {
  std::int64_t first;
  std::int64_t count;
  std::int64_t from;  // in the plane of x
};

struct Tap {
  std::int64_t row;
  std::int64_t column;
};

Reach reach(const Conv2dArgs& a, const Tap& tap, std::int64_t out_row) {
  const std::int64_t y = out_row * a.stride[0] - a.padding[0] + tap.row * a.dilation[0];
  if (y < 0 || y >= a.in_size[0]) return {a.out_size[1], 0, 0};
  const std::int64_t shift = tap.column * a.dilation[1] - a.padding[1];
  const std::int64_t step = a.stride[1];
  const std::int64_t first = shift >= 0 ? 0 : std::min(divide_up(-shift, step), a.out_size[1]);
  const std::int64_t room = a.in_size[1] - shift;  // x of pixel i is shift + i * step
  const std::int64_t end = room <= 0 ? 0 : std::min(divide_up(room, step), a.out_size[1]);
  if (end <= first) return {a.out_size[1], 0, 0};
  return {first, end - first, y * a.in_size[1] + shift + first * step};
}

// --- Windows as columns
// ---------------------------------------------------------------------------

struct TileRows {
  std::int64_t begin;
  std::int64_t end;
};

template <class C>
void copy_row(const Conv2dArgs& a, const Reach& r, const C* plane, C* to) {
  std::fill_n(to, r.first, C{0});
  if (a.stride[1] == 1) {
    std::copy_n(plane + r.from, r.count, to + r.first);
  } else {
    const C* from = plane + r.from;
    for (std::int64_t i = 0; i < r.count; ++i) to[r.first + i] = from[i * a.stride[1]];
  }
  std::fill(to + r.first + r.count, to + a.out_size[1], C{0});
}

// Row (channel, kernel row, kernel column) of the matrix holds what that element meets.
template <class C>
void lay_out(const Conv2dArgs& a, const C* x, const TileRows& tile, C* columns) {
  const std::int64_t width = (tile.end - tile.begin) * a.out_size[1];
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / 4 / width);
  parallel_for(window_size(a), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t taps = area(a.kernel);
      const Tap tap{at % taps / a.kernel[1], at % a.kernel[1]};
      const C* plane = x + at / taps * area(a.in_size);
      C* to = columns + at * width;
      for (std::int64_t row = tile.begin; row < tile.end; ++row, to += a.out_size[1]) {
        copy_row(a, reach(a, tap, row), plane, to);
      }
    }
  });
}

template <class C>
void add_reach(const Conv2dArgs& a, const Reach& r, const C* from, C* plane) {
  C* to = plane + r.from;
  from += r.first;
  if (a.stride[1] == 1) {
    for (std::int64_t i = 0; i < r.count; ++i) to[i] += from[i];
  } else {
    for (std::int64_t i = 0; i < r.count; ++i) to[i * a.stride[1]] += from[i];
  }
}

// The way back: each column is added to the pixels it was made of.
template <class C>
void add_back(const Conv2dArgs& a, const C* columns, const TileRows& tile, C* x) {
  const std::int64_t width = (tile.end - tile.begin) * a.out_size[1];
  const std::int64_t taps = area(a.kernel);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / 4 / (width * taps));
  parallel_for(a.in, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * taps; at < end * taps; ++at) {
      const Tap tap{at % taps / a.kernel[1], at % a.kernel[1]};
      C* plane = x + at / taps * area(a.in_size);
      const C* from = columns + at * width;
      for (std::int64_t row = tile.begin; row < tile.end; ++row, from += a.out_size[1]) {
        add_reach(a, reach(a, tap, row), from, plane);
      }
    }
  });
}

// --- Products
// -------------------------------------------------------------------------------------

// One group of one image.
template <class C>
struct GroupPart {
  C* x;
  C* weight;
  C* y;
};

template <class C>
void fill_bias(const Conv2dArgs& a, std::int64_t group, C* y) {
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(a.dtype));
  const auto* bias = static_cast<const char*>(a.bias) + group * a.out * bytes;
  for (std::int64_t m = 0; m < a.out; ++m) {
    C value{};
    load_run(bias + m * bytes, a.dtype, 1, 1, &value);
    std::fill_n(y + m * area(a.out_size), area(a.out_size), value);
  }
}

// The product of a tile; `columns` are its windows, in x itself where a window is a pixel.
template <class C>
void multiply_tile(const Conv2dArgs& a,
                   const GroupPart<C>& part,
                   const TileRows& tile,
                   C* columns) {
  const auto out = static_cast<int>(a.out);
  const auto window = static_cast<int>(window_size(a));
  const auto plane = static_cast<int>(area(a.out_size));
  const auto width = static_cast<int>((tile.end - tile.begin) * a.out_size[1]);
  C* y = part.y + tile.begin * a.out_size[1];
  switch (a.pass) {
    case ConvPass::kForward:
      gemm_on_threads<C>(
          {.m = out, .n = width, .k = window, .lda = window, .ldb = width, .ldc = plane},
          part.weight,
          columns,
          a.bias != nullptr ? C{1} : C{0},
          y);
      return;
    case ConvPass::kInput:
      gemm_on_threads<C>(
          {.m = window, .n = width, .k = out, .lda = window, .ldb = plane, .ta = CblasTrans},
          part.weight,
          y,
          C{0},
          columns);
      return;
    case ConvPass::kWeight:
      gemm_on_threads<C>(
          {.m = out, .n = window, .k = width, .lda = plane, .ldb = width, .tb = CblasTrans},
          y,
          columns,
          C{1},
          part.weight);
  }
}

template <class C>
void convolve_group(const Conv2dArgs& a, const GroupPart<C>& part, C* columns) {
  const std::int64_t rows = conv_tile_rows(a);
  if (rows == 0) {
    multiply_tile(a, part, {0, a.out_size[0]}, part.x);
    return;
  }
  if (a.pass == ConvPass::kInput) std::fill_n(part.x, a.in * area(a.in_size), C{0});
  for (std::int64_t row = 0; row < a.out_size[0]; row += rows) {
    const TileRows tile{row, std::min(row + rows, a.out_size[0])};
    if (a.pass != ConvPass::kInput) lay_out(a, part.x, tile, columns);
    multiply_tile(a, part, tile, columns);
    if (a.pass == ConvPass::kInput) add_back(a, columns, tile, part.x);
  }
}

// --- Groups of one channel
// ------------------------------------------------------------------------

template <class C, class F>
void for_reaches(const Conv2dArgs& a, F&& f) {
  for (std::int64_t at = 0; at < area(a.kernel); ++at) {
    const Tap tap{at / a.kernel[1], at % a.kernel[1]};
    for (std::int64_t row = 0; row < a.out_size[0]; ++row) {
      const Reach r = reach(a, tap, row);
      if (r.count > 0) f(at, r, row * a.out_size[1] + r.first);
    }
  }
}

template <class C>
void add_plane(const Conv2dArgs& a, const C* x, const C* weight, C* y) {
  const std::int64_t step = a.stride[1];
  for_reaches<C>(a, [&](std::int64_t tap, const Reach& r, std::int64_t at) {
    const C factor = weight[tap];
    const C* from = x + r.from;
    C* to = y + at;
    if (step == 1) {
      for (std::int64_t i = 0; i < r.count; ++i) to[i] += factor * from[i];
    } else {
      for (std::int64_t i = 0; i < r.count; ++i) to[i] += factor * from[i * step];
    }
  });
}

template <class C>
void add_plane_back(const Conv2dArgs& a, C* x, const C* weight, const C* y) {
  const std::int64_t step = a.stride[1];
  for_reaches<C>(a, [&](std::int64_t tap, const Reach& r, std::int64_t at) {
    const C factor = weight[tap];
    C* to = x + r.from;
    const C* from = y + at;
    if (step == 1) {
      for (std::int64_t i = 0; i < r.count; ++i) to[i] += factor * from[i];
    } else {
      for (std::int64_t i = 0; i < r.count; ++i) to[i * step] += factor * from[i];
    }
  });
}

template <class C>
void add_kernel(const Conv2dArgs& a, const C* x, C* weight, const C* y) {
  const std::int64_t step = a.stride[1];
  for_reaches<C>(a, [&](std::int64_t tap, const Reach& r, std::int64_t at) {
    const C* left = x + r.from;
    const C* right = y + at;
    weight[tap] += static_cast<C>(add_up<C>(
        r.count, [left, right, step](std::int64_t i) { return left[i * step] * right[i]; }));
  });
}

// One input plane with the outputs that read it; `part` is the whole image.
template <class C>
void convolve_plane(const Conv2dArgs& a, const GroupPart<C>& part, std::int64_t group) {
  C* x = part.x + group * area(a.in_size);
  if (a.pass == ConvPass::kInput) std::fill_n(x, area(a.in_size), C{0});
  C* y_group = part.y + group * a.out * area(a.out_size);
  if (a.pass == ConvPass::kForward && a.bias == nullptr) {
    std::fill_n(y_group, a.out * area(a.out_size), C{0});
  }
  for (std::int64_t m = 0; m < a.out; ++m) {
    C* weight = part.weight + (group * a.out + m) * area(a.kernel);
    C* y = y_group + m * area(a.out_size);
    if (a.pass == ConvPass::kForward) add_plane(a, x, weight, y);
    if (a.pass == ConvPass::kInput) add_plane_back(a, x, weight, y);
    if (a.pass == ConvPass::kWeight) add_kernel(a, x, weight, y);
  }
}

template <class C>
void convolve_planes(const Conv2dArgs& a, const GroupPart<C>& image) {
  const std::int64_t work = area(a.kernel) * area(a.out_size) * a.out;
  parallel_for(a.groups, std::max<std::int64_t>(1, kGrain / work), [&](auto begin, auto end) {
    for (std::int64_t group = begin; group < end; ++group) convolve_plane(a, image, group);
  });
}

template <class C>
void convolve_image(const Conv2dArgs& a, const GroupPart<C>& image, C* columns) {
  if (a.pass == ConvPass::kForward && a.bias != nullptr) {
    for (std::int64_t group = 0; group < a.groups; ++group) {
      fill_bias(a, group, image.y + group * a.out * area(a.out_size));
    }
  }
  if (is_planewise(a)) {
    convolve_planes(a, image);
    return;
  }
  for (std::int64_t group = 0; group < a.groups; ++group) {
    convolve_group<C>(a,
                      {image.x + group * a.in * area(a.in_size),
                       image.weight + group * a.out * window_size(a),
                       image.y + group * a.out * area(a.out_size)},
                      columns);
  }
}

template <class C>
void convolve(const Conv2dArgs& a, const Workspace& workspace) {
  const GemmWithoutThreads own_threads;
  const ConvArrays<C> arrays(a, workspace);
  const bool makes_weight = a.pass == ConvPass::kWeight;
  C* weight = makes_weight ? arrays.weight.at(0) : arrays.weight.read(0);
  if (makes_weight) std::fill_n(weight, ConvArrays<C>::weight_shape(a).size(), C{0});
  for (std::int64_t n = 0; n < a.batch; ++n) {
    C* x = a.pass == ConvPass::kInput ? arrays.x.at(n) : arrays.x.read(n);
    C* y = a.pass == ConvPass::kForward ? arrays.y.at(n) : arrays.y.read(n);
    convolve_image<C>(a, {x, weight, y}, arrays.columns);
    if (a.pass == ConvPass::kForward) arrays.y.write(n);
    if (a.pass == ConvPass::kInput) arrays.x.write(n);
  }
  if (makes_weight) arrays.weight.write(0);
}

}  // namespace

void conv2d(const Conv2dArgs& args, const Launch& launch) {
  args.dtype == DType::kF64 ? convolve<double>(args, launch.workspace)
                            : convolve<float>(args, launch.workspace);
}

}  // namespace headroom::tensor::cpu
