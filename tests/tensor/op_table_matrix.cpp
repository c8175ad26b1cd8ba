// Rows of matrix products, softmax and losses.
#include <algorithm>
#include <cmath>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

std::vector<DType> product_types() { return {kF32, kF64, kF16, kBF16, kI32, kI64}; }

OpRow matmul_row() {
  OpRow row;
  row.name = "matmul";
  row.call = [](const auto& in) { return matmul(in[0], in[1]); };
  row.reference = [](const auto& in) { return product(in[0], in[1]); };
  row.samples = {{{.shape = {3, 4}}, {.shape = {4, 5}}},
                 {{.shape = {1, 1}}, {.shape = {1, 1}}},
                 {{.shape = {0, 4}}, {.shape = {4, 5}}},
                 {{.shape = {3, 0}}, {.shape = {0, 5}}},
                 {{.shape = {2, 3, 4}}, {.shape = {2, 4, 5}}},
                 {{.shape = {2, 1, 3, 4}}, {.shape = {3, 4, 2}}},
                 {{.shape = {2, 3, 4}}, {.shape = {4, 5}}},
                 {{.shape = {3, 4}}, {.shape = {2, 4, 5}}},
                 {{.shape = {65, 70}}, {.shape = {70, 33}}}};
  row.dtypes = product_types();
  row.saved = saves_inputs({0, 1});
  row.tolerance = 30;
  return row;
}

OpRow vector_row(const char* name, const Shape& a, const Shape& b) {
  OpRow row = matmul_row();
  row.name = name;
  row.reference = [](const auto& in) {
    Array x = in[0];
    Array y = in[1];
    const bool row_vector = x.shape.size() == 1;
    const bool column_vector = y.shape.size() == 1;
    if (row_vector) x.shape.insert(0, 1);
    if (column_vector) y.shape.insert(1, 1);
    Array out = product(x, y);
    if (column_vector) out.shape.erase(out.shape.size() - 1);
    if (row_vector) out.shape.erase(out.shape.size() - (column_vector ? 1 : 2));
    return out;
  };
  row.samples = {{{.shape = a}, {.shape = b}}};
  return row;
}

OpRow bmm_row() {
  OpRow row = matmul_row();
  row.name = "bmm";
  row.call = [](const auto& in) { return bmm(in[0], in[1]); };
  row.samples = {{{.shape = {2, 3, 4}}, {.shape = {2, 4, 5}}},
                 {{.shape = {0, 3, 4}}, {.shape = {0, 4, 5}}},
                 {{.shape = {7, 20, 30}}, {.shape = {7, 30, 10}}}};
  return row;
}

// The last two dimensions turned.
Array turned_matrix(const Array& x) {
  Dims order;
  for (int i = 0; i < x.shape.size(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permuted(x, order);
}

OpRow adjoint_row(bool is_left) {
  OpRow row = matmul_row();
  row.name = is_left ? "adjoint_matmul" : "matmul_adjoint";
  row.call = [is_left](const auto& in) {
    return is_left ? adjoint_matmul(in[0], in[1]) : matmul_adjoint(in[0], in[1]);
  };
  row.reference = [is_left](const auto& in) {
    return is_left ? product(turned_matrix(in[0]), in[1]) : product(in[0], turned_matrix(in[1]));
  };
  row.samples = {{{.shape = is_left ? Shape{4, 3} : Shape{3, 4}},
                  {.shape = is_left ? Shape{4, 5} : Shape{5, 4}}},
                 {{.shape = is_left ? Shape{2, 4, 3} : Shape{2, 3, 4}},
                  {.shape = is_left ? Shape{2, 4, 5} : Shape{2, 5, 4}}}};
  return row;
}

// a^T a + n I of each matrix: far from singular.
Array positive(const Array& a) {
  Array out = product(turned_matrix(a), a);
  const std::int64_t n = out.shape.back();
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) % (n * n);
    if (at / n == at % n) out.values[i] += static_cast<double>(n);
  }
  return out;
}

// x with a x = b of [batch, n, n] and [batch, n, m], by elimination.
Array eliminated(Array a, Array b) {
  const auto n = static_cast<std::size_t>(a.shape.back());
  const auto m = static_cast<std::size_t>(b.shape.back());
  for (std::size_t batch = 0; batch < a.values.size() / (n * n); ++batch) {
    double* matrix = a.values.data() + batch * n * n;
    double* right = b.values.data() + batch * n * m;
    for (std::size_t k = 0; k < n; ++k) {
      const double pivot = matrix[k * n + k];
      for (std::size_t j = 0; j < n; ++j) matrix[k * n + j] /= pivot;
      for (std::size_t j = 0; j < m; ++j) right[k * m + j] /= pivot;
      for (std::size_t i = 0; i < n; ++i) {
        const double factor = i == k ? 0 : matrix[i * n + k];
        for (std::size_t j = 0; j < n; ++j) matrix[i * n + j] -= factor * matrix[k * n + j];
        for (std::size_t j = 0; j < m; ++j) right[i * m + j] -= factor * right[k * m + j];
      }
    }
  }
  return b;
}

// Of a matrix that is made positive first: one that is moved a little must stay symmetric.
OpRow solve_row() {
  OpRow row;
  row.name = "solve_positive";
  row.call = [](const auto& in) {
    const Tensor& a = in[0];
    const std::int64_t n = a.size(-1);
    const Tensor unit = zeros({n, n}, {.dtype = a.dtype(), .device = a.storage().allocator()});
    for (std::int64_t i = 0; i < n; ++i) unit.select(0, i).select(0, i).fill_(n);
    return solve_positive(adjoint_matmul(a, a) + unit, in[1]);
  };
  row.reference = [](const auto& in) { return eliminated(positive(in[0]), in[1]); };
  row.samples = {{{.shape = {4, 4}}, {.shape = {4, 2}}},
                 {{.shape = {1, 1}}, {.shape = {1, 1}}},
                 {{.shape = {3, 5, 5}}, {.shape = {3, 5, 1}}},
                 {{.shape = {0, 2, 2}}, {.shape = {0, 2, 3}}},
                 {{.shape = {60, 8, 8}}, {.shape = {60, 8, 3}}}};
  row.dtypes = {kF32, kF64};
  row.allocations = 5;  // the unit, the product, the sum, a factor, x
  row.saved = [](const auto& in, const Tensor& out) {
    return 2 * in[0].size_bytes() + out.size_bytes();  // a, its factor, x
  };
  row.tolerance = 30;
  return row;
}

OpRow linear_row(bool has_bias) {
  OpRow row = matmul_row();
  row.name = has_bias ? "linear with bias" : "linear";
  row.call = [](const auto& in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor()); };
  row.reference = [](const auto& in) {
    Array x = in[0];
    Shape shape = x.shape;
    shape[shape.size() - 1] = in[1].shape[0];
    x.shape = {static_cast<std::int64_t>(x.values.size()) / x.shape.back(), x.shape.back()};
    Array out = product(x, permuted(in[1], {1, 0}));
    if (in.size() > 2) out = zip(out, in[2], [](double a, double b) { return a + b; });
    return reshaped(out, shape);
  };
  row.samples.clear();
  for (const Shape& shape : {Shape{3, 4}, Shape{4}, Shape{2, 3, 4}, Shape{0, 4}, Shape{90, 4}}) {
    Sample sample{{.shape = shape}, {.shape = {5, 4}}};
    if (has_bias) sample.push_back({.shape = {5}});
    row.samples.push_back(sample);
  }
  row.dtypes = floating_types();
  return row;
}

OpRow linear_gelu_row(bool is_tanh) {
  OpRow row = linear_row(true);
  row.name = is_tanh ? "linear_gelu by tanh" : "linear_gelu";
  row.call = [is_tanh](const auto& in) { return linear_gelu(in[0], in[1], in[2], is_tanh); };
  row.reference = [is_tanh, before = row.reference](const auto& in) {
    return map(before(in), [is_tanh](double x) {
      constexpr double kRoot = 0.7978845608028654;  // of 2 / pi
      if (is_tanh) return 0.5 * x * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x)));
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    });
  };
  row.backward_saves = 1;  // what went into the activation
  row.saved = saves_both(saves_inputs({0, 1}), saves_output());
  return row;
}

OpRow softmax_row(const char* name, int dim, bool is_log) {
  OpRow row;
  row.name = name;
  row.call = [dim, is_log](const auto& in) {
    return is_log ? log_softmax(in[0], dim) : softmax(in[0], dim);
  };
  row.reference = [dim, is_log](const auto& in) {
    const Array lse = fold(in[0], {dim}, true, log_sum_exp);
    return zip(
        in[0], lse, [is_log](double x, double l) { return is_log ? x - l : std::exp(x - l); });
  };
  row.samples =
      samples_of({{2, 3, 4}, {1, 1, 1}, {2, 0, 3}, {0, 2, 3}, {3, 5, 2}, {5, 7, 1500}}, -4, 4);
  row.dtypes = floating_types();
  row.saved = saves_output();
  row.tolerance = 8;
  return row;
}

// Of [N, classes, ...]; targets of 0 are ignored.
Array losses(const Array& x, const Array& target) {
  const Array lse = fold(x, {1}, false, log_sum_exp);
  return make(target.shape, [&](const Dims& index) {
    const auto t = static_cast<std::int64_t>(target.at(index));
    Dims at = index;
    at.insert(1, t);
    return t == 0 ? 0.0 : lse.at(index) - x.at(at);
  });
}

OpRow cross_entropy_row(const char* name, Reduction reduction) {
  OpRow row;
  row.name = name;
  row.call = [reduction](const auto& in) {
    return cross_entropy(in[0], in[1], {.reduction = reduction, .ignore_index = 0});
  };
  row.reference = [reduction](const auto& in) {
    Array out = losses(in[0], in[1]);
    if (reduction == Reduction::kNone) return out;
    double sum = 0;
    for (const double loss : out.values) sum += loss;
    const auto counted =
        std::count_if(in[1].values.begin(), in[1].values.end(), [](double t) { return t != 0; });
    if (reduction == Reduction::kMean) sum /= static_cast<double>(counted);
    return Array{.shape = {}, .values = {sum}};
  };
  const auto sample = [](const Shape& x, const Shape& target) {
    return Sample{
        {.shape = x, .low = -4, .high = 4},
        {.shape = target, .low = 0, .high = static_cast<double>(x[1] - 1), .fixed = kI64}};
  };
  row.samples = {sample({6, 4}, {6}), sample({3, 5, 2}, {3, 2}), sample({9, 3000}, {9})};
  row.dtypes = floating_types();
  row.tolerance = 16;
  row.allocations = 2;  // the answer, and a row of losses to add up
  row.backward_saves = 1;
  // The logits themselves, the targets, and one number a row; never a second copy.
  row.saved = [](const auto& in, const Tensor&) {
    const std::uint64_t number = in[0].dtype() == kF64 ? 8 : 4;
    return in[0].size_bytes() + in[1].size_bytes() +
           static_cast<std::uint64_t>(in[1].numel()) * number;
  };
  return row;
}

}  // namespace

void add_matrix_rows(std::vector<OpRow>& table) {
  table.push_back(matmul_row());
  table.push_back(vector_row("matmul of vectors", {4}, {4}));
  table.push_back(vector_row("matmul with a vector", {2, 3, 4}, {4}));
  table.push_back(vector_row("matmul of a vector", {4}, {4, 3}));
  table.push_back(bmm_row());
  table.push_back(adjoint_row(true));
  table.push_back(adjoint_row(false));
  table.push_back(solve_row());
  table.push_back(linear_row(false));
  table.push_back(linear_row(true));
  table.push_back(linear_gelu_row(false));
  table.push_back(linear_gelu_row(true));
  table.push_back(softmax_row("softmax", 1, false));
  table.push_back(softmax_row("softmax last", 2, false));
  table.push_back(softmax_row("log_softmax", 1, true));
  table.push_back(softmax_row("log_softmax last", 2, true));
  table.push_back(cross_entropy_row("cross_entropy", Reduction::kMean));
  table.push_back(cross_entropy_row("cross_entropy sum", Reduction::kSum));
  table.push_back(cross_entropy_row("cross_entropy none", Reduction::kNone));
}

}  // namespace headroom::testing
