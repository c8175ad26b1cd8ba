// What the seam of a backend promises and no op asks for by itself: epilogues of products, layouts
// of images, fused kernels, random numbers that begin where device memory says. On every backend
// that accepts it, against the ops one after the other.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/tensor/device_random.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/kernels.h"

#include "tests/tensor/op_suite.h"

namespace headroom::testing {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the seam's own words
using ::testing::DoubleNear;
using ::testing::Pointwise;

class KernelSeam : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor random(const Shape& shape, DType dtype = kF32) const {
    return randn(shape, {.dtype = dtype, .device = world_.allocator()});
  }
  // An operand of a product: the matrix itself or, turned, its transpose.
  [[nodiscard]] static MatrixOperand operand(const Tensor& x, bool is_turned = false) {
    return {.data = pointer(x), .leading = x.size(1), .is_transposed = is_turned};
  }
  template <class Args>
  [[nodiscard]] bool accepts(Kernel<Args> Kernels::*family, const Args& args) const {
    const Kernel<Args>& kernel = backend_of(device()).kernels.*family;
    return kernel.run != nullptr &&
           (kernel.accepts == nullptr || kernel.accepts(args, device().properties()));
  }
  [[nodiscard]] device::Device& device() const { return world_.allocator().device(); }
  template <class Args>
  void run(Kernel<Args> Kernels::*family, const Args& args) const {
    launch("test", world_.allocator(), family, args);
  }

  World world_ = tensor_backends()[0].make();
};

void expect_equal(const Tensor& got, const Tensor& wanted, double tolerance = 0) {
  ASSERT_EQ(got.shape(), wanted.shape());
  EXPECT_THAT(got.to_doubles(), Pointwise(DoubleNear(tolerance), wanted.to_doubles()));
}

struct Product {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};
constexpr Product kProducts[] = {{1, 1, 1}, {5, 7, 3}, {64, 130, 33}, {3, 4, 0}, {300, 200, 100}};

TEST_F(KernelSeam, AnActivationIsThatOfTheProductAndKeepsWhatWentIntoIt) {
  for (const DType dtype : {kF32, kF64, kBF16, kF16}) {
    for (const auto& [m, n, k] : kProducts) {
      const Tensor a = random({m, k}, dtype);
      const Tensor b = random({k, n}, dtype);
      const Tensor bias = random({n}, dtype);
      const Tensor product = linear(a, b.t(), bias);
      for (const bool is_tanh : {false, true}) {
        const Tensor wanted = is_tanh ? gelu_tanh(product) : gelu(product);
        for (const bool keeps : {false, true}) {
          SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(product.shape()));
          const Tensor out = random({m, n}, dtype);
          const Tensor kept = random({m, n}, dtype);
          const MatmulArgs args{.dtype = dtype,
                                .compute = matmul_compute(dtype),
                                .m = m,
                                .n = n,
                                .k = k,
                                .a = operand(a),
                                .b = operand(b),
                                .out = pointer(out),
                                .bias = pointer(bias),
                                .activation = is_tanh ? Activation::kGeluTanh : Activation::kGelu,
                                .kept = keeps ? pointer(kept) : nullptr};
          ASSERT_TRUE(accepts(&Kernels::matmul, args));
          run(&Kernels::matmul, args);
          expect_equal(out, wanted);
          if (keeps) expect_equal(kept, product);
        }
      }
    }
  }
}

TEST_F(KernelSeam, TheGradientOfAnActivationMultipliesTheProductAndItsColumnsAreSummed) {
  for (const DType dtype : {kF32, kF64, kBF16}) {
    for (const auto& [m, n, k] : kProducts) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(m));
      const Tensor a = random({m, k}, dtype);
      const Tensor b = random({k, n}, dtype);
      const Tensor kept = random({m, n}, dtype).requires_grad_();
      gelu(kept).backward(matmul(a, b));
      const Tensor out = random({m, n}, dtype);
      const Tensor sums = random({n}, dtype);
      const MatmulArgs args{.dtype = dtype,
                            .compute = matmul_compute(dtype),
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = operand(a),
                            .b = operand(b),
                            .out = pointer(out),
                            .activation = Activation::kGelu,
                            .is_backward = true,
                            .kept = pointer(kept),
                            .column_sums = pointer(sums)};
      ASSERT_TRUE(accepts(&Kernels::matmul, args));
      run(&Kernels::matmul, args);
      expect_equal(out, kept.grad());
      expect_equal(sums, out.sum({0}));
    }
  }
}

TEST_F(KernelSeam, AProductIsAddedToWhatIsThereAndTheRowsOfItsOperandAreSummed) {
  for (const DType dtype : {kF32, kF64, kBF16, kF16}) {
    for (const auto& [m, n, k] : kProducts) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(m));
      const Tensor a = random({k, m}, dtype);  // read as its transpose, as for a weight's gradient
      const Tensor b = random({k, n}, dtype);
      const Tensor before = random({m, n}, dtype);
      const Tensor out = before.clone();
      const Tensor sums = random({m}, dtype);
      const MatmulArgs args{.dtype = dtype,
                            .compute = matmul_compute(dtype),
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = operand(a, true),
                            .b = operand(b),
                            .out = pointer(out),
                            .adds = true,
                            .row_sums = pointer(sums)};
      ASSERT_TRUE(accepts(&Kernels::matmul, args));
      run(&Kernels::matmul, args);
      const Tensor wanted = before.to(kF64) + matmul(a.to(kF64).t(), b.to(kF64));
      const double size = std::sqrt(static_cast<double>(k) + 1);
      const double allowed = dtype == kF64   ? 1e-13
                             : dtype == kF32 ? 1e-5
                             : dtype == kF16 ? 0.01
                                             : 0.05;
      expect_equal(out, wanted, allowed * size * 4);
      expect_equal(sums, a.sum({0}));
    }
  }
}

TEST_F(KernelSeam, IntegersAreAddedAndComplexNumbersToo) {
  const Tensor a = from(
      std::vector<std::int64_t>{1, 2, 3, 4}, {2, 2}, {.dtype = kI64, .device = world_.allocator()});
  const Tensor out = a.clone();
  run(&Kernels::matmul,
      MatmulArgs{.dtype = kI64,
                 .compute = MatmulCompute::kI64,
                 .m = 2,
                 .n = 2,
                 .k = 2,
                 .a = operand(a),
                 .b = operand(a),
                 .out = pointer(out),
                 .adds = true});
  EXPECT_THAT(out.to_integers(), ::testing::ElementsAre(8, 12, 18, 26));
  const Tensor z = random({3, 3}, kC64);
  const Tensor sum = z.clone();
  run(&Kernels::matmul,
      MatmulArgs{.dtype = kC64,
                 .compute = MatmulCompute::kC64,
                 .m = 3,
                 .n = 3,
                 .k = 3,
                 .a = operand(z),
                 .b = operand(z),
                 .out = pointer(sum),
                 .adds = true});
  const Tensor wanted = z + matmul(z, z);
  for (const auto part : {&real, &imag}) expect_equal(part(sum), part(wanted), 1e-5);
}

TEST_F(KernelSeam, WhatHasNoMeaningIsNotAccepted) {
  const MatmulArgs args{.dtype = kF32, .m = 2, .n = 2, .k = 2};
  MatmulArgs both = args;
  float bias = 0;
  both.adds = true;
  both.bias = &bias;
  EXPECT_FALSE(accepts(&Kernels::matmul, both));
  MatmulArgs batched = args;
  batched.batch = {3};
  EXPECT_TRUE(accepts(&Kernels::matmul, batched));
  batched.row_sums = &bias;
  EXPECT_FALSE(accepts(&Kernels::matmul, batched));
  MatmulArgs integers = args;
  integers.dtype = kI64;
  integers.activation = Activation::kGelu;
  EXPECT_FALSE(accepts(&Kernels::matmul, integers));
}

// --- Layouts -------------------------------------------------------------------------------------

Tensor laid_out(const Tensor& x, ImageLayout layout) {
  return layout == ImageLayout::kChannelsLast ? x.permute({0, 2, 3, 1}).contiguous() : x.clone();
}
Tensor read_back(const Tensor& x, ImageLayout layout) {
  return layout == ImageLayout::kChannelsLast ? x.permute({0, 3, 1, 2}).contiguous() : x;
}
// An empty tensor for images of this shape.
Tensor room_for(const Shape& s, ImageLayout layout, DType dtype, const Place& place) {
  const TensorOptions options{.dtype = dtype, .device = place};
  return layout == ImageLayout::kChannelsLast ? full({s[0], s[2], s[3], s[1]}, 9, options)
                                              : full(s, 9, options);
}

struct Image {
  Shape x;
  Shape weight;
  Conv2dOptions options;
};

TEST_F(KernelSeam, ConvolutionsGiveTheSameInEveryLayout) {
  using enum ImageLayout;
  const std::vector<Image> images = {
      {{2, 6, 9, 8}, {4, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}, .groups = 2}},
      {{1, 5, 7, 7}, {8, 5, 1, 1}, {}},
      {{2, 4, 6, 5}, {4, 1, 3, 3}, {.padding = {1, 1}, .groups = 4}},
  };
  for (const DType dtype : {kF32, kF64, kBF16}) {
    for (const Image& image : images) {
      const Tensor x = random(image.x, dtype).requires_grad_();
      const Tensor w = random(image.weight, dtype).requires_grad_();
      const Tensor bias = random({image.weight[0]}, dtype);
      const Tensor y = conv2d(x, w, bias, image.options);
      const Tensor g = random(y.shape(), dtype);
      y.backward(g);
      const GradModeScope no_grad(false);
      for (int i = 0; i < 8; ++i) {
        const auto layout = [i](int bit) {
          return ((i >> bit) & 1) != 0 ? kChannelsLast : kChannelsFirst;
        };
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(image.x) + " layouts " +
                     std::to_string(i));
        Conv2dArgs args{.dtype = dtype,
                        .x_layout = layout(0),
                        .weight_layout = layout(1),
                        .y_layout = layout(2),
                        .batch = x.size(0),
                        .groups = image.options.groups,
                        .in = w.size(1),
                        .out = w.size(0) / image.options.groups,
                        .in_size = {x.size(2), x.size(3)},
                        .out_size = {y.size(2), y.size(3)},
                        .kernel = {w.size(2), w.size(3)},
                        .stride = image.options.stride,
                        .padding = image.options.padding,
                        .dilation = image.options.dilation};
        const Tensor own_x = laid_out(x, args.x_layout);
        const Tensor own_w = laid_out(w, args.weight_layout);
        const Tensor own_g = laid_out(g, args.y_layout);
        const auto run_pass =
            [&](ConvPass pass, const Tensor& px, const Tensor& pw, const Tensor& py) {
              args.pass = pass;
              args.x = pointer(px);
              args.weight = pointer(pw);
              args.y = pointer(py);
              args.bias = pass == ConvPass::kForward ? pointer(bias) : nullptr;
              run(&Kernels::conv2d, args);
            };
        const Place place(world_.allocator());
        const Tensor out = room_for(y.shape(), args.y_layout, dtype, place);
        run_pass(ConvPass::kForward, own_x, own_w, out);
        expect_equal(read_back(out, args.y_layout), y);
        const Tensor dx = room_for(x.shape(), args.x_layout, dtype, place);
        run_pass(ConvPass::kInput, dx, own_w, own_g);
        expect_equal(read_back(dx, args.x_layout), x.grad());
        const Tensor dw = room_for(w.shape(), args.weight_layout, dtype, place);
        run_pass(ConvPass::kWeight, own_x, dw, own_g);
        expect_equal(read_back(dw, args.weight_layout), w.grad());
      }
    }
  }
}

// --- Norms ---------------------------------------------------------------------------------------

TEST_F(KernelSeam, AResidualIsAddedBeforeItsSumIsNormalised) {
  for (const DType dtype : {kF32, kF64, kBF16, kF16}) {
    for (const std::int64_t width : {1, 7, 1024, 2500}) {
      const Tensor x = random({5, width}, dtype);
      const Tensor residual = random({5, width}, dtype);
      const Tensor weight = random({width}, dtype);
      const Tensor bias = random({width}, dtype);
      const Tensor y = empty_like(x);
      const Tensor sum = empty_like(x);
      run(&Kernels::residual_layer_norm,
          LayerNormArgs{.dtype = dtype,
                        .parameter_dtype = dtype,
                        .rows = 5,
                        .width = width,
                        .eps = 1e-5,
                        .x = pointer(x),
                        .weight = pointer(weight),
                        .bias = pointer(bias),
                        .y = pointer(y),
                        .residual = pointer(residual),
                        .residual_dtype = residual.dtype(),
                        .sum = pointer(sum)});
      expect_equal(sum, x + residual);
      expect_equal(y, layer_norm(sum, {width}, weight, bias));
    }
  }
}

TEST_F(KernelSeam, TheGradientOfANormIsAddedToWhatIsThere) {
  for (const DType dtype : {kF32, kF64, kBF16}) {
    const std::int64_t width = 1500;
    const Tensor x = random({4, width}, dtype).requires_grad_();
    const Tensor g = random({4, width}, dtype);
    layer_norm(x, {width}).backward(g);
    const GradModeScope no_grad(false);
    const Tensor mean = x.to(kF64).mean({1}).to(dtype == kF64 ? kF64 : kF32);
    const Tensor rstd = rsqrt(var(x.to(kF64), {1}, 0) + 1e-5).to(mean.dtype());
    const Tensor before = random({4, width}, dtype);
    const Tensor out = before.clone();
    run(&Kernels::layer_norm,
        LayerNormArgs{.is_backward = true,
                      .dtype = dtype,
                      .parameter_dtype = dtype,
                      .rows = 4,
                      .width = width,
                      .eps = 1e-5,
                      .x = pointer(x),
                      .mean = pointer(mean),
                      .rstd = pointer(rstd),
                      .grad = pointer(g),
                      .x_grad = pointer(out),
                      .adds_x_grad = true});
    expect_equal(out,
                 before.to(kF64) + x.grad().to(kF64),
                 dtype == kF64   ? 1e-12
                 : dtype == kF32 ? 1e-5
                                 : 0.04);
  }
}

// --- Random numbers ------------------------------------------------------------------------------

TEST_F(KernelSeam, WhatIsDrawnThroughDeviceMemoryIsTheSame) {
  Generator& generator = default_generator(device());
  const Tensor state = zeros({2}, {.dtype = kI64, .device = world_.allocator()});
  const auto draw_all = [&] {
    const TensorOptions options{.device = world_.allocator()};
    std::vector<std::vector<double>> out;
    out.push_back(rand({1000}, options).to_doubles());
    out.push_back(randn({1001}, {.dtype = kF64, .device = world_.allocator()}).to_doubles());
    out.push_back(
        randint(-5, 1000, {77}, {.dtype = kI64, .device = world_.allocator()}).to_doubles());
    out.push_back(dropout(ones({3000}, options), 0.3).to_doubles());
    return out;
  };
  // Seeds that use all bits, and counters that wrap.
  for (const Generator::State start :
       {Generator::State{.seed = 7},
        Generator::State{.seed = UINT64_MAX - 3, .offset = UINT64_MAX - 100}}) {
    generator.set_state(start);
    const auto wanted = draw_all();
    const Generator::State after = generator.state();
    generator.set_state(start);
    const DeviceRandomScope scope(state);
    EXPECT_EQ(draw_all(), wanted);
    EXPECT_EQ(generator.state(), after);
  }
}

// A replay: the arguments are what they were; where to begin is written to the device.
TEST_F(KernelSeam, AReplayedDropoutDrawsOnFromWhatIsWritten) {
  Generator& generator = default_generator(device());
  generator.set_state({.seed = 3, .offset = 11});
  const Tensor state = zeros({2}, {.dtype = kI64, .device = world_.allocator()});
  const Tensor x = ones({64}, {.device = world_.allocator()});
  const Tensor y = empty_like(x);
  const auto args = [&] {
    const DeviceRandomScope scope(state);
    return DropoutArgs{.numel = 64,
                       .p = 0.5,
                       .scale = 2,
                       .random = DeviceRandomScope::source_of(generator.take(16), device()),
                       .in = pointer(x),
                       .out = pointer(y)};
  }();
  run(&Kernels::dropout, args);
  const std::vector<double> first = y.to_doubles();
  generator.set_state({.seed = 3, .offset = 11});
  EXPECT_EQ(dropout(x, 0.5).to_doubles(), first);
  const std::vector<double> second = dropout(x, 0.5).to_doubles();
  state.select(0, 1).fill_(std::int64_t{27});
  run(&Kernels::dropout, args);
  EXPECT_EQ(y.to_doubles(), second);
}

TEST_F(KernelSeam, AnotherSeedInsideOfAScopeIsObeyed) {
  Generator& generator = default_generator(device());
  const Tensor state = zeros({2}, {.dtype = kI64, .device = world_.allocator()});
  const TensorOptions options{.device = world_.allocator()};
  generator.set_state({.seed = 5});
  const std::vector<double> wanted = rand({10}, options).to_doubles();
  generator.set_state({.seed = 4});
  const DeviceRandomScope scope(state);
  generator.set_state({.seed = 5});
  EXPECT_EQ(rand({10}, options).to_doubles(), wanted);
}

}  // namespace
}  // namespace headroom::testing
