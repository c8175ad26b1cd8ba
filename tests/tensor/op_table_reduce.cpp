// Rows of reductions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

using Group = std::vector<double>;
using Fold = double (*)(const Group&);

double total(const Group& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double average(const Group& x) { return total(x) / static_cast<double>(x.size()); }
double product_of(const Group& x) {
  return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
}
double largest(const Group& x) { return *std::max_element(x.begin(), x.end()); }
double smallest(const Group& x) { return *std::min_element(x.begin(), x.end()); }
double place_of_largest(const Group& x) {
  return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin());
}
double place_of_smallest(const Group& x) {
  return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin());
}
double has_any(const Group& x) {
  return static_cast<double>(std::any_of(x.begin(), x.end(), [](double v) { return v != 0; }));
}
double has_all(const Group& x) {
  return static_cast<double>(std::all_of(x.begin(), x.end(), [](double v) { return v != 0; }));
}
double variance(const Group& x) {
  const double mean = average(x);
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size() - 1);
}
double norm_1(const Group& x) {
  return std::accumulate(
      x.begin(), x.end(), 0.0, [](double s, double v) { return s + std::abs(v); });
}
double norm_2(const Group& x) {
  return std::sqrt(
      std::accumulate(x.begin(), x.end(), 0.0, [](double s, double v) { return s + v * v; }));
}
double norm_3(const Group& x) {
  return std::cbrt(std::accumulate(
      x.begin(), x.end(), 0.0, [](double s, double v) { return s + std::pow(std::abs(v), 3); }));
}
double norm_inf(const Group& x) {
  return std::accumulate(
      x.begin(), x.end(), 0.0, [](double s, double v) { return std::max(s, std::abs(v)); });
}
struct Reduce {
  std::string name;
  std::function<Tensor(const Tensor&)> op;
  Fold reference;
  Dims dims{};
  bool keepdim = false;
  double low = -2;
  double high = 2;
};

// Where every dimension goes, `all` is true and any rank serves.
OpRow reduce_row(const Reduce& op, bool all, const std::vector<Shape>& shapes) {
  OpRow row;
  row.name = op.name;
  row.call = [f = op.op](const auto& in) { return f(in[0]); };
  row.reference = [op, all](const auto& in) {
    Dims dims = op.dims;
    for (int i = 0; all && i < in[0].shape.size(); ++i) dims.push_back(i);
    return fold(in[0], dims, op.keepdim, op.reference);
  };
  row.samples = samples_of(shapes, op.low, op.high);
  row.dtypes = floating_types();
  row.tolerance = 40;  // sums of numbers that cancel
  return row;
}

const std::vector<Shape>& any_rank() {
  static const std::vector<Shape> kShapes{{3, 5}, {}, {1}, {7}, {2, 3, 4}, {130, 1025}};
  return kShapes;
}

// Of rank 3; the last needs threads and parts.
const std::vector<Shape>& rank_three() {
  static const std::vector<Shape> kShapes{
      {2, 3, 4}, {1, 1, 1}, {5, 1, 2}, {3, 40, 17}, {70, 2, 600}};
  return kShapes;
}

template <class... More>
std::vector<Shape> with_empty(std::vector<Shape> shapes, More... more) {
  (shapes.push_back(more), ...);
  return shapes;
}

void add_sums(std::vector<OpRow>& table) {
  const auto add = [&](OpRow row, const std::vector<DType>& dtypes) {
    row.dtypes = dtypes;
    row.result = as_sum;
    table.push_back(std::move(row));
  };
  add(reduce_row({"sum", [](const Tensor& x) { return sum(x); }, total},
                 true,
                 with_empty(any_rank(), Shape{0}, Shape{2, 0})),
      all_types());
  add(reduce_row({"sum last", [](const Tensor& x) { return sum(x, {-1}); }, total, {2}},
                 false,
                 with_empty(rank_three(), Shape{2, 3, 0}, Shape{0, 2, 3})),
      all_types());
  add(reduce_row({"sum first", [](const Tensor& x) { return sum(x, {0}); }, total, {0}},
                 false,
                 with_empty(rank_three(), Shape{0, 2, 3})),
      all_types());
  add(reduce_row({"sum two, kept",
                  [](const Tensor& x) {
                    return sum(x, {0, 2}, true);
                  },
                  total,
                  {0, 2},
                  true},
                 false,
                 rank_three()),
      all_types());
  add(reduce_row({"prod", [](const Tensor& x) { return prod(x); }, product_of, {}, false, 1, 2},
                 true,
                 {{3, 5}, {}, {1}, {0}, {2, 3, 2}}),
      {kF32, kF64, kBF16, kI64});
  table.back().saved = saves_both(saves_inputs({0}), saves_output());
  add(reduce_row(
          {"prod last", [](const Tensor& x) { return prod(x, {2}); }, product_of, {2}, false, 1, 2},
          false,
          {{2, 3, 4}, {1, 1, 1}, {2, 2, 0}}),
      {kF32, kF64, kBF16, kI64});
  table.back().saved = saves_both(saves_inputs({0}), saves_output());
}

void add_means(std::vector<OpRow>& table) {
  table.push_back(
      reduce_row({"mean", [](const Tensor& x) { return mean(x); }, average}, true, any_rank()));
  table.push_back(
      reduce_row({"mean first", [](const Tensor& x) { return mean(x, {0}); }, average, {0}},
                 false,
                 rank_three()));
  table.push_back(reduce_row(
      {"mean last, kept", [](const Tensor& x) { return mean(x, {2}, true); }, average, {2}, true},
      false,
      rank_three()));
  table.push_back(reduce_row({"var", [](const Tensor& x) { return var(x); }, variance},
                             true,
                             {{3, 5}, {7}, {2, 3, 4}, {130, 1025}}));
  table.back().saved = saves_inputs({0});
  table.push_back(
      reduce_row({"var first", [](const Tensor& x) { return var(x, {0}); }, variance, {0}},
                 false,
                 {{2, 3, 4}, {5, 1, 2}, {70, 2, 600}}));
  table.back().saved = saves_inputs({0});
  table.push_back(
      reduce_row({"logsumexp", [](const Tensor& x) { return logsumexp(x, {1}); }, log_sum_exp, {1}},
                 false,
                 rank_three()));
  table.back().saved = saves_inputs({0});
}

void add_norms(std::vector<OpRow>& table) {
  const auto add = [&](const char* name, double order, Fold reference) {
    table.push_back(reduce_row(
        {name, [order](const Tensor& x) { return norm(x, order); }, reference}, true, any_rank()));
    table.back().saved =
        order == 1 ? saves_inputs({0}) : saves_both(saves_inputs({0}), saves_output());
  };
  add("norm 1", 1, norm_1);
  table.back().dtypes = {kF32, kF64, kBF16};  // the large sample is past the range of f16
  add("norm 2", 2, norm_2);
  add("norm inf", INFINITY, norm_inf);
  table.push_back(reduce_row({"norm 3", [](const Tensor& x) { return norm(x, 3); }, norm_3},
                             true,
                             {{3, 5}, {}, {7}, {2, 3, 4}}));
  table.back().saved = saves_both(saves_inputs({0}), saves_output());
  table.back().allocations = 3;
  table.push_back(
      reduce_row({"norm 2 last", [](const Tensor& x) { return norm(x, 2, {2}); }, norm_2, {2}},
                 false,
                 rank_three()));
  table.back().saved = saves_both(saves_inputs({0}), saves_output());
}

// Saved: an i64 index for each output.
SavedBytes saves_indices() {
  return [](const auto&, const Tensor& out) { return static_cast<std::uint64_t>(out.numel()) * 8; };
}

void add_extremes(std::vector<OpRow>& table) {
  const auto add = [&](OpRow row, int allocations) {
    row.dtypes = all_types();
    row.saved = saves_indices();
    row.allocations = allocations;
    row.backward_saves = 2 - allocations;
    table.push_back(std::move(row));
  };
  add(reduce_row({"max", [](const Tensor& x) { return max(x); }, largest}, true, any_rank()), 1);
  add(reduce_row({"min", [](const Tensor& x) { return min(x); }, smallest}, true, any_rank()), 1);
  add(reduce_row({"amax two",
                  [](const Tensor& x) {
                    return amax(x, {0, 2});
                  },
                  largest,
                  {0, 2}},
                 false,
                 rank_three()),
      1);
  add(reduce_row(
          {"amin middle", [](const Tensor& x) { return amin(x, {1}, true); }, smallest, {1}, true},
          false,
          rank_three()),
      1);
  add(reduce_row({"max along", [](const Tensor& x) { return max(x, 1).first; }, largest, {1}},
                 false,
                 rank_three()),
      2);
  add(reduce_row({"min along", [](const Tensor& x) { return min(x, 2).first; }, smallest, {2}},
                 false,
                 rank_three()),
      2);
}

void add_indices(std::vector<OpRow>& table) {
  const auto add = [&](OpRow row, ResultType result, int allocations = 1) {
    row.dtypes = all_types();
    row.has_gradient = false;
    row.result = std::move(result);
    row.allocations = allocations;
    table.push_back(std::move(row));
  };
  add(reduce_row({"argmax", [](const Tensor& x) { return argmax(x); }, place_of_largest},
                 true,
                 any_rank()),
      as_i64);
  add(reduce_row({"argmin", [](const Tensor& x) { return argmin(x); }, place_of_smallest},
                 true,
                 any_rank()),
      as_i64);
  add(reduce_row(
          {"argmax along", [](const Tensor& x) { return argmax(x, 1); }, place_of_largest, {1}},
          false,
          rank_three()),
      as_i64);
  add(reduce_row({"argmin along",
                  [](const Tensor& x) { return argmin(x, 0, true); },
                  place_of_smallest,
                  {0},
                  true},
                 false,
                 rank_three()),
      as_i64);
  add(reduce_row(
          {"max index", [](const Tensor& x) { return max(x, 1).second; }, place_of_largest, {1}},
          false,
          rank_three()),
      as_i64,
      2);
  add(reduce_row({"any", [](const Tensor& x) { return any(x); }, has_any, {}, false, 0, 1},
                 true,
                 with_empty(any_rank(), Shape{0})),
      as_bool);
  add(reduce_row({"all", [](const Tensor& x) { return all(x); }, has_all, {}, false, 0, 1},
                 true,
                 with_empty(any_rank(), Shape{0})),
      as_bool);
  add(reduce_row(
          {"any along", [](const Tensor& x) { return any(x, {1}); }, has_any, {1}, false, 0, 1},
          false,
          rank_three()),
      as_bool);
  add(reduce_row({"all along",
                  [](const Tensor& x) { return all(x, {2}, true); },
                  has_all,
                  {2},
                  true,
                  0,
                  1},
                 false,
                 rank_three()),
      as_bool);
}

}  // namespace

void add_reduce_rows(std::vector<OpRow>& table) {
  add_sums(table);
  add_means(table);
  add_norms(table);
  add_extremes(table);
  add_indices(table);
}

}  // namespace headroom::testing
