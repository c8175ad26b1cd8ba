// What the processor's kernels are made of.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/tensor.h"
#include "headroom/tensor/cpu/internal/exponential.h"
#include "headroom/tensor/cpu/internal/gemm.h"
#include "headroom/tensor/cpu/internal/sums.h"

namespace headroom::tensor::cpu {
namespace {

// Small whole numbers: every order of adding up is exact.
std::vector<float> whole_numbers(int count, int step) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    out[static_cast<std::size_t>(i)] = static_cast<float>(i * step % 7);
  return out;
}

Gemm product(int m, int n, int k, bool ta, bool tb) {
  return {.m = m,
          .n = n,
          .k = k,
          .lda = ta ? m : k,
          .ldb = tb ? k : n,
          .ta = ta ? CblasTrans : CblasNoTrans,
          .tb = tb ? CblasTrans : CblasNoTrans};
}

TEST(GemmParts, MakeTheWholeProductWhateverTheThreads) {
  const Gemm cases[] = {product(128, 512, 512, false, true),
                        product(512, 130, 129, true, false),
                        product(1, 4096, 1024, false, false),
                        product(3000, 33, 77, true, true),
                        product(257, 255, 253, false, false)};
  for (const Gemm& g : cases) {
    const std::vector<float> a = whole_numbers(g.m * g.k, 3);
    const std::vector<float> b = whole_numbers(g.k * g.n, 5);
    std::vector<float> whole(static_cast<std::size_t>(g.m) * static_cast<std::size_t>(g.n));
    gemm(g, a.data(), b.data(), 0.0F, whole.data());
    for (const int threads : {1, 2, 3, 7, 16, 61}) {
      const GemmParts parts(g, threads);
      EXPECT_LE(parts.count(), threads);
      std::vector<float> c(whole.size(), 0.0F);
      for (std::int64_t i = 0; i < parts.count(); ++i) {
        const GemmPart part(g, parts, i);
        // Added, so that what is in two parts shows.
        gemm(part.gemm, a.data() + part.a, b.data() + part.b, 1.0F, c.data() + part.c);
      }
      EXPECT_EQ(c, whole) << g.m << " x " << g.n << " x " << g.k << ", " << threads << " threads";
    }
  }
}

TEST(GemmParts, LeaveSmallProductsWhole) {
  EXPECT_EQ(GemmParts(product(64, 64, 64, false, false), 16).count(), 1);
  EXPECT_EQ(GemmParts(product(0, 64, 64, false, false), 16).count(), 0);
  EXPECT_EQ(GemmParts(product(512, 512, 512, false, false), 16).count(), 16);
}

// Kernels run at the widest vectors there are, this test at the narrowest.
TEST(Wide, HasTheBitsOfOneElementAtATime) {
  const Tensor x = randn({100'003}, {.device = "cpu"}) * 30;
  const Tensor exps = exp(x);
  const Tensor sigmoids = sigmoid(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float at = x.data<float>()[i];
    ASSERT_EQ(exps.data<float>()[i], exponential(at)) << at;
    ASSERT_EQ(sigmoids.data<float>()[i], 1.0F / (1.0F + exponential(-at))) << at;
  }
}

TEST(Largest, IsNaNWhereThereIsOne) {
  for (const int count : {1, 31, 32, 33, 100}) {
    std::vector<float> x = whole_numbers(count, 3);
    x.back() = 9;
    EXPECT_EQ(largest(x.data(), count, -1.0F), 9.0F);
    EXPECT_EQ(largest(x.data(), count, 10.0F), 10.0F);
    for (const int at : {0, count / 2, count - 1}) {
      std::vector<float> y = x;
      y[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(largest(y.data(), count, -1.0F))) << count << " " << at;
    }
  }
}

}  // namespace
}  // namespace headroom::tensor::cpu
