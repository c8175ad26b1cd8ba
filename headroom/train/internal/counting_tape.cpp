#include "headroom/train/internal/counting_tape.h"

#include <string_view>
#include <utility>

namespace headroom::train::internal {
namespace {

// Multiplications and additions of an op; of those that are no products, one an element.
double operations_of(const tensor::Record& record) {
  if (record.kind == tensor::RecordKind::kView) return 0;
  const auto out = static_cast<double>(record.output->numel());
  const std::string_view name = record.name;
  const auto input = [&record](std::size_t i) -> const Shape& { return record.inputs[i]->shape(); };
  if (name == "linear" || name == "matmul" || name == "bmm") {
    return 2 * out * static_cast<double>(input(0).back());
  }
  if (name == "conv2d") {
    const Shape& weight = input(1);
    return 2 * out * static_cast<double>(weight[1] * weight[2] * weight[3]);
  }
  // Scores, and values by them.
  if (name == "scaled_dot_product_attention") {
    return 4 * out * static_cast<double>(input(1)[input(1).size() - 2]);
  }
  return out;
}

}  // namespace

void CountingTape::record(tensor::Record&& record) {
  (is_backward_ ? again_ : forward_) += operations_of(record);
  inner_.record(std::move(record));
}

void CountingTape::backward(const Tensor& self, const Tensor& gradient, bool retain_graph) {
  is_backward_ = true;
  try {
    inner_.backward(self, gradient, retain_graph);
  } catch (...) {
    is_backward_ = false;
    throw;
  }
  is_backward_ = false;
}

}  // namespace headroom::train::internal
