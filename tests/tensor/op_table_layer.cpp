// Rows of activations, dropout and losses.
#include <algorithm>
#include <cmath>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

using Scalars = std::function<double(double)>;

double softplus_of(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

OpRow activation_row(const char* name, std::function<Tensor(const Tensor&)> op, Scalars reference) {
  OpRow row;
  row.name = name;
  row.call = [op = std::move(op)](const auto& in) { return op(in[0]); };
  row.reference = [f = std::move(reference)](const auto& in) { return map(in[0], f); };
  row.samples = unary_samples(-5, 5);
  row.samples.push_back({{.shape = {40}, .low = -90, .high = 90}});
  row.dtypes = floating_types();
  row.saved = saves_inputs({0});
  row.tolerance = 2;
  return row;
}

void add_activations(std::vector<OpRow>& table) {
  table.push_back(activation_row("gelu_tanh", gelu_tanh, [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }));
  table.push_back(activation_row("softplus", softplus, softplus_of));
  table.push_back(activation_row(
      "hardswish", hardswish, [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }));
  table.push_back(
      activation_row("mish", mish, [](double x) { return x * std::tanh(softplus_of(x)); }));
  table.push_back(
      activation_row("log_sigmoid", log_sigmoid, [](double x) { return -softplus_of(-x); }));
  // Far from 0 the reference's own sum is the less exact.
  table.back().samples.pop_back();

  table.push_back(activation_row(
      "leaky_relu",
      [](const Tensor& x) { return leaky_relu(x); },
      [](double x) { return x > 0 ? x : 0.01 * x; }));
  table.back().saved = saves_output();
  table.push_back(activation_row(
      "leaky_relu that turns",
      [](const Tensor& x) { return leaky_relu(x, -0.5); },
      [](double x) { return x > 0 ? x : -0.5 * x; }));
  table.push_back(activation_row(
      "elu",
      [](const Tensor& x) { return elu(x, 1.5); },
      [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }));
  table.back().saved = saves_output();
  table.push_back(activation_row(
      "hardtanh",
      [](const Tensor& x) { return hardtanh(x, -1.5, 2.25); },
      [](double x) { return std::clamp(x, -1.5, 2.25); }));
  table.push_back(activation_row("relu6", relu6, [](double x) { return std::clamp(x, 0.0, 6.0); }));
  for (std::size_t i = table.size() - 2; i < table.size(); ++i) {
    table[i].saved = saves_bits();
    table[i].backward_saves = 1;
  }
}

constexpr Generator::State kDrawn{.seed = 11, .offset = 5};

// The same draw for every call: what is kept must not change under finite differences.
OpRow dropout_row(const char* name, double p) {
  OpRow row;
  row.name = name;
  row.call = [p](const auto& in) {
    default_generator(in[0].device()).set_state(kDrawn);
    return dropout(in[0], p);
  };
  // By an op that has rows of its own, on a device of its own.
  row.reference = [p](const auto& in) {
    const Place place("cpu:0");
    const TensorOptions options{.dtype = kF32, .device = place};
    default_generator(empty({0}, options).device()).set_state(kDrawn);
    const std::vector<double> drawn = rand(in[0].shape, options).to_doubles();
    Array out = in[0];
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      out.values[i] = drawn[i] >= p ? out.values[i] / (1 - p) : 0;
    }
    return out;
  };
  row.samples = unary_samples();
  row.dtypes = floating_types();
  row.backward_saves = 1;
  row.saved = saves_bits();
  return row;
}

OpRow idle_dropout_row(const char* name, double p, bool training) {
  OpRow row = dropout_row(name, p);
  row.call = [=](const auto& in) { return dropout(in[0], p, training); };
  row.reference = [](const auto& in) { return in[0]; };
  row.allocations = 0;
  row.backward_saves = 0;
  row.saved = [](const auto&, const auto&) { return std::uint64_t{0}; };
  return row;
}

using LossOp = Tensor (*)(const Tensor&, const Tensor&, Reduction);

struct LossCase {
  const char* name;
  LossOp op;
  std::function<double(double, double)> reference;
};

OpRow loss_row(const LossCase& c, const std::string& suffix, Reduction reduction) {
  OpRow row;
  row.name = c.name + suffix;
  row.call = [=](const auto& in) { return c.op(in[0], in[1], reduction); };
  row.reference = [=](const auto& in) {
    const Array losses = zip(in[0], in[1], c.reference);
    if (reduction == Reduction::kNone) return losses;
    double sum = 0;
    for (const double loss : losses.values) sum += loss;
    if (reduction == Reduction::kMean) sum /= static_cast<double>(losses.values.size());
    return Array{.shape = {}, .values = {sum}};
  };
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{41, 151}}) {
    row.samples.push_back(
        {{.shape = shape, .low = -6, .high = 6}, {.shape = shape, .low = 0, .high = 1}});
  }
  row.dtypes = floating_types();
  row.allocations = reduction == Reduction::kNone ? 1 : 2;
  row.saved = saves_inputs({0, 1});
  row.tolerance = 8;
  return row;
}

void add_losses(std::vector<OpRow>& table) {
  const std::vector<LossCase> losses{
      {"mse_loss", mse_loss, [](double x, double t) { return (x - t) * (x - t); }},
      {"l1_loss", l1_loss, [](double x, double t) { return std::abs(x - t); }},
      {"binary_cross_entropy_with_logits",
       binary_cross_entropy_with_logits,
       [](double x, double t) { return t * softplus_of(-x) + (1 - t) * softplus_of(x); }}};
  for (const LossCase& c : losses) {
    table.push_back(loss_row(c, "", Reduction::kMean));
    table.push_back(loss_row(c, " sum", Reduction::kSum));
    table.push_back(loss_row(c, " none", Reduction::kNone));
  }
}

}  // namespace

void add_layer_rows(std::vector<OpRow>& table) {
  add_activations(table);
  table.push_back(dropout_row("dropout", 0.3));
  table.push_back(dropout_row("dropout of most", 0.9));
  table.push_back(dropout_row("dropout of all", 1));
  table.back().reference = [](const auto& in) { return map(in[0], [](double) { return 0.0; }); };
  table.push_back(idle_dropout_row("dropout of none", 0, true));
  table.push_back(idle_dropout_row("dropout out of training", 0.5, false));
  add_losses(table);
}

}  // namespace headroom::testing
