#include "headroom/report/area_chart.h"

#include <limits>

#include <gtest/gtest.h>

#include "headroom/report/text.h"

#include "tests/report/terminals.h"

namespace headroom::report {
namespace {

TEST(AreaChart, DrawsTheFrontBeforeTheBack) {
  const AreaChart chart{.front = {0, 1, 4, 2},
                        .back = {0, 4, 4, 4},
                        .top_label = "4GiB",
                        .bottom_label = "0B",
                        .height = 2};
  EXPECT_EQ(area_chart(chart, 2, kUnicode),
            "  4GiB ┤ ░█░\n"
            "    0B ┤ ▄██\n");
  EXPECT_EQ(area_chart(chart, 0, kAscii),
            "4GiB + .#.\n"
            "  0B + ###\n");
}

TEST(AreaChart, SomethingIsNeverDrawnAsNothing) {
  EXPECT_EQ(area_chart({.front = {1, 1e9}, .height = 1}, 0, kUnicode), " ┤▁█\n");
}

TEST(AreaChart, TakesAnyNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(area_chart({.front = {nan, -1, 0}, .height = 1}, 0, kUnicode), " ┤\n");
  EXPECT_EQ(area_chart({.height = 1}, 0, kUnicode), " ┤\n");
}

TEST(AreaChart, ColoursRunsTogether) {
  const std::string text =
      area_chart({.front = {1, 1}, .height = 1}, 0, Terminal{.has_color = true});
  EXPECT_EQ(display_width(text.substr(0, text.size() - 1)), 4);
  EXPECT_NE(text.find("██"), std::string::npos);
}

TEST(Resampled, KeepsTheHighest) {
  EXPECT_EQ(resampled({1, 5, 2, 3, 9, 4}, 3), (std::vector<double>{5, 3, 9}));
  EXPECT_EQ(resampled({1, 2}, 4), (std::vector<double>{1, 1, 2, 2}));
  EXPECT_TRUE(resampled({}, 4).empty());
  EXPECT_TRUE(resampled({1}, 0).empty());
  EXPECT_TRUE(resampled({1}, -3).empty());
}

}  // namespace
}  // namespace headroom::report
