// Rows of convolution and pooling.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

Array convolution(const Array& x, const Array& w, const Array& bias, const Conv2dOptions& o) {
  const auto size = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return (x.shape[i + 2] + 2 * o.padding[at] - o.dilation[at] * (w.shape[i + 2] - 1) - 1) /
               o.stride[at] +
           1;
  };
  const std::int64_t each = w.shape[0] / o.groups;
  return make({x.shape[0], w.shape[0], size(0), size(1)}, [&](const Dims& out) {
    double sum = bias.values.empty() ? 0 : bias.values[static_cast<std::size_t>(out[1])];
    for_each_index({w.shape[1], w.shape[2], w.shape[3]}, [&](const Dims& k) {
      const std::int64_t row = out[2] * o.stride[0] - o.padding[0] + k[1] * o.dilation[0];
      const std::int64_t column = out[3] * o.stride[1] - o.padding[1] + k[2] * o.dilation[1];
      if (row < 0 || column < 0 || row >= x.shape[2] || column >= x.shape[3]) return;
      sum += x.at({out[0], out[1] / each * w.shape[1] + k[0], row, column}) *
             w.at({out[1], k[0], k[1], k[2]});
    });
    return sum;
  });
}

struct ConvCase {
  const char* name;
  Conv2dOptions options{};
  bool has_bias = false;
  std::vector<std::pair<Shape, Shape>> shapes;  // of x and the weight
  int allocations = 2;                          // the output, and windows laid out
};

OpRow conv_row(const ConvCase& c) {
  OpRow row;
  row.name = c.name;
  row.call = [c](const auto& in) {
    return conv2d(in[0], in[1], c.has_bias ? in[2] : Tensor(), c.options);
  };
  row.reference = [c](const auto& in) {
    return convolution(in[0], in[1], c.has_bias ? in[2] : Array(), c.options);
  };
  for (const auto& [x, w] : c.shapes) {
    row.samples.push_back({{.shape = x}, {.shape = w}});
    if (c.has_bias) row.samples.back().push_back({.shape = {w[0]}});
  }
  row.dtypes = floating_types();
  row.allocations = c.allocations;
  row.saved = saves_inputs({0, 1});
  row.tolerance = 30;
  return row;
}

void add_conv_rows(std::vector<OpRow>& table) {
  const std::vector<ConvCase> cases{
      {.name = "conv2d",
       .shapes = {{{2, 2, 4, 5}, {3, 2, 3, 3}},
                  {{1, 1, 1, 1}, {1, 1, 1, 1}},
                  {{0, 2, 4, 4}, {3, 2, 3, 3}},
                  {{1, 2, 6, 3}, {2, 2, 5, 1}}}},
      {.name = "conv2d with bias and padding",
       .options = {.padding = {1, 2}},
       .has_bias = true,
       .shapes = {{{2, 2, 3, 4}, {3, 2, 3, 3}}, {{0, 1, 2, 2}, {2, 1, 2, 2}}}},
      {.name = "conv2d strided",
       .options = {.stride = {2, 3}, .padding = {1, 1}},
       .shapes = {{{1, 3, 5, 7}, {2, 3, 3, 2}}, {{1, 2, 1, 2}, {1, 2, 3, 3}}}},
      {.name = "conv2d dilated",
       .options = {.padding = {2, 1}, .dilation = {2, 3}},
       .shapes = {{{1, 2, 4, 6}, {2, 2, 3, 2}}}},
      {.name = "conv2d in groups",
       .options = {.stride = {1, 2}, .padding = {1, 0}, .groups = 2},
       .has_bias = true,
       .shapes = {{{1, 4, 3, 5}, {4, 2, 2, 3}}}},
      {.name = "conv2d of pixels",
       .has_bias = true,
       .shapes = {{{2, 3, 3, 4}, {4, 3, 1, 1}}, {{1, 64, 9, 10}, {8, 64, 1, 1}}},
       .allocations = 1},
      {.name = "conv2d of pixels apart",
       .options = {.stride = {2, 2}},
       .shapes = {{{1, 3, 3, 5}, {4, 3, 1, 1}}}},
      {.name = "conv2d by depth",
       .options = {.padding = {1, 1}, .groups = 3},
       .has_bias = true,
       .shapes = {{{2, 3, 3, 4}, {3, 1, 3, 3}}, {{1, 3, 20, 31}, {6, 1, 3, 3}}},
       .allocations = 1},
      {.name = "conv2d by depth, strided",
       .options = {.stride = {2, 3}, .padding = {1, 2}, .groups = 2},
       .shapes = {{{1, 2, 5, 6}, {4, 1, 3, 3}}},
       .allocations = 1},
      // More windows than are laid out at a time.
      {.name = "conv2d in tiles",
       .options = {.padding = {1, 1}},
       .shapes = {{{1, 40, 40, 38}, {1, 40, 3, 3}}}}};
  for (const ConvCase& c : cases) table.push_back(conv_row(c));
}

// The numbers of each window; those outside the image are `outside`, NaN for none.
Array pool_windows(const Array& x,
                   const Pool2dOptions& o,
                   double outside,
                   const std::function<double(const std::vector<double>&)>& f) {
  const int rows = x.shape.size() - 2;
  Shape shape = x.shape;
  const auto stride = [&](std::size_t i) { return o.stride[i] == 0 ? o.kernel[i] : o.stride[i]; };
  for (const std::size_t i : {0U, 1U}) {
    const int dim = rows + static_cast<int>(i);
    shape[dim] = (shape[dim] + 2 * o.padding[i] - o.kernel[i]) / stride(i) + 1;
  }
  return make(shape, [&](const Dims& out) {
    std::vector<double> seen;
    for_each_index({o.kernel[0], o.kernel[1]}, [&](const Dims& k) {
      Dims at = out;
      bool inside = true;
      for (const std::size_t i : {0U, 1U}) {
        const int dim = rows + static_cast<int>(i);
        at[dim] = out[dim] * stride(i) - o.padding[i] + k[static_cast<int>(i)];
        inside = inside && at[dim] >= 0 && at[dim] < x.shape[dim];
      }
      seen.push_back(inside ? x.at(at) : outside);
    });
    return f(seen);
  });
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::vector<Sample> images() {
  return samples_of({{2, 2, 4, 5}, {1, 5, 4}, {0, 2, 4, 4}, {1, 1, 3, 3}, {2, 3, 33, 31}}, -8, 8);
}

OpRow max_pool_row(const char* name, const Pool2dOptions& o) {
  OpRow row;
  row.name = name;
  row.call = [o](const auto& in) { return max_pool2d(in[0], o); };
  row.reference = [o](const auto& in) {
    return pool_windows(in[0], o, -INFINITY, [](const std::vector<double>& seen) {
      return *std::max_element(seen.begin(), seen.end());
    });
  };
  row.samples = images();
  row.dtypes = floating_types();
  row.backward_saves = 1;
  row.saved = [o](const auto&, const Tensor& out) {
    const std::uint64_t each = o.kernel[0] * o.kernel[1] > 256 ? 4 : 1;
    return static_cast<std::uint64_t>(out.numel()) * each;
  };
  return row;
}

OpRow average_row(const char* name, const Pool2dOptions& o) {
  OpRow row;
  row.name = name;
  row.call = [o](const auto& in) { return avg_pool2d(in[0], o); };
  row.reference = [o](const auto& in) { return pool_windows(in[0], o, 0, mean_of); };
  row.samples = images();
  row.dtypes = floating_types();
  return row;
}

OpRow adaptive_row(const char* name, std::array<std::int64_t, 2> size) {
  OpRow row;
  row.name = name;
  row.call = [size](const auto& in) { return adaptive_avg_pool2d(in[0], size); };
  row.reference = [size](const auto& in) {
    const Array& x = in[0];
    const int rows = x.shape.size() - 2;
    Shape shape = x.shape;
    shape[rows] = size[0];
    shape[rows + 1] = size[1];
    return make(shape, [&](const Dims& out) {
      std::vector<double> seen;
      const auto edge = [&](int dim, std::int64_t at) {
        return static_cast<double>(at * x.shape[dim]) / static_cast<double>(shape[dim]);
      };
      for_each_index({x.shape[rows], x.shape[rows + 1]}, [&](const Dims& index) {
        Dims at = out;
        for (const int i : {0, 1}) {
          const int dim = rows + i;
          if (index[i] < static_cast<std::int64_t>(std::floor(edge(dim, out[dim])))) return;
          if (index[i] >= static_cast<std::int64_t>(std::ceil(edge(dim, out[dim] + 1)))) return;
          at[dim] = index[i];
        }
        seen.push_back(x.at(at));
      });
      return mean_of(seen);
    });
  };
  row.samples = images();
  row.dtypes = floating_types();
  return row;
}

}  // namespace

void add_image_rows(std::vector<OpRow>& table) {
  add_conv_rows(table);
  table.push_back(max_pool_row("max_pool2d", {.kernel = {2, 2}}));
  table.push_back(max_pool_row("max_pool2d that overlaps",
                               {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}}));
  OpRow large = max_pool_row("max_pool2d of large windows",
                             {.kernel = {17, 16}, .stride = {2, 2}, .padding = {1, 0}});
  large.samples = samples_of({{1, 17, 18}, {1, 1, 20, 40}}, -8, 8);
  table.push_back(large);
  table.push_back(average_row("avg_pool2d", {.kernel = {2, 3}}));
  table.push_back(average_row("avg_pool2d that overlaps",
                              {.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 1}}));
  table.push_back(adaptive_row("adaptive_avg_pool2d", {1, 1}));
  table.push_back(adaptive_row("adaptive_avg_pool2d uneven", {3, 2}));
}

}  // namespace headroom::testing
