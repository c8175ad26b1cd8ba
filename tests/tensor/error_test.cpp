// Every mistake is told in one line that says what was found, before anything is allocated.
#include "headroom/base/error.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/memory/out_of_memory.h"

#include "tests/tensor/op_suite.h"
#include "tests/tensor/test_tape.h"

namespace headroom::testing {
namespace {

struct Mistake {
  const char* message;
  std::function<void()> make;
};

class TensorErrors : public ::testing::Test {
 protected:
  // Runs each and compares its message; nothing may be allocated, not even for a moment.
  void expect_refused(const std::vector<Mistake>& mistakes) {
    for (const Mistake& mistake : mistakes) {
      SCOPED_TRACE(mistake.message);
      const EventLog log(cpu());
      try {
        mistake.make();
        ADD_FAILURE() << "was not refused";
      } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), mistake.message);
      }
      EXPECT_TRUE(log.lines().empty());
    }
  }
  [[nodiscard]] memory::Allocator& cpu() const { return world_.allocator(); }
  [[nodiscard]] Tensor make(const Shape& shape, DType dtype = kF32) const {
    return zeros(shape, {.dtype = dtype, .device = cpu()});
  }

  World world_ = tensor_backends()[0].make();
  World other_ = World(tensor_backends()[0].make_meta());
};

TEST_F(TensorErrors, ShapesThatDoNotFit) {
  const Tensor a = make({32, 64});
  const Tensor b = make({128, 16});
  expect_refused({
      {"matmul: inner sizes differ: [32, 64] x [128, 16]", [&] { (void)matmul(a, b); }},
      {"add: shapes do not broadcast: [32, 64] and [128, 16]", [&] { (void)(a + b); }},
      {"add_: shapes do not broadcast: [32, 64] and [128, 16]", [&] { a.add_(b); }},
      {"mul_: a result of shape [32, 64] cannot be written into [1, 64]",
       [&] { a.narrow(0, 0, 1).mul_(a); }},
      {"view: 2048 elements do not make [3, 5]",
       [&] {
         (void)a.view({3, 5});
       }},
      {"view: 2048 elements do not make [3, -1]",
       [&] {
         (void)a.view({3, -1});
       }},
      {"reshape: more than one size is -1 in [-1, -1]",
       [&] {
         (void)a.reshape({-1, -1});
       }},
      {"view: the strides [1, 64] of [64, 32] do not allow [2048]; use reshape",
       [&] { (void)a.t().view({-1}); }},
      {"cat: sizes other than of dimension 0 differ: [32, 64] and [128, 16]",
       [&] {
         (void)cat({a, b});
       }},
      {"stack: shapes differ: [32, 64] and [128, 16]",
       [&] {
         (void)stack({a, b});
       }},
      {"cat: there are no tensors to join", [&] { (void)cat({}); }},
      {"linear: inner sizes differ: [32, 64] x weight [128, 16]", [&] { (void)linear(a, b); }},
      {"bmm: batches of matrices are wanted, not [32, 64] x [128, 16]", [&] { (void)bmm(a, b); }},
      {"copy_: [32, 64] does not fit into [64]", [&] { a[0].copy_(a); }},
      {"expand: [32, 64] does not expand to [64]", [&] { (void)a.expand({64}); }},
      {"from: 2 values for a tensor of [3]",
       [&] {
         (void)from(std::vector<double>{1, 2}, {3}, {.device = cpu()});
       }},
      {"cross_entropy: logits of [32, 64] do not go with targets of [64]",
       [&] { (void)cross_entropy(a, a[0]); }},
      {"item: [32, 64] has 2048 elements, not one", [&] { (void)a.item(); }},
      {"t: a matrix is wanted, not [64]", [&] { (void)a[0].t(); }},
      {"randint: no integers in [3, 3)", [&] { (void)randint(3, 3, {1}, {.device = cpu()}); }},
  });
}

TEST_F(TensorErrors, ImagesThatDoNotFit) {
  const Tensor x = make({1, 3, 5, 5});
  const Tensor row = make({4});
  const Tensor w = make({8, 4, 3, 3});
  const Tensor fits = make({8, 3, 3, 3});
  const Tensor wide = make({8, 3, 7, 3});
  const Tensor none = make({0, 3, 3, 3});
  expect_refused({
      {"conv2d: input has 3 channels, weight [8, 4, 3, 3] wants 4 (groups 1)",
       [&] { (void)conv2d(x, w); }},
      {"conv2d: input has 3 channels, weight [8, 4, 3, 3] wants 8 (groups 2)",
       [&] { (void)conv2d(x, w, {}, {.groups = 2}); }},
      {"conv2d: 8 outputs do not make groups of 3",
       [&] { (void)conv2d(x, fits, {}, {.groups = 3}); }},
      {"conv2d: a window of 7 does not fit into 5 with padding 0", [&] { (void)conv2d(x, wide); }},
      {"conv2d: a window of 7 does not fit into 5 with padding 0",
       [&] {
         (void)conv2d(x, fits, {}, {.dilation = {3, 1}});
       }},
      {"conv2d: stride 0, padding 0, dilation 1: at least 1, 0 and 1 are wanted",
       [&] {
         (void)conv2d(x, fits, {}, {.stride = {1, 0}});
       }},
      {"conv2d: weight [0, 3, 3, 3] has no elements", [&] { (void)conv2d(x, none); }},
      {"conv2d: a bias of [4] for 8 outputs", [&] { (void)conv2d(x, fits, row); }},
      {"conv2d: four dimensions each are wanted, not [3, 5, 5] and weight [8, 3, 3, 3]",
       [&] { (void)conv2d(x[0], fits); }},
      {"max_pool2d: images of three or four dimensions are wanted, not [5, 5]",
       [&] {
         (void)max_pool2d(x[0][0], {.kernel = {2, 2}});
       }},
      {"max_pool2d: a window of 3 takes padding up to half of it, not 2",
       [&] {
         (void)max_pool2d(x, {.kernel = {3, 3}, .padding = {2, 0}});
       }},
      {"avg_pool2d: a window of 6 does not fit into 5 with padding 0",
       [&] {
         (void)avg_pool2d(x, {.kernel = {2, 6}});
       }},
      {"avg_pool2d: a window of 2 with stride -1",
       [&] {
         (void)avg_pool2d(x, {.kernel = {2, 2}, .stride = {-1, 1}});
       }},
      {"adaptive_avg_pool2d: [1, 3, 5, 5] does not make 0 x 1",
       [&] {
         (void)adaptive_avg_pool2d(x, {0, 1});
       }},
  });
}

TEST_F(TensorErrors, LayersThatDoNotFit) {
  const Tensor x = make({4, 6});
  const Tensor row = make({5});
  const Tensor halves = make({6}, kF16);
  const Tensor one = make({1, 6});
  const Tensor q = make({2, 3, 4});
  const Tensor k = make({2, 5, 4});
  const Tensor v = make({2, 6, 4});
  const Tensor integers = make({3, 5}, kI64);
  expect_refused({
      {"layer_norm: [4, 6] does not end with [5]", [&] { (void)layer_norm(x, {5}); }},
      {"layer_norm: [4, 6] does not end with []", [&] { (void)layer_norm(x, {}); }},
      {"layer_norm: a weight of [5] for [6]", [&] { (void)layer_norm(x, {6}, row); }},
      {"layer_norm: a bias of f16 for f32", [&] { (void)layer_norm(x, {6}, {}, halves); }},
      {"batch_norm: [batch, channels, ...] is wanted, not [5]",
       [&] { (void)batch_norm(row, {}, {}, {}, {}); }},
      {"batch_norm: a running mean of [5] for [6]", [&] { (void)batch_norm(x, {}, {}, row, row); }},
      {"batch_norm: running mean and variance go together",
       [&] { (void)batch_norm(x, {}, {}, row, {}); }},
      {"batch_norm: the batch's own statistics want more than one value a channel, not [1, 6]",
       [&] { (void)batch_norm(one, {}, {}, {}, {}); }},
      {"dropout: a probability is wanted, not 1.5", [&] { (void)dropout(x, 1.5); }},
      {"elu: alpha must be at least 0, not -1", [&] { (void)elu(x, -1); }},
      {"hardtanh: nothing is between 1 and -1", [&] { (void)hardtanh(x, 1, -1); }},
      {"mse_loss: [4, 6] of f32 does not go with targets of [5] of f32",
       [&] { (void)mse_loss(x, row); }},
      {"scaled_dot_product_attention: q, k and v do not go together: [2, 3, 4], [2, 5, 4], "
       "[2, 6, 4]",
       [&] { (void)scaled_dot_product_attention(q, k, v); }},
      {"scaled_dot_product_attention: heads differ: [2, 3, 4], [1, 3, 4], [2, 3, 4]",
       [&] { (void)scaled_dot_product_attention(q, q.narrow(0, 0, 1), q); }},
      {"scaled_dot_product_attention: a mask is bool or f32, not i64",
       [&] { (void)scaled_dot_product_attention(q, k, k, integers); }},
      {"scaled_dot_product_attention: a mask of [5] does not broadcast to [2, 3, 4]",
       [&] { (void)scaled_dot_product_attention(q, v.narrow(1, 0, 4), v.narrow(1, 0, 4), row); }},
  });
}

TEST_F(TensorErrors, DevicesThatDiffer) {
  const Tensor here = make({2});
  const Tensor there = zeros({2}, {.device = other_.allocator()});
  expect_refused({
      {"add: operands are on different devices: cpu:9 and meta:9", [&] { (void)(here + there); }},
      {"add_: operands are on different devices: cpu:9 and meta:9", [&] { here.add_(there); }},
      {"matmul: operands are on different devices: cpu:9 and meta:9",
       [&] { (void)matmul(here, there); }},
      {"cat: operands are on different devices: cpu:9 and meta:9",
       [&] {
         (void)cat({here, there});
       }},
      {"eq: operands are on different devices: cpu:9 and meta:9", [&] { (void)eq(here, there); }},
      {"item: a tensor on meta:9 has no values", [&] { (void)there[0].item(); }},
      {"copy_: a tensor on meta:9 has no values to copy to cpu:9", [&] { here.copy_(there); }},
  });
}

TEST_F(TensorErrors, TypesThatDoNotGo) {
  const Tensor reals = make({2, 2});
  const Tensor halves = make({2, 2}, kF16);
  const Tensor integers = make({2, 2}, kI64);
  expect_refused({
      {"matmul: types differ: f32 and f16", [&] { (void)matmul(reals, halves); }},
      {"mean: not defined for i64", [&] { (void)mean(integers); }},
      {"softmax: not defined for i64", [&] { (void)softmax(integers, 0); }},
      {"neg: not defined for bool", [&] { (void)neg(make({0}, kBool)); }},
      {"rand: not defined for i64", [&] { (void)rand({1}, {.dtype = kI64, .device = cpu()}); }},
      {"add_: a result of type f32 cannot be written into a tensor of i64",
       [&] { integers.add_(reals); }},
      {"exp_: a result of type f32 cannot be written into a tensor of i64",
       [&] { integers.exp_(); }},
      {"where: the condition must be bool, not i64", [&] { (void)where(integers, reals, reals); }},
      {"gather: indices must be i64, not f32", [&] { (void)gather(reals, 0, reals); }},
      {"scatter: types differ: f32 and f16", [&] { (void)scatter(reals, 0, integers, halves); }},
      {"requires_grad_: only floating tensors have gradients, not i64",
       [&] { integers.requires_grad_(); }},
      {"data: the elements are f32, not f64", [&] { (void)reals.data<double>(); }},
  });
}

TEST_F(TensorErrors, IndicesOutOfRange) {
  const Tensor x = make({3, 4});
  const Tensor far = full({1}, 9, {.dtype = kI64, .device = cpu()});
  const Tensor below = full({1, 1}, -1, {.dtype = kI64, .device = cpu()});
  expect_refused({
      {"select: index 3 is out of range for size 3 of dimension 0", [&] { (void)x[3]; }},
      {"select: index -4 is out of range for size 3 of dimension 0", [&] { (void)x[-4]; }},
      {"narrow: 2 from 3 on is out of range for size 4 of dimension 1",
       [&] { (void)x.narrow(1, 3, 2); }},
      {"sum: dimension 2 is not in [3, 4]", [&] { (void)sum(x, {2}); }},
      {"transpose: dimension -3 is not in [3, 4]", [&] { (void)x.transpose(0, -3); }},
      {"sum: a dimension comes twice in [0, 0]",
       [&] {
         (void)sum(x, {0, 0});
       }},
      {"index_select: index 9 is out of range for size 4", [&] { (void)index_select(x, 1, far); }},
      {"embedding: index 9 is out of range for size 3", [&] { (void)embedding(x, far); }},
      {"gather: index -1 is out of range for size 4", [&] { (void)gather(x, 1, below); }},
      {"scatter_: index -1 is out of range for size 4", [&] { x.scatter_(1, below, x); }},
      {"cross_entropy: index 9 is out of range for size 4",
       [&] { (void)cross_entropy(x.narrow(0, 0, 1), far); }},
      {"slice: the step must be positive, not 0", [&] { (void)x.slice(0, 0, 3, 0); }},
      {"max: nothing to choose from in [0]", [&] { (void)max(x.flatten().narrow(0, 0, 0)); }},
  });
}

TEST_F(TensorErrors, SizesThatDoNotFitTheMachine) {
  const std::int64_t large = std::int64_t{1} << 40;
  const Tensor deep = make(Dims::filled(8, 1));
  expect_refused({
      {"full: [1099511627776, 1099511627776] has more elements than 64 bits can count",
       [&] {
         (void)make({large, large});
       }},
      {"full: [1099511627776, 2097152] of 8-byte elements has more bytes than 64 bits can count",
       [&] {
         (void)make({large, std::int64_t{1} << 21}, kF64);
       }},
      {"full: negative size in [-1]", [&] { (void)make({-1}); }},
      {"a tensor has at most 8 dimensions, not 9", [&] { (void)deep.unsqueeze(0); }},
  });
}

// Numbers that a user may give and 64 bits cannot add or multiply (#21).
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST_F(TensorErrors, ConvolutionsWhoseSizesDoNotFit) {
  const Tensor x = make({1, 3, 5, 5});
  const Tensor w = make({8, 3, 3, 3});
  const auto with = [&](const Conv2dOptions& options) {
    return [&, options] { (void)conv2d(x, w, {}, options); };
  };
  expect_refused({
      {"conv2d: a padding of 9223372036854775807 makes a side of 5 longer than 64 bits can count",
       with({.padding = {kLargest, 0}})},
      {"conv2d: a padding of 4611686018427387904 makes a side of 5 longer than 64 bits can count",
       with({.padding = {0, std::int64_t{1} << 62}})},
      {"conv2d: an output of 9223372036854775803 x 3 has more pixels than 64 bits can count",
       with({.padding = {(std::int64_t{1} << 62) - 4, 0}})},
      {"conv2d: a side of 8589934598 is more than 32 bits can count",
       with({.stride = {1, 2}, .padding = {std::int64_t{1} << 31, 0}})},
      {"conv2d: a dilation of 9223372036854775807 makes a kernel of 3 longer than 64 bits can "
       "count",
       with({.dilation = {1, kLargest}})},
      {"conv2d: a window of 9223372036854775807 does not fit into 5 with padding 0",
       with({.dilation = {kLargest / 2, 1}})},
      {"conv2d: stride 1, padding -9223372036854775808, dilation 1: at least 1, 0 and 1 are wanted",
       with({.padding = {INT64_MIN, 0}})},
      {"conv2d: 8 outputs do not make groups of 9223372036854775807", with({.groups = kLargest})},
  });
  // A stride past the end meets one window, whatever it is.
  const Tensor y = conv2d(x, w, {}, {.stride = {kLargest, kLargest}, .padding = {1, 1}});
  EXPECT_EQ(y.shape(), (Shape{1, 8, 1, 1}));
}

TEST_F(TensorErrors, PoolsWhoseSizesDoNotFit) {
  const Tensor x = make({1, 5, 5});
  expect_refused({
      {"max_pool2d: a window of 9223372036854775807 is more than 32 bits can count",
       [&] {
         (void)max_pool2d(x, {.kernel = {kLargest, 1}, .padding = {kLargest / 2, 0}});
       }},
      {"avg_pool2d: a window of 2147483648 is more than 32 bits can count",
       [&] {
         (void)avg_pool2d(
             x, {.kernel = {1, std::int64_t{1} << 31}, .padding = {0, std::int64_t{1} << 30}});
       }},
      {"max_pool2d: a window of 65536 x 65536 has more places than 32 bits can count",
       [&] {
         (void)max_pool2d(x, {.kernel = {65536, 65536}, .padding = {32768, 32768}});
       }},
      {"max_pool2d: a window of 2 takes padding up to half of it, not 9223372036854775807",
       [&] {
         (void)max_pool2d(x, {.kernel = {2, 2}, .padding = {kLargest, 0}});
       }},
      {"adaptive_avg_pool2d: [1, 9223372036854775807, 9223372036854775807] has more elements than "
       "64 bits can count",
       [&] {
         (void)adaptive_avg_pool2d(x, {kLargest, kLargest});
       }},
  });
  EXPECT_EQ(max_pool2d(x, {.kernel = {2, 2}, .stride = {kLargest, kLargest}}).shape(),
            (Shape{1, 1, 1}));
  const Tensor wide =
      max_pool2d(x, {.kernel = {1, 2147483646}, .stride = {1, 1}, .padding = {0, 1073741823}});
  EXPECT_EQ(wide.shape(), (Shape{1, 5, 6}));
}

TEST_F(TensorErrors, CutsOfAnySizeAreTakenOrRefused) {
  const Tensor x = arange(10, {.dtype = kI64, .device = cpu()});
  EXPECT_THAT(x.slice(0, 0, 10, kLargest).to_integers(), ::testing::ElementsAre(0));
  EXPECT_THAT(x.slice(0, 7, kLargest, kLargest - 1).to_integers(), ::testing::ElementsAre(7));
  EXPECT_THAT(x.slice(0, INT64_MIN, kLargest, 9).to_integers(), ::testing::ElementsAre(0, 9));
  EXPECT_EQ(x.slice(0, 5, 5, kLargest).numel(), 0);
  const Tensor far = x.slice(0, 3, 10, kLargest).unsqueeze(0).slice(1, 0, 1, kLargest);
  EXPECT_THAT(far.to_integers(), ::testing::ElementsAre(3));
  EXPECT_EQ(x.split(kLargest).size(), 1U);
  EXPECT_EQ(x.chunk(kLargest).size(), 10U);
  expect_refused({
      {"narrow: 9223372036854775807 from 9 on is out of range for size 10 of dimension 0",
       [&] { (void)x.narrow(0, 9, kLargest); }},
      {"select: index -9223372036854775808 is out of range for size 10 of dimension 0",
       [&] { (void)x.select(0, INT64_MIN); }},
      {"split: pieces of -9223372036854775808", [&] { (void)x.split(INT64_MIN); }},
      {"permute: dimension 4294967296 is not in [10]",
       [&] { (void)x.permute({std::int64_t{1} << 32}); }},
      {"sum: dimension 4294967296 is not in [10]", [&] { (void)sum(x, {std::int64_t{1} << 32}); }},
      {"reshape: [9223372036854775807, 2] has more elements than 64 bits can count",
       [&] {
         (void)x.reshape({kLargest, 2});
       }},
      {"expand: [4611686018427387904, 10] has more elements than 64 bits can count",
       [&] {
         (void)x.expand({std::int64_t{1} << 62, 10});
       }},
      {"expand: [288230376151711744, 10] of 8-byte elements has more bytes than 64 bits can count",
       [&] {
         (void)x.expand({std::int64_t{1} << 58, 10});
       }},
  });
}

// As long as a dimension can be, all in one place.
TEST_F(TensorErrors, PiecesOfTheLongestTensorDoNotWrap) {
  const std::int64_t half = std::int64_t{1} << 43;
  const Tensor x = make({1}, kU8).expand({kLargest});
  EXPECT_EQ(x.split((std::int64_t{1} << 62)).size(), 2U);
  EXPECT_EQ(x.split((std::int64_t{1} << 62))[1].numel(), kLargest - (std::int64_t{1} << 62));
  EXPECT_EQ(x.slice(0, 1, kLargest, half).numel(), std::int64_t{1} << 20);
  expect_refused({
      {"cat: [9223372036854775807] after 9223372036854775807 along dimension 0 is more than 64 "
       "bits can count",
       [&] {
         (void)cat({x, x});
       }},
      {"cat: [2, 9223372036854775807] has more elements than 64 bits can count",
       [&] {
         (void)stack({x, x});
       }},
  });
}

TEST_F(TensorErrors, RangesThatNoTypeHolds) {
  const auto in = [&](DType dtype) { return TensorOptions{.dtype = dtype, .device = cpu()}; };
  const Tensor x = make({2});
  const Tensor halves = make({2}, kF16);
  expect_refused({
      {"arange: the step is 0", [&] { (void)arange(0, 5, 0, in(kI64)); }},
      {"arange: the step is nan", [&] { (void)arange(0, 5, NAN, in(kF32)); }},
      {"arange: no steps of -1 lead from 0 to 5", [&] { (void)arange(0, 5, -1, in(kI64)); }},
      {"arange: no steps of 1 lead from nan to 5", [&] { (void)arange(NAN, 5, 1, in(kF32)); }},
      {"arange: more steps of 1 than 64 bits can count lead from -9223372036854775808 to "
       "9223372036854775807",
       [&] { (void)arange(INT64_MIN, kLargest, 1, in(kI64)); }},
      {"arange: more steps of 1 than 64 bits can count lead from inf to inf",
       [&] { (void)arange(INFINITY, INFINITY, 1, in(kF32)); }},
      {"arange: more steps of 1e-300 than 64 bits can count lead from 0 to 1",
       [&] { (void)arange(0, 1, 1e-300, in(kF32)); }},
      {"arange: [9223372036854775807] of 8-byte elements has more bytes than 64 bits can count",
       [&] { (void)arange(kLargest, in(kI64)); }},
      {"randint: u8 cannot hold the integers of [0, 257)",
       [&] { (void)randint(0, 257, {1}, in(kU8)); }},
      {"randint: bool cannot hold the integers of [0, 3)",
       [&] { (void)randint(0, 3, {1}, in(kBool)); }},
      {"randint: i32 cannot hold the integers of [-2147483649, 0)",
       [&] { (void)randint(-2147483649, 0, {1}, in(kI32)); }},
      {"randint: f16 cannot hold the integers of [0, 100000)",
       [&] { (void)randint(0, 100'000, {1}, in(kF16)); }},
      {"randint: f16 cannot hold the integers of [2049, 2050)",
       [&] { (void)randint(2049, 2050, {1}, in(kF16)); }},
      {"randint: f64 cannot hold the integers of [9223372036854775800, 9223372036854775807)",
       [&] { (void)randint(kLargest - 7, kLargest, {1}, in(kF64)); }},
      {"uniform_: no f32 to draw from [1, 0)", [&] { x.uniform_(1, 0); }},
      {"uniform_: no f32 to draw from [nan, 0)", [&] { x.uniform_(NAN, 0); }},
      {"uniform_: no f32 to draw from [0, inf)", [&] { x.uniform_(0, INFINITY); }},
      {"uniform_: no f16 to draw from [0, 70000)", [&] { halves.uniform_(0, 70000); }},
      {"normal_: a deviation of at least 0 is wanted, not -1", [&] { x.normal_(0, -1); }},
      {"normal_: a deviation of at least 0 is wanted, not nan", [&] { x.normal_(0, NAN); }},
  });
}

TEST_F(TensorErrors, WritesThatOverlap) {
  const Tensor x = make({4});
  const Tensor row = make({1, 3});
  expect_refused({
      {"add_: what is written overlaps what is read: [3] and [3] of one storage; clone one of them",
       [&] { x.narrow(0, 1, 3).add_(x.narrow(0, 0, 3)); }},
      {"fill_: several elements of [2, 3] are in one place (it was expanded); clone it before "
       "writing",
       [&] {
         row.expand({2, 3}).fill_(1);
       }},
  });
  x.add_(x);                                   // the very same view is fine
  x.narrow(0, 2, 2).copy_(x.narrow(0, 0, 2));  // so is what lies apart
}

TEST_F(TensorErrors, GradientsWithoutATape) {
  const Tensor x = make({2});
  EXPECT_THAT([&] { x.requires_grad_(); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("no tape is installed")));
}

TEST_F(TensorErrors, ALeafThatNeedsAGradientIsNotWrittenTo) {
  TestTape tape;
  const TapeScope scope(tape);
  const Tensor x = make({2}).requires_grad_();
  expect_refused({{"add_: a leaf that needs a gradient is written to", [&] { x.add_(1); }},
                  {"relu_: a leaf that needs a gradient is written to", [&] { x.relu_(); }},
                  {"clamp_: a leaf that needs a gradient is written to", [&] { x.clamp_(0, 1); }}});
  const GradModeScope no_grad(false);
  x.add_(1);
}

TEST_F(TensorErrors, OutOfMemoryLeaksNothing) {
  const Tensor x = make({1000});
  EXPECT_THROW((void)make({std::int64_t{1} << 40}), memory::OutOfMemory);
  EXPECT_THROW((void)x.expand({1 << 20, 1000}).clone(), memory::OutOfMemory);
  EXPECT_EQ(world_.allocated_bytes(), 4096);
}

}  // namespace
}  // namespace headroom::testing
