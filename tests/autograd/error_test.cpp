// What can be done wrong: one line each, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/autograd/world.h"

namespace headroom {
namespace {

using testing::message_of;
using testing::World;

struct Wrong {
  const char* name;
  std::function<void(const World&, const World& meta)> action;
  const char* message;
};

Tensor leaf(const World& world, const Shape& shape) {
  return ones(shape, world.f32(/*requires_grad=*/true));
}

const Wrong kWrongs[] = {
    {"backward_twice",
     [](const World& w, const World&) {
       const Tensor y = exp(leaf(w, {}));
       y.backward();
       y.backward();
     },
     "backward: what exp saved was freed by an earlier backward; give that one retain_graph = "
     "true, or compute the forward again"},
    {"many_elements",
     [](const World& w, const World&) {
       exp(leaf(w, {2, 3})).backward();
     },
     "backward: f32[2, 3] has more than one element (or none), so its gradient must be given"},
    {"no_history",
     [](const World& w, const World&) { exp(leaf(w, {}).detach()).backward(); },
     "backward: f32[] was not computed from anything that needs a gradient (or under no_grad, or "
     "it was detached)"},
    {"gradient_shape",
     [](const World& w, const World&) { exp(leaf(w, {2})).backward(ones({3}, w.f32())); },
     "backward: a gradient of f32[3] on cpu:9 does not go with f32[2] on cpu:9"},
    {"gradient_dtype",
     [](const World& w, const World&) { exp(leaf(w, {2})).backward(ones({2}, w.f64())); },
     "backward: a gradient of f64[2] on cpu:9 does not go with f32[2] on cpu:9"},
    {"gradient_device",
     [](const World& w, const World& m) { exp(leaf(w, {2})).backward(ones({2}, m.f32())); },
     "backward: a gradient of f32[2] on meta:9 does not go with f32[2] on cpu:9"},
    {"gradient_count",
     [](const World& w, const World&) {
       autograd::backward({exp(leaf(w, {}))}, {{}, {}});
     },
     "backward: 2 gradients for 1 outputs"},
    {"mixed_devices",
     [](const World& w, const World& m) { (void)(exp(leaf(w, {2})) * leaf(m, {2})); },
     "mul: operands are on different devices: cpu:9 and meta:9"},
    {"item_of_many",
     [](const World& w, const World&) { (void)exp(leaf(w, {2})).item(); },
     "item: [2] has 2 elements, not one"},
    {"item_on_meta",
     [](const World&, const World& m) { (void)exp(leaf(m, {})).item(); },
     "item: a tensor on meta:9 has no values"},
    {"leaf_in_place",
     [](const World& w, const World&) { leaf(w, {2}).mul_(2.0); },
     "mul_: f32[2] is a leaf that needs a gradient and cannot be written to; use no_grad, or write "
     "to a clone"},
    {"integers",
     [](const World& w, const World&) {
       ones({2}, {.dtype = DType::kI64, .device = w.allocator()}).requires_grad_();
     },
     "requires_grad_: only floating tensors have gradients, not i64"},
    {"set_grad",
     [](const World& w, const World&) { leaf(w, {2}).set_grad(ones({3}, w.f32())); },
     "set_grad: f32[3] on cpu:9 is no gradient of f32[2] on cpu:9"},
    {"seed_000",
     [](const World&, const World& m) {
       const Tensor x = randn({2048, 2048}, m.f32());
       const Tensor y = randn({1024, 1024}, m.f32());
       (void)matmul(x, y);
     },
     "matmul: inner sizes differ: [2048, 2048] x [1024, 1024]"},
    {"shapes",
     [](const World& w, const World&) { (void)(exp(leaf(w, {2})) + leaf(w, {3})); },
     "add: shapes do not broadcast: [2] and [3]"},
    {"index",
     [](const World& w, const World&) { (void)exp(leaf(w, {2}))[5]; },
     "select: index 5 is out of range for size 2 of dimension 0"},
    {"undefined",
     [](const World&, const World&) { Tensor().backward(); },
     "an undefined tensor was used"},
};

class Errors : public ::testing::TestWithParam<Wrong> {};

TEST_P(Errors, AreOneLineAndLeakNothing) {
  const World world;
  const World meta(World::Kind::kMeta);
  EXPECT_EQ(message_of([&] { GetParam().action(world, meta); }), GetParam().message);
  EXPECT_EQ(world.allocated_bytes(), 0);
  EXPECT_EQ(meta.allocated_bytes(), 0);
  EXPECT_EQ(world.allocator().check_invariants(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Autograd, Errors, ::testing::ValuesIn(kWrongs), [](const auto& named) {
  return std::string(named.param.name);
});

}  // namespace
}  // namespace headroom
