// Gradients of compositions against finite differences.
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::expect_gradients;
using Inputs = std::vector<Tensor>;

struct Composition {
  const char* name;
  testing::Function function;
  std::vector<Shape> shapes;
};

std::ostream& operator<<(std::ostream& out, const Composition& c) { return out << c.name; }

Tensor chain(const Inputs& x) { return exp(sin(square(x[0]) + 1.0)) * 0.5; }
Tensor diamond(const Inputs& x) {
  const Tensor y = sin(x[0]);
  return exp(y) * cos(y) + y;
}
Tensor reuse(const Inputs& x) {
  Tensor y = x[0];
  for (int i = 0; i < 4; ++i) y = y * x[0] + y;
  return y;
}
Tensor self_product(const Inputs& x) { return x[0] * x[0] + x[0] / x[0] + x[0] - x[0]; }
Tensor broadcast(const Inputs& x) { return (x[0] * x[1] + x[2]) / x[1]; }
Tensor views(const Inputs& x) {
  const Tensor y = x[0].transpose(0, 1).reshape({6});
  return y.slice(0, 1, 6, 2) * x[0][0] + x[0].select(1, 1).sum() + y.view({2, 3})[1];
}
Tensor expanded(const Inputs& x) {
  return x[0].unsqueeze(1).expand({3, 4}) * x[1].unsqueeze(0).expand({3, 4});
}
Tensor in_place(const Inputs& x) {
  const Tensor y = x[0] * 2.0;
  y.mul_(x[1]);
  y.add_(x[0]);
  y.square_();
  y.sub_(x[1], 0.1);
  y.div_(x[0]);
  return y.exp_();
}
Tensor part_written(const Inputs& x) {
  const Tensor y = x[0] * 2.0;
  y[1].mul_(x[1]);
  return y * y;
}
Tensor part_replaced(const Inputs& x) {
  const Tensor y = square(x[0]);
  y.transpose(0, 1)[2].copy_(square(x[1]));
  return sin(y);
}
Tensor view_of_written(const Inputs& x) {
  const Tensor y = square(x[0]);
  const Tensor row = y[0];
  const Tensor wide = y[1].unsqueeze(0).expand({4, 3});
  y.mul_(y.detach() * 0 + 3);
  row.add_(x[1]);
  return row * wide + y.sum() * row;
}
Tensor into_fresh(const Inputs& x) {
  const Tensor buffer = zeros_like(x[0].detach());
  const Tensor early = buffer[1];
  buffer[0].copy_(x[1]);
  buffer[1].copy_(x[1] * x[0][1]);
  return buffer * x[0] + early;
}
Tensor several(const Inputs& x) {
  const std::vector<Tensor> parts = exp(x[0]).split(2, 1);
  return parts[0] * parts[1].sum() + cat({parts[1], parts[0]}, 1).sum();
}
Tensor network(const Inputs& x) {
  const Tensor hidden = tanh(linear(x[0], x[1], x[2]));
  return log_softmax(matmul(hidden + x[0], x[3]), -1) * hidden;
}
Tensor indexed(const Inputs& x) {
  const Tensor index = from(std::vector<std::int64_t>{2, 0, 0},
                            {3},
                            {.dtype = DType::kI64, .device = x[0].storage().allocator()});
  return index_select(x[0], 0, index) * gather(x[0], 1, index.view({3, 1}).expand({3, 1}));
}
Tensor reduced(const Inputs& x) {
  return x[0].mean(Dims{1}, true) * x[0] + logsumexp(x[0], {0}) + var(x[0], {1}).sum();
}

class Gradients : public ::testing::TestWithParam<Composition> {};

TEST_P(Gradients, AreTheFiniteDifferences) {
  expect_gradients(GetParam().function, GetParam().shapes);
}

INSTANTIATE_TEST_SUITE_P(
    Autograd,
    Gradients,
    ::testing::Values(Composition{"chain", chain, {{3}}},
                      Composition{"diamond", diamond, {{2, 2}}},
                      Composition{"reuse", reuse, {{3}}},
                      Composition{"self_product", self_product, {{3}}},
                      Composition{"broadcast", broadcast, {{2, 1, 3}, {4, 1}, {3}}},
                      Composition{"views", views, {{2, 3}}},
                      Composition{"expanded", expanded, {{3}, {4}}},
                      Composition{"in_place", in_place, {{3}, {3}}},
                      Composition{"part_written", part_written, {{2, 3}, {3}}},
                      Composition{"part_replaced", part_replaced, {{2, 3}, {2}}},
                      Composition{"view_of_written", view_of_written, {{2, 3}, {3}}},
                      Composition{"into_fresh", into_fresh, {{2, 3}, {3}}},
                      Composition{"several", several, {{2, 4}}},
                      Composition{"network", network, {{2, 3}, {3, 3}, {3}, {3, 3}}},
                      Composition{"indexed", indexed, {{3, 3}}},
                      Composition{"reduced", reduced, {{3, 3}}}),
    [](const auto& named) { return std::string(named.param.name); });

}  // namespace
}  // namespace headroom
