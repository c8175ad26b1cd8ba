// Complex numbers: every op in a row, as in op_table.h. c64 is f32 inside, too coarse for finite
// differences of the op itself, so gradients are compared with those of the reference, which is in
// double precision.
#include <cmath>
#include <complex>

#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/tensor/op_suite.h"
#include "tests/tensor/test_tape.h"

namespace headroom::testing {
namespace {

using Number = std::complex<double>;

struct Complexes {
  Array re;
  Array im;

  [[nodiscard]] Number at(std::size_t i) const { return {re.values[i], im.values[i]}; }
  [[nodiscard]] std::size_t size() const { return re.values.size(); }
};
using ComplexReference = std::function<Complexes(const std::vector<Complexes>&)>;

struct ComplexOperand {
  Shape shape{};
  bool is_real = false;  // f32
};

struct ComplexRow {
  std::string name;
  Call call;
  ComplexReference reference;
  std::vector<std::vector<ComplexOperand>> samples;
  int allocations = 1;
  SavedBytes saved = [](const auto&, const auto&) { return std::uint64_t{0}; };
  int backward_saves = 0;
};
std::ostream& operator<<(std::ostream& out, const ComplexRow& row) { return out << row.name; }

// --- Reference ----------------------------------------------------------------------------------

Complexes map_each(const Complexes& x, const std::function<Number(Number)>& f) {
  Complexes out = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Number y = f(x.at(i));
    out.re.values[i] = y.real();
    out.im.values[i] = y.imag();
  }
  return out;
}

Complexes zip_each(const Complexes& a,
                   const Complexes& b,
                   const std::function<Number(Number, Number)>& f) {
  const Shape shape = broadcast_shapes("test", a.re.shape, b.re.shape);
  Complexes out{.re = broadcast(a.re, shape), .im = broadcast(a.im, shape)};
  const Complexes right{.re = broadcast(b.re, shape), .im = broadcast(b.im, shape)};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Number y = f(out.at(i), right.at(i));
    out.re.values[i] = y.real();
    out.im.values[i] = y.imag();
  }
  return out;
}

Complexes times_each(const Complexes& a, const Complexes& b) {
  const auto sum = [](double x, double y) { return x + y; };
  const auto difference = [](double x, double y) { return x - y; };
  return {.re = zip(product(a.re, b.re), product(a.im, b.im), difference),
          .im = zip(product(a.re, b.im), product(a.im, b.re), sum)};
}

Complexes turned_over(const Complexes& x) {
  Dims order;
  for (int i = 0; i < x.re.shape.size(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return map_each({.re = permuted(x.re, order), .im = permuted(x.im, order)},
                  [](Number z) { return std::conj(z); });
}

Complexes added_up(const Complexes& x, const Dims& dims, double scale) {
  const auto sum = [scale](const std::vector<double>& values) {
    double out = 0;
    for (const double value : values) out += value * scale;
    return out;
  };
  return {.re = fold(x.re, dims, false, sum), .im = fold(x.im, dims, false, sum)};
}

// a + n I, far from singular.
Complexes shifted(Complexes a) {
  const std::int64_t n = a.re.shape.back();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) % (n * n);
    if (at / n == at % n) a.re.values[i] += static_cast<double>(n);
  }
  return a;
}

// Gauss and Jordan, for a batch.
Complexes solved_for(const Complexes& a, const Complexes& b) {
  const auto n = static_cast<std::size_t>(a.re.shape.back());
  const auto m = static_cast<std::size_t>(b.re.shape.back());
  Complexes out = b;
  for (std::size_t batch = 0; batch < a.size() / (n * n); ++batch) {
    std::vector<std::vector<Number>> rows(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) rows[i].push_back(a.at(batch * n * n + i * n + j));
      for (std::size_t j = 0; j < m; ++j) rows[i].push_back(b.at(batch * n * m + i * m + j));
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < n; ++i) {
        if (i == k) continue;
        const Number factor = rows[i][k] / rows[k][k];
        for (std::size_t j = k; j < n + m; ++j) rows[i][j] -= factor * rows[k][j];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) {
        const Number x = rows[i][n + j] / rows[i][i];
        out.re.values[batch * n * m + i * m + j] = x.real();
        out.im.values[batch * n * m + i * m + j] = x.imag();
      }
    }
  }
  return out;
}

// --- The table ----------------------------------------------------------------------------------

using Operand = ComplexOperand;
using Samples = std::vector<std::vector<Operand>>;

Samples one_operand(bool is_real = false) {
  Samples out;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{2, 3, 4}}) {
    out.push_back({Operand{.shape = shape, .is_real = is_real}});
  }
  return out;
}

Samples two_operands(bool second_is_real = false) {
  const auto pair = [&](const Shape& a, const Shape& b) {
    return std::vector<Operand>{{.shape = a}, {.shape = b, .is_real = second_is_real}};
  };
  return {pair({3, 4}, {3, 4}), pair({3, 1}, {2, 1, 4}), pair({0, 3}, {3}), pair({5}, {})};
}

ComplexRow unary_row(const char* name, Tensor (*call)(const Tensor&), Number (*f)(Number)) {
  return {.name = name,
          .call = [call](const auto& in) { return call(in[0]); },
          .reference = [f](const auto& in) { return map_each(in[0], f); },
          .samples = one_operand()};
}

ComplexRow binary_row(const char* name,
                      Tensor (*call)(const Tensor&, const Tensor&),
                      Number (*f)(Number, Number),
                      bool second_is_real = false) {
  return {.name = name,
          .call = [call](const auto& in) { return call(in[0], in[1]); },
          .reference = [f](const auto& in) { return zip_each(in[0], in[1], f); },
          .samples = two_operands(second_is_real)};
}

void add_element_rows(std::vector<ComplexRow>& table) {
  table.push_back(unary_row("neg", neg, [](Number z) { return -z; }));
  table.push_back(unary_row("conj", conj, [](Number z) { return std::conj(z); }));
  table.push_back(unary_row("real", real, [](Number z) { return Number(z.real()); }));
  table.push_back(unary_row("imag", imag, [](Number z) { return Number(z.imag()); }));
  table.push_back(unary_row("abs", abs, [](Number z) { return Number(std::abs(z)); }));
  table.back().saved = saves_inputs({0});
  table.push_back(unary_row("square", square, [](Number z) { return z * z; }));
  table.back().saved = saves_inputs({0});
  table.push_back(unary_row("reciprocal", reciprocal, [](Number z) { return 1.0 / z; }));
  table.back().saved = saves_output();

  const auto plus = [](const Tensor& a, const Tensor& b) { return add(a, b); };
  const auto minus = [](const Tensor& a, const Tensor& b) { return sub(a, b); };
  const auto times = [](const Tensor& a, const Tensor& b) { return mul(a, b); };
  const auto over = [](const Tensor& a, const Tensor& b) { return div(a, b); };
  for (const bool is_real : {false, true}) {
    const std::string with = is_real ? " with f32" : "";
    table.push_back(binary_row(
        "add", plus, [](Number a, Number b) { return a + b; }, is_real));
    table.back().name += with;
    table.push_back(binary_row(
        "sub", minus, [](Number a, Number b) { return a - b; }, is_real));
    table.back().name += with;
    table.push_back(binary_row(
        "mul", times, [](Number a, Number b) { return a * b; }, is_real));
    table.back().name += with;
    table.back().saved = saves_inputs({0, 1});
    table.push_back(binary_row(
        "div", over, [](Number a, Number b) { return a / b; }, is_real));
    table.back().name += with;
    table.back().saved = saves_inputs({0, 1});
  }
  table.push_back({.name = "add scaled",
                   .call = [](const auto& in) { return add(in[0], in[1], -2.5); },
                   .reference =
                       [](const auto& in) {
                         return zip_each(
                             in[0], in[1], [](Number a, Number b) { return a - 2.5 * b; });
                       },
                   .samples = two_operands()});
  table.push_back({.name = "complex",
                   .call = [](const auto& in) { return complex(in[0], in[1]); },
                   .reference =
                       [](const auto& in) {
                         return zip_each(in[0], in[1], [](Number a, Number b) {
                           return Number(a.real(), b.real());
                         });
                       },
                   .samples = {{{{3, 4}, true}, {{3, 4}, true}}, {{{3, 1}, true}, {{4}, true}}}});
  table.push_back({.name = "to",
                   .call = [](const auto& in) { return in[0].to(kC64); },
                   .reference = [](const auto& in) { return in[0]; },
                   .samples = one_operand(true)});
  table.push_back({.name = "by numbers",
                   .call = [](const auto& in) { return (in[0] * 3 - 1.5) / 2 + 1; },
                   .reference =
                       [](const auto& in) {
                         return map_each(in[0],
                                         [](Number z) { return (z * 3.0 - 1.5) / 2.0 + 1.0; });
                       },
                   .samples = one_operand(),
                   .allocations = 4});
}

void add_other_rows(std::vector<ComplexRow>& table) {
  table.push_back({.name = "sum",
                   .call =
                       [](const auto& in) {
                         return sum(in[0], {0, 2});
                       },
                   .reference =
                       [](const auto& in) {
                         return added_up(in[0], {0, 2}, 1);
                       },
                   .samples = {{{{2, 3, 4}}}, {{{2, 0, 4}}}, {{{5, 9, 2}}}}});
  table.push_back({.name = "mean",
                   .call = [](const auto& in) { return mean(in[0], {1}); },
                   .reference = [](const auto& in) { return added_up(in[0], {1}, 0.25); },
                   .samples = {{{{2, 4, 3}}}, {{{1, 4}}}}});
  table.push_back({.name = "cat",
                   .call =
                       [](const auto& in) {
                         return cat({in[0], in[1]}, 0);
                       },
                   .reference =
                       [](const auto& in) {
                         Complexes out = in[0];
                         for (std::size_t i = 0; i < in[1].size(); ++i) {
                           out.re.values.push_back(in[1].at(i).real());
                           out.im.values.push_back(in[1].at(i).imag());
                         }
                         out.re.shape[0] += in[1].re.shape[0];
                         out.im.shape = out.re.shape;
                         return out;
                       },
                   .samples = {{{{2, 3}}, {{1, 3}, true}}}});
  const Samples matrices = {{{{3, 4}}, {{4, 5}}},
                            {{{2, 3, 4}}, {{2, 4, 5}}},
                            {{{2, 1, 3, 4}}, {{3, 4, 2}}},
                            {{{2, 3, 4}}, {{4, 5}}},
                            {{{0, 3, 4}}, {{0, 4, 5}}}};
  table.push_back({.name = "matmul",
                   .call = [](const auto& in) { return matmul(in[0], in[1]); },
                   .reference = [](const auto& in) { return times_each(in[0], in[1]); },
                   .samples = matrices,
                   .saved = saves_inputs({0, 1})});
  table.push_back(
      {.name = "adjoint_matmul",
       .call = [](const auto& in) { return adjoint_matmul(in[0], in[1]); },
       .reference = [](const auto& in) { return times_each(turned_over(in[0]), in[1]); },
       .samples = {{{{4, 3}}, {{4, 5}}}, {{{2, 4, 3}}, {{2, 4, 5}}}, {{{4, 3}}, {{2, 4, 5}}}},
       .saved = saves_inputs({0, 1})});
  table.push_back(
      {.name = "matmul_adjoint",
       .call = [](const auto& in) { return matmul_adjoint(in[0], in[1]); },
       .reference = [](const auto& in) { return times_each(in[0], turned_over(in[1])); },
       .samples = {{{{3, 4}}, {{5, 4}}}, {{{2, 3, 4}}, {{2, 5, 4}}}, {{{2, 3, 4}}, {{5, 4}}}},
       .saved = saves_inputs({0, 1})});
  table.push_back({.name = "adjoint",
                   .call = [](const auto& in) { return adjoint(in[0]); },
                   .reference = [](const auto& in) { return turned_over(in[0]); },
                   .samples = {{{{3, 4}}}, {{{2, 4, 3}}}}});
  table.push_back({.name = "solve_positive",
                   .call =
                       [](const auto& in) {
                         const Tensor& a = in[0];
                         Tensor unit = zeros(a.shape(), {.device = a.storage().allocator()});
                         for (std::int64_t i = 0; i < a.size(-1); ++i) {
                           unit.select(-1, i).select(-1, i).fill_(a.size(-1));
                         }
                         return solve_positive(adjoint_matmul(a, a) + unit, in[1]);
                       },
                   .reference =
                       [](const auto& in) {
                         return solved_for(shifted(times_each(turned_over(in[0]), in[0])), in[1]);
                       },
                   .samples = {{{{4, 4}}, {{4, 2}}}, {{{3, 4, 4}}, {{3, 4, 1}}}},
                   .allocations = 5,
                   .saved =
                       [](const auto& in, const Tensor& out) {
                         return 2 * in[0].size_bytes() + out.size_bytes();  // a, its factor, x
                       }});
}

const std::vector<ComplexRow>& complex_table() {
  static const std::vector<ComplexRow> kTable = [] {
    std::vector<ComplexRow> table;
    add_element_rows(table);
    add_other_rows(table);
    return table;
  }();
  return kTable;
}

// --- The suite ----------------------------------------------------------------------------------

Complexes draw_complex(const Operand& operand, std::uint64_t seed) {
  const Input input{.shape = operand.shape};
  Complexes out{.re = draw(input, kF32, seed), .im = draw(input, kF32, seed + 1000)};
  if (operand.is_real) std::fill(out.im.values.begin(), out.im.values.end(), 0.0);
  return out;
}

Tensor put_complex(const Complexes& values, bool is_real, bool is_turned, const Place& place) {
  if (is_real) return put(values.re, kF32, Layout::kContiguous, place);
  std::vector<Complex64> numbers;
  for (std::size_t i = 0; i < values.size(); ++i) numbers.emplace_back(values.at(i));
  const Tensor out =
      from(std::span<const Complex64>(numbers), values.re.shape, {.dtype = kC64, .device = place});
  if (!is_turned || out.dim() < 2) return out;
  return out.transpose(0, -1).clone().transpose(0, -1);
}

void expect_close(const Tensor& actual, const Complexes& expected, double tolerance) {
  ASSERT_EQ(actual.shape(), expected.re.shape);
  const std::vector<Complex64> values = actual.to_complex();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Number wanted = expected.at(i);
    const double error = std::abs(Number(values[i]) - wanted);
    ASSERT_LE(error, tolerance * (1 + std::abs(wanted)))
        << "element " << i << ": " << values[i] << " for " << wanted;
  }
}

// The real part of the product with the conjugate of the weights: what a gradient of `weights`
// means.
double weighed(const Complexes& out, const Complexes& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    sum += (out.at(i) * std::conj(weights.at(i))).real();
  }
  return sum;
}

Complexes slopes(const ComplexRow& row,
                 std::vector<Complexes> in,
                 std::size_t which,
                 const Complexes& weights) {
  constexpr double kStep = 1e-6;
  Complexes out = in[which];
  const auto slope = [&](double& value) {
    const double at = value;
    value = at + kStep;
    const double above = weighed(row.reference(in), weights);
    value = at - kStep;
    const double below = weighed(row.reference(in), weights);
    value = at;
    return (above - below) / (2 * kStep);
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    out.re.values[i] = slope(in[which].re.values[i]);
    out.im.values[i] = slope(in[which].im.values[i]);
  }
  return out;
}

class ComplexSuite : public ::testing::TestWithParam<ComplexRow> {
 protected:
  struct Operands {
    std::vector<Complexes> values;
    std::vector<Tensor> tensors;
  };
  [[nodiscard]] static Operands operands(const std::vector<Operand>& sample,
                                         bool is_turned,
                                         const World& world) {
    Operands out;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      out.values.push_back(draw_complex(sample[i], 20 + i));
      out.tensors.push_back(
          put_complex(out.values.back(), sample[i].is_real, is_turned, world.allocator()));
    }
    return out;
  }

  World world_ = tensor_backends()[0].make();
};

TEST_P(ComplexSuite, AgreesWithDoublePrecisionForwardAndBackward) {
  for (const auto& sample : GetParam().samples) {
    for (const bool is_turned : {false, true}) {
      SCOPED_TRACE(to_string(sample[0].shape) + (is_turned ? " turned" : ""));
      const Operands in = operands(sample, is_turned, world_);
      for (const Tensor& x : in.tensors) x.requires_grad_();
      const Tensor out = GetParam().call(in.tensors);
      expect_close(out.detach(), GetParam().reference(in.values), 3e-6);
      if (HasFatalFailure()) return;
      const Operand like{.shape = out.shape(), .is_real = !is_complex(out.dtype())};
      const Complexes weights = draw_complex(like, 7);
      out.backward(put_complex(weights, like.is_real, false, world_.allocator()));
      for (std::size_t i = 0; i < sample.size(); ++i) {
        const Tensor grad = in.tensors[i].grad();
        ASSERT_TRUE(grad.defined());
        ASSERT_EQ(grad.dtype(), in.tensors[i].dtype());
        Complexes wanted = slopes(GetParam(), in.values, i, weights);
        if (sample[i].is_real) wanted = map_each(wanted, [](Number z) { return Number(z.real()); });
        expect_close(grad, wanted, 2e-5);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ComplexSuite, AllocatesAndSavesWhatTheTableSays) {
  const Operands in = operands(GetParam().samples[0], false, world_);
  {
    const TensorBackend& backend = tensor_backends()[0];
    const std::uint64_t before = backend.more_workspaces(world_);
    const EventLog log(world_.allocator());
    (void)GetParam().call(in.tensors);
    const auto more = static_cast<int>(backend.more_workspaces(world_) - before);
    EXPECT_EQ(log.count(memory::Action::kAlloc) - more, GetParam().allocations);
  }
  CountingTape counting(tensor::tape());
  const TapeScope scope(counting);
  for (const Tensor& x : in.tensors) x.requires_grad_();
  const Tensor out = GetParam().call(in.tensors);
  EXPECT_EQ(counting.saved_bytes, GetParam().saved(in.tensors, out));
}

TEST_P(ComplexSuite, MetaAllocatesTheSameEventForEvent) {
  const World meta = tensor_backends()[0].make_meta();
  const auto events = [&](const World& world, const auto& sample, bool is_turned) {
    EventLog log(world.allocator());
    {
      const Operands in = operands(sample, is_turned, world);
      for (const Tensor& x : in.tensors) x.requires_grad_();
      const Tensor out = GetParam().call(in.tensors);
      out.backward(ones_like(out));
    }
    return log.lines();
  };
  for (const auto& sample : GetParam().samples) {
    for (const bool is_turned : {false, true}) {
      EXPECT_EQ(events(meta, sample, is_turned), events(world_, sample, is_turned));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table,
                         ComplexSuite,
                         ::testing::ValuesIn(complex_table()),
                         [](const auto& row) {
                           std::string name = row.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// --- By themselves ------------------------------------------------------------------------------

Tensor numbers(std::initializer_list<Complex64> values) {
  return from(std::span(values.begin(), values.size()), {static_cast<std::int64_t>(values.size())});
}

TEST(Complex, PrintsAsPyTorchDoes) {
  EXPECT_EQ(to_string(numbers({{1.5F, -2}, {0.25F, 10.5F}})),
            "tensor([1.5000-2.0000j, 0.2500+10.5000j])");
  EXPECT_EQ(to_string(numbers({{1, -2}, {-3, 0}})), "tensor([ 1.-2.j, -3.+0.j])");
  EXPECT_EQ(to_string(numbers({{0, 1}})[0]), "tensor(0.+1.j)");
}

TEST(Complex, WinsOverEveryOtherType) {
  for (const DType dtype : all_types()) {
    EXPECT_EQ(promote_types(kC64, dtype), kC64);
    EXPECT_EQ(promote_types(dtype, kC64), kC64);
  }
  EXPECT_EQ((zeros({2}, {.dtype = kC64}) + 1.5).dtype(), kC64);
  EXPECT_EQ((zeros({2}) + zeros({}, {.dtype = kC64})).dtype(), kC64);
  EXPECT_FALSE(is_floating(kC64));
}

TEST(Complex, NormalOnesHaveVarianceOneHalfAPart) {
  manual_seed(3);
  const Tensor x = randn({20000}, {.dtype = kC64});
  EXPECT_NEAR(mean(square(abs(x))).item<double>(), 1, 0.03);
  EXPECT_NEAR(var(real(x)).item<double>(), 0.5, 0.02);
  EXPECT_NEAR(mean(real(x) * imag(x)).item<double>(), 0, 0.02);
}

TEST(Complex, ComparesForEqualityOnly) {
  const Tensor a = numbers({{1, 2}, {3, 4}});
  const Tensor b = numbers({{1, 2}, {3, 5}});
  EXPECT_EQ(eq(a, b).to_integers(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(ne(a, b).to_integers(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(equal(a, a.clone()));
}

TEST(Complex, WhatHasNoMeaningIsRefusedByName) {
  const Tensor z = numbers({{1, 2}, {3, 4}});
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {"lt: not defined for c64", [&] { (void)lt(z, z); }},
      {"max: not defined for c64", [&] { (void)max(z); }},
      {"prod: not defined for c64", [&] { (void)prod(z); }},
      {"exp: not defined for c64", [&] { (void)exp(z); }},
      {"relu: not defined for c64", [&] { (void)relu(z); }},
      {"pow: not defined for c64", [&] { (void)pow(z, 2); }},
      {"floor_divide: not defined for c64", [&] { (void)floor_divide(z, z); }},
      {"clamp: not defined for c64", [&] { (void)clamp(z, 0); }},
      {"maximum: not defined for c64", [&] { (void)maximum(z, z); }},
      {"softmax: not defined for c64", [&] { (void)softmax(z, 0); }},
      {"linear: not defined for c64", [&] { (void)linear(z, z.unsqueeze(0)); }},
      {"conv2d: not defined for c64",
       [&] {
         (void)conv2d(z.view({1, 2, 1, 1}), z.view({1, 2, 1, 1}));
       }},
      {"max_pool2d: not defined for c64",
       [&] {
         (void)max_pool2d(z.view({1, 1, 2}), {.kernel = {1, 2}});
       }},
      {"avg_pool2d: not defined for c64",
       [&] {
         (void)avg_pool2d(z.view({1, 1, 2}), {.kernel = {1, 2}});
       }},
      {"layer_norm: not defined for c64", [&] { (void)layer_norm(z, {2}); }},
      {"dropout: not defined for c64", [&] { (void)dropout(z, 0.5); }},
      {"gelu_tanh: not defined for c64", [&] { (void)gelu_tanh(z); }},
      {"leaky_relu: not defined for c64", [&] { (void)leaky_relu(z); }},
      {"mse_loss: not defined for c64", [&] { (void)mse_loss(z, z); }},
      {"scaled_dot_product_attention: not defined for c64",
       [&] {
         (void)scaled_dot_product_attention(z.view({1, 2}), z.view({1, 2}), z.view({1, 2}));
       }},
      {"imag: not defined for f32", [&] { (void)imag(zeros({2})); }},
      {"abs_: not defined for c64", [&] { z.abs_(); }},
      {"to: c64 to f32 would drop the imaginary part; take real(x) or abs(x)",
       [&] { (void)z.to(kF32); }},
      {"copy_: c64 to f32 would drop the imaginary part; take real(x) or abs(x)",
       [&] { zeros({2}).copy_(z); }},
      {"add_: a result of type c64 cannot be written into a tensor of f32",
       [&] { zeros({2}).add_(z); }},
      {"complex: parts must be f32, not f64",
       [&] { (void)complex(zeros({2}, {.dtype = kF64}), zeros({2})); }},
      {"to_doubles: the elements are c64; ask to_complex, or real(x)",
       [&] { (void)z.to_doubles(); }},
      {"solve_positive: [..., n, n] and [..., n, m] are wanted, not [2] and [2]",
       [&] { (void)solve_positive(z, z); }},
  };
  for (const auto& [message, call] : cases) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << message;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
}

TEST(Complex, ALossIsReal) {
  const Tensor z = numbers({{1, 2}}).requires_grad_();
  try {
    sum(z).backward();
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("is complex, so its gradient must be given"),
              std::string::npos);
  }
}

TEST(Complex, AnIndefiniteMatrixHasNoSolution) {
  const Tensor a = from({1, 2, 2, 1}).view({2, 2});
  for (const double x : solve_positive(a, ones({2, 1})).to_doubles()) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace headroom::testing
