// The seeds' training snippets, beside what PyTorch 2.11 measured on an H200 for the same lines:
// nowhere more memory, and where only allocations happen the same.
#include <gtest/gtest.h>

#include "headroom/autograd.h"
#include "headroom/autograd/checkpoint.h"
#include "headroom/nn/optim/optimizer.h"
#include "headroom/train/models.h"

#include "tests/train/world.h"

namespace headroom::train {
namespace {

using testing::TrainWorld;
using Kind = TrainWorld::Kind;

// cuBLAS takes 32 MiB for each thread that multiplies and cuBLASLt 1 MiB; torch counts both.
constexpr std::uint64_t kForwardWorkspace = 33_MiB;
constexpr std::uint64_t kStepWorkspace = 65_MiB;

Tensor through(Model& model, const Tensor& x, bool checkpoints) {
  Tensor y = x;
  for (nn::Module* block : model.blocks()) {
    const auto run = [block](const Tensor& in) { return (*block)(in); };
    y = checkpoints ? checkpoint(run, y) : run(y);
  }
  return y;
}

struct DeepNetCase {
  std::int64_t dim;
  std::int64_t blocks;
  std::int64_t batch;
  bool checkpoints;
  std::uint64_t allocated;  // PyTorch's, after the backward
  std::uint64_t peak;
};

class SeedDeepNet : public ::testing::TestWithParam<DeepNetCase> {};

TEST_P(SeedDeepNet, TakesNoMoreThanPyTorch) {
  const DeepNetCase& one = GetParam();
  TrainWorld world(Kind::kMeta, 16_GiB);
  const auto model = make_model({.name = "deepnet", .depth = one.blocks, .width = one.dim},
                                {.device = world.allocator()});
  const Tensor x = randn({one.batch, one.dim}, {.device = world.allocator()});
  const Tensor y = through(*model, x, one.checkpoints);
  y.sum().backward();
  // A region that is computed again multiplies in the backward's thread, by cuBLASLt too.
  const std::uint64_t workspace = kStepWorkspace + (one.checkpoints ? 1_MiB : 0);
  EXPECT_LE(world.allocated() + workspace, one.allocated);
  EXPECT_LE(world.peak_allocated() + workspace, one.peak);
}

INSTANTIATE_TEST_SUITE_P(
    Seed003,
    SeedDeepNet,
    ::testing::Values(DeepNetCase{512, 20, 128, false, 152'731'648, 152'994'816},
                      DeepNetCase{512, 20, 128, true, 153'780'224, 154'043'392},
                      DeepNetCase{512, 20, 16384, false, 220'364'800, 2'259'766'784},
                      DeepNetCase{512, 20, 16384, true, 220'364'800, 986'799'616},
                      DeepNetCase{1024, 64, 8192, false, 1'211'105'280, 7'187'469'824},
                      DeepNetCase{1024, 64, 8192, true, 1'211'105'280, 2'968'008'192}));

TEST(SeedTrackingNet, TakesNoMoreThanPyTorchAfterEachLine) {
  TrainWorld world(Kind::kMeta);
  const auto model = make_model({.name = "trackingnet"}, {.device = world.allocator()});
  EXPECT_EQ(world.allocated(), 25'264'640U);
  const Tensor x = randn({256, 1024}, {.device = world.allocator()});
  EXPECT_EQ(world.allocated(), 26'313'216U);
  const Tensor y = (*model)(x);
  EXPECT_LE(world.allocated() + kForwardWorkspace, 65'120'768U);
  const Tensor loss = y.sum();
  loss.backward();
  EXPECT_LE(world.allocated() + kStepWorkspace, 119'746'048U);
  EXPECT_LE(world.peak_allocated() + kStepWorkspace, 121'843'712U);
}

TEST(SeedSimpleNN, TakesNoMoreThanPyTorchAfterEachLine) {
  TrainWorld world(Kind::kMeta);
  const TensorOptions here{.device = world.allocator()};
  const auto model = make_model({.name = "simplenn"}, here);
  nn::Adam optimizer(model->parameters());
  Tensor data = randn({64, 100}, here);
  const Tensor target = randint(0, 10, {64}, {.dtype = DType::kI64, .device = world.allocator()});
  EXPECT_LE(world.allocated(), 49'664U);
  Tensor output = (*model)(data);
  Tensor loss = model->loss(output, target);
  EXPECT_LE(world.allocated() + kForwardWorkspace, 34'671'616U);
  const auto update = [&] {
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  update();
  EXPECT_LE(world.allocated() + kStepWorkspace, 68'257'280U);
  const Tensor data2 = randn({64, 100}, here);
  const Tensor output2 = (*model)(data2);
  loss = model->loss(output2, target);
  update();
  EXPECT_LE(world.allocated() + kStepWorkspace, 68'285'952U);
  EXPECT_LE(world.peak_allocated() + kStepWorkspace, 68'333'056U);
}

}  // namespace
}  // namespace headroom::train
