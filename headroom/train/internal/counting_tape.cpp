#include "headroom/train/internal/counting_tape.h"

#include <utility>

namespace headroom::train::internal {

void CountingTape::record(tensor::Record&& record) {
  (is_backward_ ? again_ : forward_) += tensor::operations_of(record);
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
