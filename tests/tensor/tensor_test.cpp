#include "headroom/tensor.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/tensor/cpu/internal/exponential.h"
#include "headroom/tensor/philox.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TensorTest : public ::testing::Test {
 protected:
  [[nodiscard]] TensorOptions on_cpu(DType dtype = kF32) { return {.dtype = dtype, .device = cpu}; }

  std::unique_ptr<device::CpuDevice> device =
      device::CpuDevice::create({.index = 7, .capacity_bytes = 64_MiB});
  memory::CachingAllocator cpu{*device};
  std::unique_ptr<device::MetaDevice> nowhere = device::MetaDevice::create({.index = 3});
  memory::CachingAllocator meta{*nowhere};
};

TEST_F(TensorTest, IsMadeInEveryWay) {
  EXPECT_THAT(zeros({2}, on_cpu()).to_doubles(), ElementsAre(0, 0));
  EXPECT_THAT(ones({2}, on_cpu(kI32)).to_doubles(), ElementsAre(1, 1));
  EXPECT_THAT(full({2}, 2.5, on_cpu(kF16)).to_doubles(), ElementsAre(2.5, 2.5));
  EXPECT_THAT(full({2}, 3, on_cpu(kBool)).to_doubles(), ElementsAre(1, 1));
  EXPECT_THAT(arange(4, on_cpu(kI64)).to_integers(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(arange(1, 2, 0.25, on_cpu()).to_doubles(), ElementsAre(1, 1.25, 1.5, 1.75));
  EXPECT_THAT(arange(3, 0, -2, on_cpu(kI32)).to_doubles(), ElementsAre(3, 1));
  EXPECT_THAT(from({1, 2, 3}, on_cpu(kBF16)).to_doubles(), ElementsAre(1, 2, 3));
  EXPECT_EQ(empty({3, 0}, on_cpu()).numel(), 0);
  EXPECT_EQ(scalar_tensor(4, on_cpu()).item<int>(), 4);
}

TEST_F(TensorTest, ViewsShareTheirStorage) {
  const Tensor x = arange(6, on_cpu()).view({2, 3});
  const Tensor column = x.transpose(0, 1)[1];
  EXPECT_THAT(column.to_doubles(), ElementsAre(1, 4));
  column.fill_(9);
  EXPECT_THAT(x.to_doubles(), ElementsAre(0, 9, 2, 3, 9, 5));
  EXPECT_EQ(x.version(), 1U);
  EXPECT_THAT(x.slice(1, 0, 3, 2).to_doubles(), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(x.permute({1, 0}).reshape({6}).to_doubles(), ElementsAre(0, 3, 9, 9, 2, 5));
  EXPECT_THAT(x.narrow(0, 1, 1).expand({2, 3}).to_doubles(), ElementsAre(3, 9, 5, 3, 9, 5));
  EXPECT_EQ(x.unsqueeze(1).squeeze().shape(), (Shape{2, 3}));
  EXPECT_EQ(x.chunk(2, 1)[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(x.flatten().shape(), (Shape{6}));
}

TEST_F(TensorTest, MemoryGoesBackWithTheLastUser) {
  {
    const Tensor x = zeros({1000}, on_cpu());
    Tensor view = x.view({10, 100});
    EXPECT_EQ(cpu.statistics().allocated_bytes.all.current, 4096);
    const Tensor y = relu(x) + 1;
    EXPECT_EQ(cpu.statistics().allocated_bytes.all.current, 8192);
  }
  EXPECT_EQ(cpu.statistics().allocated_bytes.all.current, 0);
}

TEST_F(TensorTest, ReadingValuesTakesNoMemory) {
  const Tensor x = arange(6, on_cpu(kF16)).view({2, 3}).transpose(0, 1);
  const auto before = cpu.statistics().allocation.all.allocated;
  EXPECT_THAT(x.to_doubles(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(x[2][1].item<int>(), 5);
  EXPECT_EQ(to_string(x[0]), "tensor([0., 3.], dtype=f16, device='cpu:7')");
  EXPECT_EQ(cpu.statistics().allocation.all.allocated, before);
}

TEST_F(TensorTest, CategoriesFollowScopesAndElseTheUse) {
  const Tensor x = zeros({4}, on_cpu());
  EXPECT_EQ(x.storage().category(), memory::Category::kData);
  EXPECT_EQ(relu(x).storage().category(), memory::Category::kActivation);
  const memory::CategoryScope scope(memory::Category::kParameter);
  EXPECT_EQ(zeros({4}, on_cpu()).storage().category(), memory::Category::kParameter);
}

TEST_F(TensorTest, RandomNumbersDependOnSeedAndOffsetAlone) {
  Generator& generator = default_generator(*device);
  generator.seed(7);
  const Tensor a = rand({5}, on_cpu());
  const Generator::State between = generator.state();
  EXPECT_EQ(between.offset, 2U);
  const Tensor b = randn({100, 100}, on_cpu());
  EXPECT_NEAR(b.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(var(b).item<double>(), 1, 0.05);
  generator.set_state(between);
  EXPECT_TRUE(equal(b, randn({100, 100}, on_cpu())));
  generator.seed(7);
  EXPECT_TRUE(equal(a, rand({5}, on_cpu())));
  const Tensor die = randint(1, 7, {1000}, on_cpu(kI64));
  EXPECT_EQ(min(die).item<int>(), 1);
  EXPECT_EQ(max(die).item<int>(), 6);
}

// The known answers of the paper's own library (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_THAT(tensor::cpu::philox(0, 0),
              ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  EXPECT_THAT(tensor::cpu::philox(UINT64_MAX, UINT64_MAX, UINT64_MAX),
              ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
}

// Against double precision, over all results there are, subnormal ones included.
TEST(Exponential, IsWithinAUnitInTheLastPlace) {
  for (double x = -104; x < 88.7; x += 0.00037) {
    const auto at = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(at));
    const double unit = exact < 0x1p-126 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(exact) - 23);
    ASSERT_NEAR(tensor::cpu::exponential(at), exact, unit) << at;
  }
  EXPECT_EQ(tensor::cpu::exponential(0.0F), 1.0F);
  EXPECT_EQ(tensor::cpu::exponential(88.73F), INFINITY);
  EXPECT_EQ(tensor::cpu::exponential(INFINITY), INFINITY);
  EXPECT_EQ(tensor::cpu::exponential(-INFINITY), 0.0F);
  EXPECT_TRUE(std::isnan(tensor::cpu::exponential(std::nanf(""))));
}

TEST_F(TensorTest, MetaDrawsAsManyNumbers) {
  default_generator(*nowhere).seed(1);
  (void)rand({5}, {.device = meta});
  EXPECT_EQ(default_generator(*nowhere).state().offset, 2U);
}

TEST_F(TensorTest, MetaHasShapesAndNoValues) {
  const Tensor x = zeros({2, 3}, {.device = meta});
  EXPECT_EQ(relu(x).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.sum().shape(), Shape());
  EXPECT_THAT([&] { (void)x.sum().item(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("item: a tensor on meta:3 has no values")));
  EXPECT_THAT([&] { (void)x.to(cpu); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("to: a tensor on meta:3 has no values to copy to cpu:7")));
}

TEST_F(TensorTest, IsPrintedAsPyTorchPrintsIt) {
  EXPECT_EQ(to_string(from({1, 2.5, -3}, on_cpu())),
            "tensor([ 1.0000,  2.5000, -3.0000], device='cpu:7')");
  EXPECT_EQ(to_string(arange(4, on_cpu(kI64)).view({2, 2})),
            "tensor([[0, 1],\n        [2, 3]], device='cpu:7')");
  EXPECT_EQ(to_string(from({1, 2}, on_cpu(kF64))), "tensor([1., 2.], dtype=f64, device='cpu:7')");
  EXPECT_EQ(to_string(scalar_tensor(2, on_cpu())), "tensor(2., device='cpu:7')");
  EXPECT_EQ(to_string(zeros({2, 3}, {.device = meta})),
            "tensor(..., size=[2, 3], device='meta:3')");
  EXPECT_EQ(to_string(from({1e-5, 1}, on_cpu())),
            "tensor([1.0000e-05, 1.0000e+00], device='cpu:7')");
  EXPECT_EQ(to_string(zeros({0}, on_cpu())), "tensor([], device='cpu:7')");
  EXPECT_EQ(to_string(arange(2000, on_cpu(kI64))),
            "tensor([   0,    1,    2,  ..., 1997, 1998, 1999], device='cpu:7')");
}

}  // namespace
}  // namespace headroom
