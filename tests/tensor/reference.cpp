#include "tests/tensor/reference.h"

#include <algorithm>
#include <cmath>

namespace headroom::testing {

double Array::at(const Dims& index) const {
  std::int64_t at = 0;
  for (int i = 0; i < shape.size(); ++i) at = at * shape[i] + index[i];
  return values.at(static_cast<std::size_t>(at));
}

void for_each_index(const Shape& shape, const std::function<void(const Dims&)>& f) {
  const std::int64_t count = checked_numel("test", shape);
  Dims index = Dims::filled(shape.size(), 0);
  for (std::int64_t n = 0; n < count; ++n) {
    f(index);
    for (int i = shape.size() - 1; i >= 0; --i) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
}

Array make(const Shape& shape, const std::function<double(const Dims&)>& value) {
  Array out{.shape = shape};
  for_each_index(shape, [&](const Dims& index) { out.values.push_back(value(index)); });
  return out;
}

Array map(const Array& x, const std::function<double(double)>& f) {
  Array out = x;
  std::transform(x.values.begin(), x.values.end(), out.values.begin(), f);
  return out;
}

Array broadcast(const Array& x, const Shape& shape) {
  if (x.shape == shape) return x;
  const int shift = shape.size() - x.shape.size();
  return make(shape, [&](const Dims& index) {
    Dims own = x.shape;
    for (int i = 0; i < own.size(); ++i) own[i] = x.shape[i] == 1 ? 0 : index[i + shift];
    return x.at(own);
  });
}

Array zip(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  const Shape shape = broadcast_shapes("test", a.shape, b.shape);
  Array left = broadcast(a, shape);
  const Array right = broadcast(b, shape);
  std::transform(
      left.values.begin(), left.values.end(), right.values.begin(), left.values.begin(), f);
  return left;
}

Array fold(const Array& x,
           const Dims& dims,
           bool keepdim,
           const std::function<double(const std::vector<double>&)>& f) {
  Shape kept = x.shape;
  for (const std::int64_t dim : dims) kept[static_cast<int>(dim)] = 1;
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(checked_numel("test", kept)));
  for_each_index(x.shape, [&](const Dims& index) {
    std::int64_t at = 0;
    for (int i = 0; i < kept.size(); ++i) at = at * kept[i] + (kept[i] == 1 ? 0 : index[i]);
    groups[static_cast<std::size_t>(at)].push_back(x.at(index));
  });
  Array out{.shape = kept};
  for (const auto& group : groups) out.values.push_back(f(group));
  if (keepdim) return out;
  Shape left;
  for (int i = 0; i < kept.size(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) left.push_back(kept[i]);
  }
  out.shape = left;
  return out;
}

double log_sum_exp(const std::vector<double>& values) {
  if (values.empty()) return -INFINITY;
  const double max = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - max);
  return max + std::log(sum);
}

Array product(const Array& a, const Array& b) {
  const auto batch = [](Shape shape) {
    shape.erase(shape.size() - 1);
    shape.erase(shape.size() - 1);
    return shape;
  };
  Shape left = broadcast_shapes("test", batch(a.shape), batch(b.shape));
  Shape right = left;
  const int rank = left.size() + 2;
  const std::int64_t k = a.shape.back();
  left.push_back(a.shape[a.shape.size() - 2]);
  left.push_back(k);
  right.push_back(k);
  right.push_back(b.shape.back());
  const Array x = broadcast(a, left);
  const Array y = broadcast(b, right);
  Shape shape = left;
  shape[rank - 1] = b.shape.back();
  return make(shape, [&](const Dims& index) {
    double sum = 0;
    Dims ia = index;
    Dims ib = index;
    for (std::int64_t p = 0; p < k; ++p) {
      ia[rank - 1] = p;
      ib[rank - 2] = p;
      sum += x.at(ia) * y.at(ib);
    }
    return sum;
  });
}

Array permuted(const Array& x, const Dims& order) {
  Shape shape = x.shape;
  for (int i = 0; i < shape.size(); ++i) shape[i] = x.shape[static_cast<int>(order[i])];
  return make(shape, [&](const Dims& index) {
    Dims own = index;
    for (int i = 0; i < own.size(); ++i) own[static_cast<int>(order[i])] = index[i];
    return x.at(own);
  });
}

}  // namespace headroom::testing
