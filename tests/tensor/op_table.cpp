#include "tests/tensor/op_table.h"

namespace headroom::testing {

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> kTable = [] {
    std::vector<OpRow> table;
    add_unary_rows(table);
    add_binary_rows(table);
    add_reduce_rows(table);
    add_view_rows(table);
    add_index_rows(table);
    add_matrix_rows(table);
    add_image_rows(table);
    add_norm_rows(table);
    add_layer_rows(table);
    add_attention_rows(table);
    return table;
  }();
  return kTable;
}

std::vector<DType> floating_types() { return {kF32, kF64, kF16, kBF16}; }
std::vector<DType> numeric_types() { return {kF32, kF64, kF16, kBF16, kI32, kI64, kU8}; }
std::vector<DType> all_types() { return {kF32, kF64, kF16, kBF16, kI32, kI64, kU8, kBool}; }

DType as_floating(DType dtype) { return is_floating(dtype) ? dtype : kF32; }
DType as_bool(DType) { return kBool; }
DType as_sum(DType dtype) { return is_floating(dtype) ? dtype : kI64; }
DType as_i64(DType) { return kI64; }

SavedBytes saves_inputs(std::vector<std::size_t> which) {
  return [which = std::move(which)](const std::vector<Tensor>& in, const Tensor&) {
    std::uint64_t bytes = 0;
    for (const std::size_t i : which) bytes += in.at(i).size_bytes();
    return bytes;
  };
}

SavedBytes saves_output() {
  return [](const std::vector<Tensor>&, const Tensor& out) { return out.size_bytes(); };
}

SavedBytes saves_bits() {
  return [](const std::vector<Tensor>&, const Tensor& out) {
    return (static_cast<std::uint64_t>(out.numel()) + 7) / 8;
  };
}

SavedBytes saves_both(SavedBytes a, SavedBytes b) {
  return [a = std::move(a), b = std::move(b)](const auto& in, const Tensor& out) {
    return a(in, out) + b(in, out);
  };
}

std::vector<Sample> samples_of(const std::vector<Shape>& shapes, double low, double high) {
  std::vector<Sample> out;
  for (const Shape& shape : shapes)
    out.push_back({Input{.shape = shape, .low = low, .high = high}});
  return out;
}

std::vector<Sample> unary_samples(double low, double high) {
  return samples_of({{3, 5}, {}, {1}, {0}, {2, 0, 3}, {7}, {2, 3, 4}, {33, 1025}}, low, high);
}

std::vector<Sample> binary_samples(double low, double high) {
  const auto two = [&](const Shape& a, const Shape& b) {
    return Sample{{.shape = a, .low = low, .high = high}, {.shape = b, .low = low, .high = high}};
  };
  return {two({3, 5}, {3, 5}),
          two({3, 1}, {1, 4}),
          two({2, 3, 4}, {4}),
          two({4}, {2, 3, 4}),
          two({}, {3}),
          two({1}, {2, 3}),
          two({0, 3}, {3}),
          two({}, {}),
          two({41, 1001}, {41, 1001}),
          two({41, 1001}, {1001})};
}

}  // namespace headroom::testing
