// What a backend may do in one launch, against the same put together: with the processor's table as
// it is, and with one that accepts nothing beyond single ops. Values, gradients, memory and plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/autograd.h"
#include "headroom/tensor/internal/cpu_kernels.h"

#include "tests/tensor/op_suite.h"

namespace headroom::testing {
namespace {

using memory::Action;
using tensor::Kernels;

bool accepts_plain_product(const tensor::MatmulArgs& args, const device::Properties&) {
  return !args.adds && !tensor::has_epilogue(args);
}
bool accepts_no_sum(const tensor::LayerNormArgs& args, const device::Properties&) {
  return !args.adds_x_grad;
}

// While it lives, the processor and what stands for it do one op in a launch.
class PlainKernels {
 public:
  PlainKernels() {
    Kernels table = tensor::cpu::kernels();
    table.matmul.accepts = accepts_plain_product;
    table.layer_norm.accepts = accepts_no_sum;
    table.residual_layer_norm = {};
    tensor::register_kernels(device::DeviceKind::kCpu, table);
  }
  ~PlainKernels() { tensor::register_kernels(device::DeviceKind::kCpu, tensor::cpu::kernels()); }
  PlainKernels(const PlainKernels&) = delete;
  PlainKernels& operator=(const PlainKernels&) = delete;
};

struct Leaves {
  Leaves(const World& world, DType dtype) {
    manual_seed(12);
    const auto leaf = [&](const Shape& shape) {
      return randn(shape, {.dtype = dtype, .device = world.allocator()}).requires_grad_();
    };
    x = leaf({2, 3, 8});
    residual = leaf({2, 3, 8});
    norm_weight = leaf({8});
    norm_bias = leaf({8});
    fc = leaf({20, 8});
    fc_bias = leaf({20});
    proj = leaf({8, 20});
  }
  [[nodiscard]] std::vector<Tensor> all() const {
    return {x, residual, norm_weight, norm_bias, fc, fc_bias, proj};
  }

  Tensor x, residual, norm_weight, norm_bias, fc, fc_bias, proj;
};

// The half of a transformer's block that can be fused.
Tensor half_block(const Leaves& l) {
  const auto [sum, normed] = residual_layer_norm(l.x, l.residual, {8}, l.norm_weight, l.norm_bias);
  return sum + linear(linear_gelu(normed, l.fc, l.fc_bias, true), l.proj);
}

struct Outcome {
  std::vector<std::vector<double>> values{};
  std::vector<std::string> events{};
  std::vector<std::string> meta_events{};
  int allocations = 0;
};

// Forward and backward, twice: the second adds to the gradients that are there.
std::vector<std::vector<double>> run_twice(const World& world, DType dtype) {
  std::vector<std::vector<double>> out;
  const Leaves leaves(world, dtype);
  for (int i = 0; i < 2; ++i) {
    const Tensor y = half_block(leaves);
    y.backward(ones_like(y));
    if (y.is_meta()) continue;
    out.push_back(y.to_doubles());
  }
  for (const Tensor& leaf : leaves.all()) {
    if (!leaf.is_meta()) out.push_back(leaf.grad().to_doubles());
  }
  return out;
}

Outcome outcome(DType dtype) {
  Outcome out;
  const World world = tensor_backends()[0].make();
  const World meta = tensor_backends()[0].make_meta();
  {
    EventLog log(world.allocator());
    out.values = run_twice(world, dtype);
    out.events = log.lines();
    out.allocations = log.count(Action::kAlloc);
  }
  EventLog log(meta.allocator());
  (void)run_twice(meta, dtype);
  out.meta_events = log.lines();
  EXPECT_EQ(world.allocated_bytes(), 0);
  return out;
}

TEST(Fused, ABlockIsTheSamePutTogether) {
  for (const DType dtype : {kF32, kF64, kBF16}) {
    SCOPED_TRACE(std::string(to_string(dtype)));
    const Outcome fused = outcome(dtype);
    const Outcome plain = [&] {
      const PlainKernels kernels;
      return outcome(dtype);
    }();
    EXPECT_EQ(fused.meta_events, fused.events);
    EXPECT_EQ(plain.meta_events, plain.events);
    EXPECT_LT(fused.allocations, plain.allocations);
    ASSERT_EQ(fused.values.size(), plain.values.size());
    const double allowed = dtype == kF64 ? 1e-12 : dtype == kF32 ? 1e-4 : 0.5;
    for (std::size_t i = 0; i < fused.values.size(); ++i) {
      EXPECT_THAT(fused.values[i],
                  ::testing::Pointwise(::testing::DoubleNear(allowed), plain.values[i]))
          << i;
    }
  }
}

// A weight's gradient, once it is there, is added to by the product: no second one is made.
TEST(Fused, AccumulatingTakesNoRoomOfAWeightsSize) {
  const auto peak_of_second = [] {
    const World world = tensor_backends()[0].make();
    const TensorOptions options{.device = world.allocator()};
    const Tensor weight = randn({512, 512}, options).requires_grad_();
    const Tensor x = randn({4, 512}, options);
    const auto run = [&] {
      const Tensor y = linear(x, weight);
      y.backward(ones_like(y));
    };
    run();
    world.allocator().reset_peak_statistics();
    const std::int64_t before = world.allocated_bytes();
    run();
    return world.allocator().statistics().allocated_bytes.all.peak - before;
  };
  constexpr std::int64_t kWeight = 512 * 512 * 4;
  EXPECT_LT(peak_of_second(), kWeight / 8);
  const PlainKernels kernels;
  EXPECT_GE(peak_of_second(), kWeight);
}

// The rows of an embedding too.
TEST(Fused, AnEmbeddingAddsToTheGradientThatIsThere) {
  const World world = tensor_backends()[0].make();
  const TensorOptions options{.device = world.allocator()};
  const Tensor table = randn({1024, 256}, options).requires_grad_();
  const Tensor index =
      from(std::vector<std::int64_t>{3, 3, 900}, {3}, {.dtype = kI64, .device = world.allocator()});
  embedding(table, index).sum().backward();
  const std::vector<double> once = table.grad().to_doubles();
  world.allocator().reset_peak_statistics();
  const std::int64_t before = world.allocated_bytes();
  embedding(table, index).sum().backward();
  EXPECT_LT(world.allocator().statistics().allocated_bytes.all.peak - before, 1024 * 256);
  const std::vector<double> twice = table.grad().to_doubles();
  for (std::size_t i = 0; i < once.size(); ++i) ASSERT_EQ(twice[i], 2 * once[i]) << i;
  EXPECT_EQ(once[3 * 256], 2);
}

// Hooks see what this backward made, and are called once.
TEST(Fused, AHookOnALeafSeesItsOwnBackwardAlone) {
  const World world = tensor_backends()[0].make();
  const TensorOptions options{.dtype = kF64, .device = world.allocator()};
  const Tensor weight = ones({3, 3}, options).requires_grad_();
  const Tensor x = ones({2, 3}, options);
  int added = 0;
  std::vector<double> seen;
  autograd::register_post_accumulate_grad_hook(weight, [&](const Tensor&) { ++added; });
  const auto run = [&] {
    const Tensor y = linear(x, weight);
    y.backward(ones_like(y));
  };
  run();
  run();
  EXPECT_EQ(added, 2);
  EXPECT_EQ(weight.grad().to_doubles()[0], 4);
  autograd::HookHandle hook = autograd::register_hook(weight, [&](const Tensor& g) {
    seen.push_back(g.to_doubles()[0]);
    return Tensor();
  });
  run();
  EXPECT_EQ(seen, std::vector<double>{2});
  EXPECT_EQ(added, 3);
  EXPECT_EQ(weight.grad().to_doubles()[0], 6);
}

// A tensor that goes into several products has the sum of their gradients, whoever adds.
TEST(Fused, GradientsOfOneTensorInManyPlacesAddUp) {
  const World world = tensor_backends()[0].make();
  const TensorOptions options{.dtype = kF64, .device = world.allocator()};
  const Tensor a = randn({4, 4}, options).requires_grad_();
  const auto f = [&](const Tensor& m) {
    return (matmul(m, m) + linear(m, m) + matmul(m, linear(m, m)) + m).sum();
  };
  f(a).backward();
  const std::vector<double> fused = a.grad().to_doubles();
  const PlainKernels kernels;
  const Tensor b = a.detach().clone().requires_grad_();
  f(b).backward();
  EXPECT_THAT(fused, ::testing::Pointwise(::testing::DoubleNear(1e-12), b.grad().to_doubles()));
}

// Whoever holds on to a gradient on its way does not see it change.
TEST(Fused, AGradientThatAHookKeepsStaysWhatItWas) {
  const World world = tensor_backends()[0].make();
  const Leaves l(world, kF64);
  const auto [sum, normed] = residual_layer_norm(l.x, l.residual, {8});
  const Tensor hidden = linear_gelu(normed, l.fc, l.fc_bias);
  const Tensor out = sum + linear(hidden, l.proj);
  Tensor kept_hidden;
  Tensor kept_out;
  autograd::register_hook(hidden, [&](const Tensor& g) {
    kept_hidden = g;
    return Tensor();
  });
  autograd::register_hook(out, [&](const Tensor& g) {
    kept_out = g;
    return Tensor();
  });
  out.backward(ones_like(out));
  EXPECT_THAT(kept_out.to_doubles(), ::testing::Each(1));
  const GradModeScope no_grad(false);
  const Tensor wanted = matmul(ones_like(out), l.proj);
  EXPECT_THAT(kept_hidden.to_doubles(),
              ::testing::Pointwise(::testing::DoubleNear(1e-12), wanted.to_doubles()));
}

}  // namespace
}  // namespace headroom::testing
