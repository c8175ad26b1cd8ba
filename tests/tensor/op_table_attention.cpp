// Rows of attention.
#include <cmath>

#include "tests/tensor/op_table.h"

namespace headroom::testing {
namespace {

Array turned(const Array& x) {
  Dims order;
  for (int i = 0; i < x.shape.size(); ++i) order.push_back(i);
  std::swap(order[x.shape.size() - 1], order[x.shape.size() - 2]);
  return permuted(x, order);
}

enum class Masking : std::uint8_t { kNone, kBool, kAdded };

// The whole product at once; a row of nothing but minus infinity is 0.
Array attended(const std::vector<Array>& in, Masking masking, const AttentionOptions& o) {
  const double scale =
      o.scale == 0 ? 1 / std::sqrt(static_cast<double>(in[0].shape.back())) : o.scale;
  Array scores = map(product(in[0], turned(in[1])), [scale](double x) { return x * scale; });
  if (masking == Masking::kBool) {
    scores = zip(scores, in[3], [](double x, double m) { return m != 0 ? x : -INFINITY; });
  } else if (masking == Masking::kAdded) {
    scores = zip(scores, in[3], [](double x, double m) { return x + m; });
  }
  const int last = scores.shape.size() - 1;
  if (o.causal) {
    const Array all = scores;
    scores = make(all.shape, [&](const Dims& index) {
      return index[last] > index[last - 1] ? -INFINITY : all.at(index);
    });
  }
  const Array lse = fold(scores, {last}, true, [](const std::vector<double>& row) {
    bool is_empty = true;
    for (const double x : row) is_empty = is_empty && x == -INFINITY;
    return is_empty ? INFINITY : log_sum_exp(row);
  });
  return product(zip(scores, lse, [](double x, double l) { return std::exp(x - l); }), in[2]);
}

struct Lengths {
  Shape batch;
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t width;
  std::int64_t value_width;
  Shape mask{};
};

OpRow attention_row(const char* name,
                    Masking masking,
                    const AttentionOptions& options,
                    const std::vector<Lengths>& lengths) {
  OpRow row;
  row.name = name;
  row.call = [=](const auto& in) {
    const Tensor mask = masking == Masking::kNone    ? Tensor()
                        : masking == Masking::kAdded ? in[3].to(in[0].dtype())
                                                     : in[3];
    return scaled_dot_product_attention(in[0], in[1], in[2], mask, options);
  };
  row.reference = [=](const auto& in) { return attended(in, masking, options); };
  for (const Lengths& l : lengths) {
    const auto shape = [&](std::int64_t rows, std::int64_t width) {
      Shape out = l.batch;
      out.push_back(rows);
      out.push_back(width);
      return out;
    };
    row.samples.push_back({{.shape = shape(l.queries, l.width)},
                           {.shape = shape(l.keys, l.width)},
                           {.shape = shape(l.keys, l.value_width)}});
    if (masking == Masking::kBool) {
      row.samples.back().push_back({.shape = l.mask, .low = 0, .high = 1.2, .fixed = kBool});
    } else if (masking == Masking::kAdded) {
      row.samples.back().push_back({.shape = l.mask, .low = -1, .high = 1, .fixed = kF32});
    }
  }
  row.dtypes = floating_types();
  row.allocations = 2;  // the output and tiles
  row.backward_saves = 1;
  row.saved = [](const auto& in, const Tensor& out) {
    std::uint64_t bytes = out.size_bytes();
    for (const Tensor& operand : in) bytes += operand.size_bytes();
    return bytes +
           static_cast<std::uint64_t>(out.numel() / out.size(-1)) * (out.dtype() == kF64 ? 8U : 4U);
  };
  row.tolerance = 30;
  return row;
}

}  // namespace

void add_attention_rows(std::vector<OpRow>& table) {
  const std::vector<Lengths> plain{{{2, 2}, 3, 4, 2, 3},
                                   {{}, 1, 1, 1, 1},
                                   {{2}, 3, 0, 2, 2},
                                   {{2}, 0, 3, 2, 2},
                                   {{0}, 2, 3, 2, 2},
                                   {{1}, 67, 140, 16, 16}};
  table.push_back(attention_row("attention", Masking::kNone, {}, plain));
  table.push_back(attention_row("attention with a scale", Masking::kNone, {.scale = 0.5}, plain));
  const std::vector<Lengths> causal{
      {{2}, 4, 4, 3, 2}, {{2}, 2, 5, 2, 2}, {{1}, 5, 2, 2, 2}, {{1}, 140, 140, 16, 16}};
  table.push_back(attention_row("attention causal", Masking::kNone, {.causal = true}, causal));
  const std::vector<Lengths> masked{{{2, 2}, 3, 4, 2, 2, {3, 4}},
                                    {{2, 2}, 3, 4, 2, 2, {2, 1, 1, 4}},
                                    {{2, 2}, 3, 4, 2, 2, {2, 3, 1}},
                                    {{2}, 3, 2, 2, 2, {}},
                                    {{1}, 67, 140, 4, 4, {67, 140}}};
  table.push_back(attention_row("attention by a mask", Masking::kBool, {}, masked));
  table.push_back(attention_row("attention with a bias", Masking::kAdded, {}, masked));
  table.push_back(
      attention_row("attention causal and masked", Masking::kBool, {.causal = true}, masked));
}

}  // namespace headroom::testing
