#include "headroom/tensor/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "headroom/tensor/scalar.h"

namespace headroom {
namespace {

// Every half is a float, so going there and back changes nothing.
TEST(Half, EveryValueSurvivesFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Half(value))));
    } else {
      ASSERT_EQ(Half(value).bits, bits) << value;
    }
  }
}

// Between two neighbours: below the middle down, above it up, the middle to the even one.
TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    Half low;
    Half high;
    low.bits = static_cast<std::uint16_t>(bits);
    high.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    ASSERT_EQ(Half(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Half(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(Half(std::nextafter(middle, 1e9F)).bits, bits + 1);
    ASSERT_EQ(Half(-middle).bits, 0x8000U | (bits % 2 == 0 ? bits : bits + 1));
  }
}

TEST(Half, TheEndsOfTheRange) {
  EXPECT_EQ(Half(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(Half(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0F).bits, 0x7C00);
  EXPECT_EQ(Half(std::numeric_limits<float>::infinity()).bits, 0x7C00);
  EXPECT_EQ(Half(0x1p-25F).bits, 0);
  EXPECT_EQ(Half(0x1.8p-25F).bits, 1);
  EXPECT_EQ(Half(-0.0F).bits, 0x8000);
}

TEST(BFloat16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    BFloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto exact = static_cast<float>(value);
    ASSERT_EQ(BFloat16(exact).bits, bits);
    const float middle = std::bit_cast<float>((bits << 16U) | 0x8000U);
    ASSERT_EQ(BFloat16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(BFloat16(std::bit_cast<float>((bits << 16U) | 0x7FFFU)).bits, bits);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::nanf("")))));
}

TEST(DType, PromotesAsPyTorch) {
  EXPECT_EQ(promote_types(kF16, kBF16), kF32);
  EXPECT_EQ(promote_types(kF16, kF32), kF32);
  EXPECT_EQ(promote_types(kBF16, kF64), kF64);
  EXPECT_EQ(promote_types(kI64, kF16), kF16);
  EXPECT_EQ(promote_types(kU8, kI32), kI32);
  EXPECT_EQ(promote_types(kBool, kU8), kU8);
  EXPECT_EQ(promote_types(kBool, kBool), kBool);
  for (int a = 0; a < kDTypeCount; ++a) {
    for (int b = 0; b < kDTypeCount; ++b) {
      const auto x = static_cast<DType>(a);
      const auto y = static_cast<DType>(b);
      EXPECT_EQ(promote_types(x, y), promote_types(y, x));
    }
  }
}

TEST(DType, ScalarsDoNotWidenWithinAKind) {
  EXPECT_EQ(promote_types(kF16, Scalar(2.5)), kF16);
  EXPECT_EQ(promote_types(kI32, Scalar(2)), kI32);
  EXPECT_EQ(promote_types(kI32, Scalar(2.5)), kF32);
  EXPECT_EQ(promote_types(kBool, Scalar(2)), kI64);
  EXPECT_EQ(promote_types(kBool, Scalar(true)), kBool);
}

}  // namespace
}  // namespace headroom
