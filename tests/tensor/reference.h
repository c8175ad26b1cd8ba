// Plain arithmetic in double precision, to compare ops with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/tensor/shape.h"

namespace headroom::testing {

struct Array {
  Shape shape{};
  std::vector<double> values{};  // in row-major order

  [[nodiscard]] double at(const Dims& index) const;
};

[[nodiscard]] Array make(const Shape& shape, const std::function<double(const Dims&)>& value);
// Calls f with every index of a shape, in row-major order.
void for_each_index(const Shape& shape, const std::function<void(const Dims&)>& f);

[[nodiscard]] Array map(const Array& x, const std::function<double(double)>& f);
// With broadcasting.
[[nodiscard]] Array zip(const Array& a,
                        const Array& b,
                        const std::function<double(double, double)>& f);
[[nodiscard]] Array broadcast(const Array& x, const Shape& shape);
// f of each group of elements that differ in `dims` only, in row-major order.
[[nodiscard]] Array fold(const Array& x,
                         const Dims& dims,
                         bool keepdim,
                         const std::function<double(const std::vector<double>&)>& f);
// Minus infinity of nothing.
[[nodiscard]] double log_sum_exp(const std::vector<double>& values);
// Of the last two dimensions; leading ones broadcast.
[[nodiscard]] Array product(const Array& a, const Array& b);
[[nodiscard]] Array permuted(const Array& x, const Dims& order);
[[nodiscard]] inline Array reshaped(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

}  // namespace headroom::testing
