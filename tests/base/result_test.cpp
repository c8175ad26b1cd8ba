#include "headroom/base/result.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace headroom {
namespace {

Result<int, std::string> half(int n) {
  if (n % 2 != 0) return Unexpected("odd");
  return n / 2;
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(half(8).value(), 4);
  EXPECT_EQ(half(7).error(), "odd");
  EXPECT_EQ(half(7).value_or(-1), -1);
  EXPECT_TRUE(half(8));
  EXPECT_FALSE(half(7));
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>, std::string> result = std::make_unique<int>(3);
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

TEST(Result, SameTypeForValueAndErrorIsNotConfused) {
  const Result<std::string, std::string> good = std::string("a");
  const Result<std::string, std::string> bad = Unexpected(std::string("b"));
  EXPECT_TRUE(good);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error(), "b");
}

TEST(Result, OfNothingOnlySaysWhetherItWorked) {
  const Result<void, std::string> good;
  const Result<void, std::string> bad = Unexpected("no");
  EXPECT_TRUE(good);
  EXPECT_EQ(bad.error(), "no");
}

TEST(ResultDeathTest, ValueOfAnErrorEndsTheProgramWithALine) {
  EXPECT_DEATH((void)half(7).value(), "holds an error");
}

}  // namespace
}  // namespace headroom
