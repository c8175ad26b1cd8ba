// Every op in a row: how it is called, on what, what it must answer, allocate and save. The suite
// (op_suite_test.cpp) draws all its tests from here; a new op is a new row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/tensor.h"

#include "tests/tensor/reference.h"

namespace headroom::testing {

// An operand: drawn evenly from [low, high], whole numbers for integers.
struct Input {
  Shape shape{};
  double low = -2;
  double high = 2;
  std::optional<DType> fixed{};  // a type of its own, whatever the row runs with: no gradient
};
using Sample = std::vector<Input>;

using Call = std::function<Tensor(const std::vector<Tensor>&)>;
using Reference = std::function<Array(const std::vector<Array>&)>;
using SavedBytes = std::function<std::uint64_t(const std::vector<Tensor>&, const Tensor& out)>;
using ResultType = std::function<DType(DType)>;

struct OpRow {
  std::string name;
  Call call;
  Reference reference;
  std::vector<Sample> samples;  // the first is what allocations and saved bytes are counted on
  std::vector<DType> dtypes;
  ResultType result = [](DType dtype) { return dtype; };
  bool has_gradient = true;
  int allocations = 1;     // of the forward, where nobody wants a gradient
  int backward_saves = 0;  // allocations more where somebody does: what is made to be saved
  SavedBytes saved = [](const auto&, const auto&) { return std::uint64_t{0}; };
  double tolerance = 1;  // times what the type allows
};

[[nodiscard]] const std::vector<OpRow>& op_table();

// Parts of the table, a file each.
void add_unary_rows(std::vector<OpRow>& table);
void add_binary_rows(std::vector<OpRow>& table);
void add_reduce_rows(std::vector<OpRow>& table);
void add_view_rows(std::vector<OpRow>& table);
void add_index_rows(std::vector<OpRow>& table);
void add_matrix_rows(std::vector<OpRow>& table);
void add_image_rows(std::vector<OpRow>& table);
void add_norm_rows(std::vector<OpRow>& table);
void add_layer_rows(std::vector<OpRow>& table);
void add_attention_rows(std::vector<OpRow>& table);

// --- Words of the table -------------------------------------------------------------------------

[[nodiscard]] std::vector<DType> floating_types();
[[nodiscard]] std::vector<DType> numeric_types();  // all but bool
[[nodiscard]] std::vector<DType> all_types();

[[nodiscard]] DType as_floating(DType dtype);  // f32 for integers
[[nodiscard]] DType as_bool(DType dtype);
[[nodiscard]] DType as_sum(DType dtype);  // i64 for integers and bool
[[nodiscard]] DType as_i64(DType dtype);

[[nodiscard]] SavedBytes saves_inputs(std::vector<std::size_t> which);
[[nodiscard]] SavedBytes saves_output();
[[nodiscard]] SavedBytes saves_bits();  // one for each element of the output
[[nodiscard]] SavedBytes saves_both(SavedBytes a, SavedBytes b);

// Of one operand: none, one, odd, and large enough for threads.
[[nodiscard]] std::vector<Sample> unary_samples(double low = -2, double high = 2);
// Of two: equal, broadcast either way, empty.
[[nodiscard]] std::vector<Sample> binary_samples(double low = -2, double high = 2);
[[nodiscard]] std::vector<Sample> samples_of(const std::vector<Shape>& shapes,
                                             double low = -2,
                                             double high = 2);

}  // namespace headroom::testing
