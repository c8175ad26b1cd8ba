#include "headroom/nn/init.h"

#include <algorithm>
#include <cmath>

#include "headroom/memory/annotation.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::nn {
namespace {

Tensor made(const Shape& shape, TensorOptions options) {
  const memory::CategoryScope category(memory::Category::kParameter);
  options.requires_grad = false;
  return empty(shape, options);
}

}  // namespace

Tensor uniform_parameter(const Shape& shape, double bound, TensorOptions options) {
  const Tensor out = made(shape, options);
  out.uniform_(-bound, bound);
  return out.requires_grad_();
}

Tensor normal_parameter(const Shape& shape, double deviation, TensorOptions options) {
  const Tensor out = made(shape, options);
  out.normal_(0, deviation);
  return out.requires_grad_();
}

Tensor full_parameter(const Shape& shape, double value, TensorOptions options) {
  return full_buffer(shape, value, options).requires_grad_();
}

Tensor full_buffer(const Shape& shape, double value, TensorOptions options) {
  Tensor out = made(shape, options);
  out.fill_(value);
  return out;
}

double fan_in_bound(std::int64_t fan_in) {
  return 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(fan_in, 1)));
}

}  // namespace headroom::nn
