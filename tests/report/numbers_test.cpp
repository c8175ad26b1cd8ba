#include "headroom/report/numbers.h"

#include <limits>

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

TEST(Numbers, RatesHaveThreeDigitsAndADecimalUnit) {
  EXPECT_EQ(format_rate(0), "0 B/s");
  EXPECT_EQ(format_rate(512), "512 B/s");
  EXPECT_EQ(format_rate(21.34e9), "21.3 GB/s");
  EXPECT_EQ(format_rate(4.8e12), "4.8 TB/s");
  EXPECT_EQ(format_rate(999.4e9), "999 GB/s");
  EXPECT_EQ(format_rate(999.9e9), "1 TB/s");
  EXPECT_EQ(format_rate(3.2e16), "32000 TB/s");
}

TEST(Numbers, DurationsPickTheirUnit) {
  EXPECT_EQ(format_duration_ns(0.04), "0.04 ns");
  EXPECT_EQ(format_duration_ns(1.234), "1.2 ns");
  EXPECT_EQ(format_duration_ns(98.7), "99 ns");
  EXPECT_EQ(format_duration_ns(99.7), "100 ns");
  EXPECT_EQ(format_duration_ns(655), "655 ns");
  EXPECT_EQ(format_duration_ns(1300), "1.3 us");
  EXPECT_EQ(format_duration_ns(2.5e9), "2.5 s");
}

TEST(Numbers, LargeCountsAreWords) {
  EXPECT_EQ(format_large(950), "950");
  EXPECT_EQ(format_large(123456), "123456");
  EXPECT_EQ(format_large(5.34e9), "5.3 billion");
  EXPECT_EQ(format_large(1.2e12), "1.2 trillion");
}

TEST(Numbers, RatiosHaveTwoDigits) {
  EXPECT_EQ(format_ratio(1.44), "1.4");
  EXPECT_EQ(format_ratio(18.8), "19");
  EXPECT_EQ(format_ratio(234), "230");
  EXPECT_EQ(format_ratio(0), "0");
}

TEST(Numbers, WhatIsNoNumberIsAQuestionMark) {
  EXPECT_EQ(format_ratio(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::quiet_NaN()), "? B/s");
}

}  // namespace
}  // namespace headroom::report
