// Rows of norms.
#include <cmath>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

constexpr double kEps = 1e-5;

double mean_over(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double mean = mean_over(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()) + kEps);
}

// Over `dims`; weight and bias broadcast where they are there.
Array normalized(const Array& x, const Dims& dims, const std::vector<Array>& parameters) {
  const Array centred =
      zip(x, fold(x, dims, true, mean_over), [](double a, double b) { return a - b; });
  Array out =
      zip(centred, fold(x, dims, true, deviation), [](double a, double b) { return a / b; });
  if (!parameters.empty()) {
    out = zip(out, parameters[0], [](double a, double b) { return a * b; });
    out = zip(out, parameters[1], [](double a, double b) { return a + b; });
  }
  return out;
}

// Bytes of two numbers for each of `count`.
std::uint64_t two_each(const Tensor& x, std::int64_t count) {
  return 2 * static_cast<std::uint64_t>(count) * (x.dtype() == kF64 ? 8U : 4U);
}

OpRow layer_norm_row(const char* name, int last, bool has_parameters) {
  OpRow row;
  row.name = name;
  const auto tail = [last](const Shape& shape) {
    Shape out;
    for (int i = shape.size() - last; i < shape.size(); ++i) out.push_back(shape[i]);
    return out;
  };
  row.call = [=](const auto& in) {
    if (!has_parameters) return layer_norm(in[0], tail(in[0].shape()));
    return layer_norm(in[0], tail(in[0].shape()), in[1], in[2]);
  };
  row.reference = [=](const auto& in) {
    Dims dims;
    for (int i = in[0].shape.size() - last; i < in[0].shape.size(); ++i) dims.push_back(i);
    if (!has_parameters) return normalized(in[0], dims, {});
    return normalized(in[0], dims, {in[1], in[2]});
  };
  for (const Shape& shape : {Shape{3, 2, 5}, Shape{0, 2, 3}, Shape{2, 3, 0}, Shape{1, 6, 1100}}) {
    row.samples.push_back({{.shape = shape, .low = -1, .high = 5}});
    if (!has_parameters) continue;
    row.samples.back().push_back({.shape = tail(shape)});
    row.samples.back().push_back({.shape = tail(shape)});
  }
  row.dtypes = floating_types();
  row.backward_saves = 2;
  row.saved = [=](const auto& in, const Tensor&) {
    const std::int64_t rows = last == 1 ? 6 : 3;
    return in[0].size_bytes() + (has_parameters ? in[1].size_bytes() : 0) + two_each(in[0], rows);
  };
  row.tolerance = 8;
  return row;
}

// The sum and its norm, joined: one op more.
OpRow residual_layer_norm_row() {
  OpRow row;
  row.name = "residual_layer_norm";
  row.call = [](const auto& in) {
    const auto [sum, normed] =
        residual_layer_norm(in[0], in[1], {in[0].shape().back()}, in[2], in[3]);
    return sum + normed;
  };
  row.reference = [](const auto& in) {
    const auto add = [](double a, double b) { return a + b; };
    const Array sum = zip(in[0], in[1], add);
    return zip(sum, normalized(sum, {sum.shape.size() - 1}, {in[2], in[3]}), add);
  };
  for (const Shape& shape : {Shape{3, 2, 5}, Shape{0, 2, 3}, Shape{1, 6, 1100}}) {
    const Shape width{shape.back()};
    row.samples.push_back({{.shape = shape, .low = -1, .high = 5},
                           {.shape = shape},
                           {.shape = width},
                           {.shape = width}});
  }
  row.dtypes = floating_types();
  row.allocations = 3;
  row.backward_saves = 2;
  row.saved = [](const auto& in, const Tensor& out) {
    return out.size_bytes() + in[2].size_bytes() + two_each(in[0], 6);
  };
  row.tolerance = 8;
  return row;
}

OpRow batch_norm_row(const char* name, const std::vector<Shape>& shapes, bool has_parameters) {
  OpRow row;
  row.name = name;
  row.call = [=](const auto& in) {
    if (!has_parameters) return batch_norm(in[0], {}, {}, {}, {});
    return batch_norm(in[0], in[1], in[2], in[3], in[4]);
  };
  row.reference = [=](const auto& in) {
    Dims dims{0};
    Shape spread{in[0].shape[1]};
    for (int i = 2; i < in[0].shape.size(); ++i) {
      dims.push_back(i);
      spread.push_back(1);
    }
    if (!has_parameters) return normalized(in[0], dims, {});
    return normalized(in[0], dims, {reshaped(in[1], spread), reshaped(in[2], spread)});
  };
  for (const Shape& shape : shapes) {
    row.samples.push_back({{.shape = shape, .low = -1, .high = 5}});
    if (!has_parameters) continue;
    for (int i = 0; i < 2; ++i) row.samples.back().push_back({.shape = {shape[1]}});
    for (int i = 0; i < 2; ++i) {
      row.samples.back().push_back({.shape = {shape[1]}, .low = 0.5, .high = 2, .fixed = kF32});
    }
  }
  row.dtypes = floating_types();
  row.backward_saves = 2;
  row.saved = [=](const auto& in, const Tensor&) {
    return in[0].size_bytes() + (has_parameters ? in[1].size_bytes() : 0) +
           two_each(in[0], in[0].size(1));
  };
  row.tolerance = 8;
  return row;
}

// By running statistics, in f64 throughout.
OpRow batch_norm_eval_row() {
  OpRow row;
  row.name = "batch_norm by running statistics";
  row.call = [](const auto& in) {
    return batch_norm(in[0], in[1], in[2], in[3], in[4], {.training = false});
  };
  row.reference = [](const auto& in) {
    return make(in[0].shape, [&](const Dims& index) {
      const auto c = static_cast<std::size_t>(index[1]);
      const double rstd = 1 / std::sqrt(in[4].values[c] + kEps);
      return (in[0].at(index) - in[3].values[c]) * rstd * in[1].values[c] + in[2].values[c];
    });
  };
  const Input running{.shape = {3}, .low = 0.5, .high = 2, .fixed = kF64};
  row.samples = {{{.shape = {2, 3, 2, 2}}, {.shape = {3}}, {.shape = {3}}, running, running},
                 {{.shape = {1, 3}}, {.shape = {3}}, {.shape = {3}}, running, running}};
  row.dtypes = {kF64};
  row.saved = saves_inputs({0, 1, 3, 4});
  row.tolerance = 8;
  return row;
}

}  // namespace

void add_norm_rows(std::vector<OpRow>& table) {
  table.push_back(layer_norm_row("layer_norm", 1, true));
  table.push_back(layer_norm_row("layer_norm of two dimensions", 2, true));
  table.push_back(layer_norm_row("layer_norm alone", 1, false));
  table.push_back(residual_layer_norm_row());
  const std::vector<Shape> images{{2, 3, 2, 3}, {3, 2, 1, 1}, {2, 2, 40, 60}};
  table.push_back(batch_norm_row("batch_norm", images, true));
  table.push_back(batch_norm_row("batch_norm alone", images, false));
  table.push_back(batch_norm_row("batch_norm of rows", {{4, 3}, {0, 3}, {1100, 5}}, false));
  table.push_back(batch_norm_eval_row());
}

}  // namespace headroom::testing
