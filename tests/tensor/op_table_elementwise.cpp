// Rows of ops that work element by element.
#include <cmath>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

using Function = double (*)(double);
using Function2 = double (*)(double, double);

enum class Saves : std::uint8_t { kNothing, kInput, kOutput };

SavedBytes bytes_for(Saves saves) {
  if (saves == Saves::kOutput) return saves_output();
  return saves == Saves::kInput ? saves_inputs({0}) : saves_inputs({});
}

struct Unary {
  const char* name;
  Tensor (*op)(const Tensor&);
  Function reference;
  Saves saves;
  double low = -2;
  double high = 2;
};

double gelu_of(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// Results that are not whole: integers become f32.
std::vector<Unary> functions() {
  return {{"exp", exp, std::exp, Saves::kOutput},
          {"expm1", expm1, std::expm1, Saves::kOutput},
          {"log", log, std::log, Saves::kInput, 1, 4},
          {"log1p", log1p, std::log1p, Saves::kInput, 0, 3},
          {"log2", log2, std::log2, Saves::kInput, 1, 4},
          {"sqrt", sqrt, std::sqrt, Saves::kOutput, 1, 4},
          {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, Saves::kOutput, 1, 4},
          {"reciprocal", reciprocal, [](double x) { return 1 / x; }, Saves::kOutput, 1, 4},
          {"sin", sin, std::sin, Saves::kInput},
          {"cos", cos, std::cos, Saves::kInput},
          {"tanh", tanh, std::tanh, Saves::kOutput},
          {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, Saves::kOutput},
          {"erf", erf, std::erf, Saves::kInput},
          {"gelu", gelu, gelu_of, Saves::kInput},
          {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, Saves::kInput}};
}

// Whole numbers stay whole.
std::vector<Unary> keepers() {
  return {{"neg", neg, [](double x) { return -x; }, Saves::kNothing},
          {"abs", abs, std::abs, Saves::kInput},
          {"square", square, [](double x) { return x * x; }, Saves::kInput},
          {"relu", relu, [](double x) { return x < 0 ? 0 : x; }, Saves::kOutput}};
}

// Steps: their gradient is 0, and is said to be.
std::vector<Unary> steps() {
  return {{"sign",
           sign,
           [](double x) { return static_cast<double>((x > 0) - (x < 0)); },
           Saves::kNothing},
          {"floor", floor, std::floor, Saves::kNothing},
          {"ceil", ceil, std::ceil, Saves::kNothing},
          {"round", round, std::nearbyint, Saves::kNothing},
          {"trunc", trunc, std::trunc, Saves::kNothing}};
}

OpRow unary_row(const Unary& op, const std::vector<DType>& dtypes, ResultType result) {
  OpRow row;
  row.name = op.name;
  row.call = [call = op.op](const std::vector<Tensor>& in) { return call(in[0]); };
  row.reference = [f = op.reference](const std::vector<Array>& in) { return map(in[0], f); };
  row.samples = unary_samples(op.low, op.high);
  row.dtypes = dtypes;
  row.result = std::move(result);
  row.saved = bytes_for(op.saves);
  return row;
}

DType same(DType dtype) { return dtype; }

// u8 has no negative numbers: -1 wraps, which the reference does not.
std::vector<DType> signed_types() { return {kF32, kF64, kF16, kBF16, kI32, kI64}; }

struct Binary {
  std::string name;
  Call call;
  Function2 reference;
  SavedBytes saved = saves_inputs({});
  double low = -2;
  double high = 2;
};

OpRow binary_row(const Binary& op, const std::vector<DType>& dtypes, ResultType result) {
  OpRow row;
  row.name = op.name;
  row.call = op.call;
  row.reference = [f = op.reference](const std::vector<Array>& in) { return zip(in[0], in[1], f); };
  row.samples = binary_samples(op.low, op.high);
  row.dtypes = dtypes;
  row.result = std::move(result);
  row.saved = op.saved;
  return row;
}

Call two(Tensor (*op)(const Tensor&, const Tensor&)) {
  return [op](const std::vector<Tensor>& in) { return op(in[0], in[1]); };
}

Call one(std::function<Tensor(const Tensor&)> op) {
  return [op = std::move(op)](const std::vector<Tensor>& in) { return op(in[0]); };
}

// A tensor and a number.
OpRow scalar_row(std::string name,
                 std::function<Tensor(const Tensor&)> op,
                 Function reference,
                 SavedBytes saved,
                 double low = -2) {
  OpRow row;
  row.name = std::move(name);
  row.call = one(std::move(op));
  row.reference = [reference](const std::vector<Array>& in) { return map(in[0], reference); };
  row.samples = unary_samples(low, 3);
  row.dtypes = floating_types();
  row.saved = std::move(saved);
  return row;
}

void add_arithmetic(std::vector<OpRow>& table) {
  const auto plain = [](double a, double b) { return a + b; };
  table.push_back(binary_row(
      {"add", [](const auto& in) { return add(in[0], in[1]); }, plain}, numeric_types(), same));
  table.push_back(binary_row({"add scaled",
                              [](const auto& in) { return add(in[0], in[1], 3); },
                              [](double a, double b) { return a + 3 * b; }},
                             numeric_types(),
                             same));
  table.push_back(binary_row({"sub",
                              [](const auto& in) { return sub(in[0], in[1]); },
                              [](double a, double b) { return a - b; }},
                             signed_types(),
                             same));
  table.push_back(
      binary_row({"mul", two(mul), [](double a, double b) { return a * b; }, saves_inputs({0, 1})},
                 numeric_types(),
                 same));
  table.push_back(binary_row(
      {"div", two(div), [](double a, double b) { return a / b; }, saves_inputs({0, 1}), 1, 4},
      numeric_types(),
      as_floating));
  table.push_back(binary_row({"pow",
                              two(pow),
                              [](double a, double b) { return std::pow(a, b); },
                              saves_both(saves_inputs({0, 1}), saves_output()),
                              1,
                              3},
                             numeric_types(),
                             same));
  table.back().tolerance = 4;
}

void add_scalar_arithmetic(std::vector<OpRow>& table) {
  table.push_back(scalar_row(
      "add number",
      [](const Tensor& x) { return x + 2.5; },
      [](double x) { return x + 2.5; },
      saves_inputs({})));
  table.push_back(scalar_row(
      "sub number",
      [](const Tensor& x) { return x - 2.5; },
      [](double x) { return x - 2.5; },
      saves_inputs({})));
  table.push_back(scalar_row(
      "number sub",
      [](const Tensor& x) { return 2.5 - x; },
      [](double x) { return 2.5 - x; },
      saves_inputs({})));
  table.push_back(scalar_row(
      "mul number",
      [](const Tensor& x) { return x * 2.5; },
      [](double x) { return x * 2.5; },
      saves_inputs({})));
  table.push_back(scalar_row(
      "div number",
      [](const Tensor& x) { return x / 2.5; },
      [](double x) { return x / 2.5; },
      saves_inputs({})));
  table.push_back(scalar_row(
      "number div",
      [](const Tensor& x) { return 2.5 / x; },
      [](double x) { return 2.5 / x; },
      saves_inputs({0}),
      1));
  table.push_back(scalar_row(
      "pow number",
      [](const Tensor& x) { return pow(x, 2.5); },
      [](double x) { return std::pow(x, 2.5); },
      saves_inputs({0}),
      1));
  table.back().tolerance = 4;
}

void add_without_gradients(std::vector<OpRow>& table) {
  const auto first = table.size();
  const auto add = [&](const char* name, Tensor (*op)(const Tensor&, const Tensor&), Function2 f) {
    table.push_back(binary_row({name, two(op), f, saves_inputs({}), 0, 2}, all_types(), as_bool));
  };
  add("eq", eq, [](double a, double b) { return static_cast<double>(a == b); });
  add("ne", ne, [](double a, double b) { return static_cast<double>(a != b); });
  add("lt", lt, [](double a, double b) { return static_cast<double>(a < b); });
  add("le", le, [](double a, double b) { return static_cast<double>(a <= b); });
  add("gt", gt, [](double a, double b) { return static_cast<double>(a > b); });
  add("ge", ge, [](double a, double b) { return static_cast<double>(a >= b); });
  add("logical_and", logical_and, [](double a, double b) {
    return static_cast<double>(a != 0 && b != 0);
  });
  add("logical_or", logical_or, [](double a, double b) {
    return static_cast<double>(a != 0 || b != 0);
  });
  add("logical_xor", logical_xor, [](double a, double b) {
    return static_cast<double>((a != 0) != (b != 0));
  });
  const auto floor_of = [](double a, double b) { return std::floor(a / b); };
  const auto rest_of = [](double a, double b) { return a - std::floor(a / b) * b; };
  table.push_back(binary_row({"floor_divide", two(floor_divide), floor_of, saves_inputs({}), 1, 9},
                             {kF64, kI32, kI64, kU8},
                             same));
  table.push_back(binary_row({"remainder", two(remainder), rest_of, saves_inputs({}), 1, 9},
                             {kF64, kI32, kI64, kU8},
                             same));
  const auto not_of = [](double x) { return static_cast<double>(x == 0); };
  table.push_back(
      unary_row({"logical_not", logical_not, not_of, Saves::kNothing, 0, 1}, all_types(), as_bool));
  const auto nan_of = [](double x) { return static_cast<double>(std::isnan(x)); };
  table.push_back(unary_row({"isnan", isnan, nan_of, Saves::kNothing}, all_types(), as_bool));
  table.push_back(unary_row({"gt number",
                             [](const Tensor& x) { return gt(x, 0.5); },
                             [](double x) { return static_cast<double>(x > 0.5); },
                             Saves::kNothing},
                            floating_types(),
                            as_bool));
  for (std::size_t i = first; i < table.size(); ++i) table[i].has_gradient = false;
}

std::vector<Sample> choice_samples() {
  const auto three = [](const Shape& c, const Shape& a, const Shape& b) {
    return Sample{{.shape = c, .low = 0, .high = 1, .fixed = kBool}, {.shape = a}, {.shape = b}};
  };
  return {three({3, 5}, {3, 5}, {3, 5}),
          three({3, 1}, {1, 4}, {4}),
          three({}, {3}, {2, 3}),
          three({0}, {0}, {0}),
          three({41, 1001}, {1001}, {41, 1001})};
}

Array choose(const Array& c, const Array& a, const Array& b) {
  const Shape shape = broadcast_shapes("test", broadcast_shapes("test", c.shape, a.shape), b.shape);
  const Array condition = broadcast(c, shape);
  Array out = broadcast(b, shape);
  const Array left = broadcast(a, shape);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    if (condition.values[i] != 0) out.values[i] = left.values[i];
  }
  return out;
}

OpRow where_row() {
  OpRow row;
  row.name = "where";
  row.call = [](const auto& in) { return where(in[0], in[1], in[2]); };
  row.reference = [](const auto& in) { return choose(in[0], in[1], in[2]); };
  row.samples = choice_samples();
  row.dtypes = numeric_types();
  row.saved = saves_bits();
  row.backward_saves = 1;
  return row;
}

OpRow masked_fill_row() {
  OpRow row = where_row();
  row.name = "masked_fill";
  row.call = [](const auto& in) { return masked_fill(in[1], in[0], 1); };
  row.reference = [](const auto& in) {
    return choose(in[0], Array{.shape = {}, .values = {1}}, in[1]);
  };
  row.samples.clear();
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{41, 1001}}) {
    row.samples.push_back(
        {{.shape = shape, .low = 0, .high = 1, .fixed = kBool}, {.shape = shape}});
  }
  return row;
}

void add_choices(std::vector<OpRow>& table) {
  table.push_back(where_row());
  table.push_back(masked_fill_row());
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const auto smaller = [](double a, double b) { return std::min(a, b); };
  table.push_back(
      binary_row({"maximum", two(maximum), larger, saves_bits()}, numeric_types(), same));
  table.back().backward_saves = 1;
  table.push_back(
      binary_row({"minimum", two(minimum), smaller, saves_bits()}, numeric_types(), same));
  table.back().backward_saves = 1;
  const auto clamped = [](double x) { return std::clamp(x, -1.0, 1.0); };
  table.push_back(unary_row(
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }, clamped, Saves::kNothing},
      signed_types(),
      same));
  table.back().saved = saves_bits();
  table.back().backward_saves = 1;
  table.push_back(unary_row({"clamp below",
                             [](const Tensor& x) { return clamp(x, 1); },
                             [](double x) { return std::max(x, 1.0); },
                             Saves::kNothing},
                            signed_types(),
                            same));
  table.back().saved = saves_bits();
  table.back().backward_saves = 1;
}

// In place, on a copy: a leaf may not be written to.
struct InPlace {
  const char* name;
  std::function<void(const Tensor&)> op;
  Function reference;
  bool saves_result = false;  // else what was there before, where anything
  double low = -2;
};

void add_in_place(std::vector<OpRow>& table) {
  const std::vector<InPlace> ops{
      {"neg_", [](const Tensor& x) { x.neg_(); }, [](double x) { return -x; }},
      {"abs_", [](const Tensor& x) { x.abs_(); }, std::abs},
      {"exp_", [](const Tensor& x) { x.exp_(); }, std::exp, true},
      {"log_", [](const Tensor& x) { x.log_(); }, std::log, false, 1},
      {"sqrt_", [](const Tensor& x) { x.sqrt_(); }, std::sqrt, true, 1},
      {"rsqrt_",
       [](const Tensor& x) { x.rsqrt_(); },
       [](double x) { return 1 / std::sqrt(x); },
       true,
       1},
      {"reciprocal_",
       [](const Tensor& x) { x.reciprocal_(); },
       [](double x) { return 1 / x; },
       true,
       1},
      {"square_", [](const Tensor& x) { x.square_(); }, [](double x) { return x * x; }},
      {"sin_", [](const Tensor& x) { x.sin_(); }, std::sin},
      {"cos_", [](const Tensor& x) { x.cos_(); }, std::cos},
      {"tanh_", [](const Tensor& x) { x.tanh_(); }, std::tanh, true},
      {"sigmoid_",
       [](const Tensor& x) { x.sigmoid_(); },
       [](double x) { return 1 / (1 + std::exp(-x)); },
       true},
      {"relu_", [](const Tensor& x) { x.relu_(); }, [](double x) { return x < 0 ? 0 : x; }, true},
      {"floor_", [](const Tensor& x) { x.floor_(); }, std::floor},
      {"ceil_", [](const Tensor& x) { x.ceil_(); }, std::ceil},
      {"round_", [](const Tensor& x) { x.round_(); }, std::nearbyint},
      {"trunc_", [](const Tensor& x) { x.trunc_(); }, std::trunc},
      {"add_ number", [](const Tensor& x) { x.add_(2); }, [](double x) { return x + 2; }},
      {"sub_ number", [](const Tensor& x) { x.sub_(2); }, [](double x) { return x - 2; }},
      {"mul_ number", [](const Tensor& x) { x.mul_(2); }, [](double x) { return x * 2; }},
      {"div_ number", [](const Tensor& x) { x.div_(2); }, [](double x) { return x / 2; }},
      {"pow_",
       [](const Tensor& x) { x.pow_(2.5); },
       [](double x) { return std::pow(x, 2.5); },
       false,
       1},
      {"clamp_",
       [](const Tensor& x) { x.clamp_(-1, 1); },
       [](double x) { return std::clamp(x, -1.0, 1.0); }},
      {"fill_", [](const Tensor& x) { x.fill_(2); }, [](double) { return 2.0; }},
  };
  for (const InPlace& op : ops) {
    OpRow row;
    row.name = op.name;
    row.call = [f = op.op](const auto& in) {
      Tensor out = in[0].clone();
      f(out);
      return out;
    };
    row.reference = [f = op.reference](const auto& in) { return map(in[0], f); };
    row.samples = unary_samples(op.low, 3);
    row.dtypes = floating_types();
    row.tolerance = 4;
    const std::string name = op.name;
    const bool keeps_input = name == "abs_" || name == "log_" || name == "square_" ||
                             name == "sin_" || name == "cos_" || name == "pow_";
    if (op.saves_result) row.saved = saves_output();
    if (keeps_input) row.saved = saves_inputs({0});
    if (name == "clamp_") row.saved = saves_bits();
    row.backward_saves = keeps_input || name == "clamp_" ? 1 : 0;
    table.push_back(std::move(row));
  }
}

void add_in_place_of_two(std::vector<OpRow>& table) {
  struct Op {
    const char* name;
    std::function<void(const Tensor&, const Tensor&)> op;
    Function2 reference;
    SavedBytes saved;
    int backward_saves = 0;
  };
  const std::vector<Op> ops{{"add_",
                             [](const Tensor& a, const Tensor& b) { a.add_(b); },
                             [](double a, double b) { return a + b; },
                             saves_inputs({})},
                            {"sub_",
                             [](const Tensor& a, const Tensor& b) { a.sub_(b); },
                             [](double a, double b) { return a - b; },
                             saves_inputs({})},
                            {"mul_",
                             [](const Tensor& a, const Tensor& b) { a.mul_(b); },
                             [](double a, double b) { return a * b; },
                             saves_inputs({0, 1}),
                             1},
                            {"div_",
                             [](const Tensor& a, const Tensor& b) { a.div_(b); },
                             [](double a, double b) { return a / b; },
                             saves_inputs({0, 1}),
                             1},
                            {"copy_",
                             [](const Tensor& a, const Tensor& b) { a.copy_(b); },
                             [](double, double b) { return b; },
                             saves_inputs({})}};
  for (const Op& op : ops) {
    OpRow row;
    row.name = op.name;
    row.call = [f = op.op](const auto& in) {
      Tensor out = in[0].clone();
      f(out, in[1]);
      return out;
    };
    row.reference = [f = op.reference](const auto& in) { return zip(in[0], in[1], f); };
    for (const auto& [a, b] : {std::pair<Shape, Shape>{{3, 5}, {3, 5}},
                               {{2, 3}, {3}},
                               {{3}, {}},
                               {{0}, {1}},
                               {{41, 1001}, {1001}}}) {
      row.samples.push_back({{.shape = a, .low = 1, .high = 3}, {.shape = b, .low = 1, .high = 3}});
    }
    row.dtypes = floating_types();
    row.saved = op.saved;
    row.backward_saves = op.backward_saves;
    table.push_back(std::move(row));
  }
}

}  // namespace

void add_unary_rows(std::vector<OpRow>& table) {
  for (const Unary& op : functions()) {
    table.push_back(unary_row(op, op.low < 0 ? signed_types() : numeric_types(), as_floating));
  }
  for (const Unary& op : keepers()) table.push_back(unary_row(op, signed_types(), same));
  for (const Unary& op : steps()) table.push_back(unary_row(op, signed_types(), same));
  add_in_place(table);
}

void add_binary_rows(std::vector<OpRow>& table) {
  add_arithmetic(table);
  add_scalar_arithmetic(table);
  add_without_gradients(table);
  add_choices(table);
  add_in_place_of_two(table);
}

}  // namespace headroom::testing
