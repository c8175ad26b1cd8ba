// Rows of views, joins and indices.
#include <algorithm>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

OpRow view_row(std::string name,
               std::function<Tensor(const Tensor&)> op,
               std::function<Array(const Array&)> reference,
               const std::vector<Shape>& shapes) {
  OpRow row;
  row.name = std::move(name);
  row.call = [op = std::move(op)](const auto& in) { return op(in[0]); };
  row.reference = [reference = std::move(reference)](const auto& in) { return reference(in[0]); };
  row.samples = samples_of(shapes);
  row.dtypes = all_types();
  row.allocations = 0;
  return row;
}

const std::vector<Shape>& cubes() {
  static const std::vector<Shape> kShapes{{2, 3, 4}, {1, 1, 1}, {3, 0, 2}, {5, 4, 3}, {40, 30, 50}};
  return kShapes;
}

std::int64_t rows_of(const Array& x) { return x.shape[0] * x.shape[1]; }

// Elements whose index along a dimension is start, start + step, ...
Array cut(const Array& x, int dim, std::int64_t start, std::int64_t count, std::int64_t step) {
  Shape shape = x.shape;
  shape[dim] = count;
  return make(shape, [&](Dims index) {
    index[dim] = start + index[dim] * step;
    return x.at(index);
  });
}

Array dropped(const Array& x, int dim) {
  Shape shape = x.shape;
  shape.erase(dim);
  return reshaped(x, shape);
}

void add_plain_views(std::vector<OpRow>& table) {
  table.push_back(view_row(
      "reshape",
      [](const Tensor& x) {
        return x.reshape({-1, x.size(2)});
      },
      [](const Array& x) {
        return reshaped(x, {rows_of(x), x.shape[2]});
      },
      {{2, 3, 4}, {1, 1, 1}, {3, 0, 2}, {5, 4, 3}}));
  table.push_back(view_row(
      "flatten",
      [](const Tensor& x) { return x.flatten(); },
      [](const Array& x) { return reshaped(x, {static_cast<std::int64_t>(x.values.size())}); },
      cubes()));
  table.push_back(view_row(
      "transpose",
      [](const Tensor& x) { return x.transpose(0, -1); },
      [](const Array& x) {
        return permuted(x, {2, 1, 0});
      },
      cubes()));
  table.push_back(view_row(
      "permute",
      [](const Tensor& x) {
        return x.permute({1, 2, 0});
      },
      [](const Array& x) {
        return permuted(x, {1, 2, 0});
      },
      cubes()));
  table.push_back(view_row(
      "unsqueeze",
      [](const Tensor& x) { return x.unsqueeze(-1); },
      [](const Array& x) {
        Shape shape = x.shape;
        shape.push_back(1);
        return reshaped(x, shape);
      },
      cubes()));
  table.push_back(view_row(
      "squeeze",
      [](const Tensor& x) { return x.squeeze(1); },
      [](const Array& x) { return x.shape[1] == 1 ? dropped(x, 1) : x; },
      {{2, 1, 4}, {2, 3, 4}, {1, 1, 1}}));
  table.push_back(view_row(
      "expand",
      [](const Tensor& x) {
        return x.expand({3, -1, 4});
      },
      [](const Array& x) {
        return broadcast(x, {3, x.shape[0], 4});
      },
      {{2, 1}, {1, 4}, {5, 4}}));
}

void add_cuts(std::vector<OpRow>& table) {
  const std::vector<Shape> shapes{{3, 6, 4}, {1, 5, 1}, {0, 6, 2}, {40, 60, 50}};
  table.push_back(view_row(
      "slice",
      [](const Tensor& x) { return x.slice(1, 1, -1, 2); },
      [](const Array& x) { return cut(x, 1, 1, (x.shape[1] - 1) / 2, 2); },
      shapes));
  table.push_back(view_row(
      "select",
      [](const Tensor& x) { return x.select(1, -2); },
      [](const Array& x) { return dropped(cut(x, 1, x.shape[1] - 2, 1, 1), 1); },
      shapes));
  table.push_back(view_row(
      "narrow",
      [](const Tensor& x) { return x.narrow(1, 2, 3); },
      [](const Array& x) { return cut(x, 1, 2, 3, 1); },
      shapes));
  table.push_back(view_row(
      "split",
      [](const Tensor& x) { return x.split(2, 1)[1]; },
      [](const Array& x) { return cut(x, 1, 2, 2, 1); },
      shapes));
  table.push_back(view_row(
      "chunk",
      [](const Tensor& x) { return x.chunk(2, 1).back(); },
      [](const Array& x) {
        const std::int64_t first = (x.shape[1] + 1) / 2;
        return cut(x, 1, first, x.shape[1] - first, 1);
      },
      shapes));
}

void add_copies(std::vector<OpRow>& table) {
  const auto same = [](const Array& x) { return x; };
  table.push_back(view_row(
      "clone", [](const Tensor& x) { return x.clone(); }, same, cubes()));
  table.back().allocations = 1;
  table.push_back(view_row(
      "to f64", [](const Tensor& x) { return x.to(kF64); }, same, cubes()));
  table.back().allocations = 1;
  table.back().result = [](DType) { return kF64; };
  table.push_back(view_row(
      "contiguous",
      [](const Tensor& x) { return x.transpose(0, 2).contiguous(); },
      [](const Array& x) {
        return permuted(x, {2, 1, 0});
      },
      cubes()));
  table.back().allocations = 1;
}

Array joined(const std::vector<Array>& in, int dim) {
  Shape shape = in[0].shape;
  shape[dim] = 0;
  for (const Array& x : in) shape[dim] += x.shape[dim];
  return make(shape, [&](Dims index) {
    std::size_t i = 0;
    for (; index[dim] >= in[i].shape[dim]; ++i) index[dim] -= in[i].shape[dim];
    return in[i].at(index);
  });
}

void add_joins(std::vector<OpRow>& table) {
  OpRow row;
  row.name = "cat";
  row.call = [](const auto& in) { return cat(in, 1); };
  row.reference = [](const auto& in) { return joined(in, 1); };
  row.samples = {{{.shape = {2, 3}}, {.shape = {2, 1}}, {.shape = {2, 4}}},
                 {{.shape = {2, 0}}, {.shape = {2, 2}}},
                 {{.shape = {0, 1}}, {.shape = {0, 2}}},
                 {{.shape = {5, 2, 3}}},
                 {{.shape = {70, 300}}, {.shape = {70, 400}}}};
  row.dtypes = all_types();
  table.push_back(row);
  row.name = "stack";
  row.call = [](const auto& in) { return stack(in, 1); };
  row.reference = [](const auto& in) {
    std::vector<Array> rows;
    for (const Array& x : in) {
      Shape shape = x.shape;
      shape.insert(1, 1);
      rows.push_back(reshaped(x, shape));
    }
    return joined(rows, 1);
  };
  row.samples = {{{.shape = {2, 3}}, {.shape = {2, 3}}},
                 {{.shape = {4}}},
                 {{.shape = {0, 3}}, {.shape = {0, 3}}}};
  table.push_back(row);
}

// --- Indices
// -----------------------------------------------------------------------------------------

Input index_input(const Shape& shape, std::int64_t bound) {
  return {.shape = shape, .low = 0, .high = static_cast<double>(bound - 1), .fixed = kI64};
}

OpRow gather_row() {
  OpRow row;
  row.name = "gather";
  row.call = [](const auto& in) { return gather(in[0], 1, in[1]); };
  row.reference = [](const auto& in) {
    return make(in[1].shape, [&](Dims index) {
      index[1] = static_cast<std::int64_t>(in[1].at(index));
      return in[0].at(index);
    });
  };
  row.samples = {{{.shape = {3, 4}}, index_input({3, 6}, 4)},
                 {{.shape = {3, 4, 2}}, index_input({2, 5, 2}, 4)},
                 {{.shape = {3, 4}}, index_input({0, 2}, 4)},
                 {{.shape = {60, 500}}, index_input({60, 900}, 500)}};
  row.dtypes = all_types();
  row.saved = saves_inputs({1});
  return row;
}

OpRow index_select_row() {
  OpRow row = gather_row();
  row.name = "index_select";
  row.call = [](const auto& in) { return index_select(in[0], 1, in[1]); };
  row.reference = [](const auto& in) {
    Shape shape = in[0].shape;
    shape[1] = in[1].shape[0];
    return make(shape, [&](Dims index) {
      index[1] = static_cast<std::int64_t>(in[1].at({index[1]}));
      return in[0].at(index);
    });
  };
  row.samples = {{{.shape = {3, 4}}, index_input({6}, 4)},
                 {{.shape = {3, 4, 5}}, index_input({2}, 4)},
                 {{.shape = {3, 4}}, index_input({0}, 4)},
                 {{.shape = {20, 50, 60}}, index_input({90}, 50)}};
  return row;
}

OpRow embedding_row() {
  OpRow row = gather_row();
  row.name = "embedding";
  row.call = [](const auto& in) { return embedding(in[0], in[1]); };
  row.reference = [](const auto& in) {
    Shape shape = in[1].shape;
    shape.push_back(in[0].shape[1]);
    return make(shape, [&](const Dims& index) {
      Dims which = index;
      which.erase(which.size() - 1);
      return in[0].at({static_cast<std::int64_t>(in[1].at(which)), index.back()});
    });
  };
  row.samples = {{{.shape = {5, 3}}, index_input({2, 4}, 5)},
                 {{.shape = {5, 3}}, index_input({}, 5)},
                 {{.shape = {5, 3}}, index_input({0}, 5)},
                 {{.shape = {100, 64}}, index_input({30, 40}, 100)}};
  return row;
}

Array scattered(const std::vector<Array>& in, bool is_add) {
  Array out = in[0];
  for_each_index(in[1].shape, [&](const Dims& index) {
    Dims to = index;
    to[1] = static_cast<std::int64_t>(in[1].at(index));
    std::int64_t at = 0;
    for (int i = 0; i < to.size(); ++i) at = at * out.shape[i] + to[i];
    double& place = out.values[static_cast<std::size_t>(at)];
    place = (is_add ? place : 0) + in[2].at(index);
  });
  return out;
}

// Without equal indices in a row, so that what wins is not a matter of order: the index is the
// inverse permutation of a shift.
OpRow scatter_row(const std::string& name, bool is_add) {
  OpRow row;
  row.name = name;
  row.call = [name, is_add](const auto& in) {
    if (name == "scatter") return scatter(in[0], 1, in[1], in[2]);
    if (name == "scatter_add") return scatter_add(in[0], 1, in[1], in[2]);
    Tensor out = in[0].clone();
    is_add ? out.scatter_add_(1, in[1], in[2]) : out.scatter_(1, in[1], in[2]);
    return out;
  };
  row.reference = [is_add](const auto& in) { return scattered(in, is_add); };
  const auto sample =
      [&](const Shape& x, const Shape& index, const Shape& source, std::int64_t bound) {
        return Sample{{.shape = x}, index_input(index, bound), {.shape = source}};
      };
  row.samples = {sample({3, 4}, {3, 1}, {3, 1}, 4),
                 sample({3, 4}, {2, 1}, {3, 2}, 4),
                 sample({3, 4}, {0, 0}, {3, 4}, 4)};
  if (is_add) row.samples.push_back(sample({30, 40}, {30, 400}, {30, 400}, 40));
  row.dtypes = {kF32, kF64, kI32, kI64};
  row.saved = saves_inputs({1});
  row.tolerance = 16;
  return row;
}

}  // namespace

void add_view_rows(std::vector<OpRow>& table) {
  add_plain_views(table);
  add_cuts(table);
  add_copies(table);
  add_joins(table);
}

void add_index_rows(std::vector<OpRow>& table) {
  table.push_back(gather_row());
  table.push_back(index_select_row());
  table.push_back(embedding_row());
  table.push_back(scatter_row("scatter", false));
  table.push_back(scatter_row("scatter_add", true));
  table.push_back(scatter_row("scatter_", false));
  table.push_back(scatter_row("scatter_add_", true));
}

}  // namespace headroom::testing
