#include "headroom/report/bar.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "tests/report/terminals.h"

namespace headroom::report {
namespace {

TEST(Bar, DrawsEighths) {
  EXPECT_EQ(bar(0, 4, Tone::kPlain, kUnicode), "    ");
  EXPECT_EQ(bar(0.5, 4, Tone::kPlain, kUnicode), "██  ");
  EXPECT_EQ(bar(0.53, 4, Tone::kPlain, kUnicode), "██▏ ");
  EXPECT_EQ(bar(1, 4, Tone::kPlain, kUnicode), "████");
  EXPECT_EQ(bar(0.6, 4, Tone::kPlain, kAscii), "##  ");
}

TEST(Bar, SomethingIsNeverDrawnAsNothing) {
  EXPECT_EQ(bar(1e-9, 4, Tone::kPlain, kUnicode), "▏   ");
  EXPECT_EQ(bar(1e-9, 4, Tone::kPlain, kAscii), "#   ");
}

TEST(Bar, StaysInItsWidth) {
  EXPECT_EQ(bar(7, 4, Tone::kPlain, kUnicode), "████");
  EXPECT_EQ(bar(-1, 4, Tone::kPlain, kUnicode), "    ");
  EXPECT_EQ(bar(std::numeric_limits<double>::quiet_NaN(), 4, Tone::kPlain, kUnicode), "    ");
}

TEST(LogFraction, CountsDecadesAlike) {
  EXPECT_DOUBLE_EQ(log_fraction(10, 1, 100), 0.5);
  EXPECT_DOUBLE_EQ(log_fraction(1000, 1, 100), 1);
  EXPECT_DOUBLE_EQ(log_fraction(0, 1, 100), 0);
  EXPECT_DOUBLE_EQ(log_fraction(5, 5, 5), 1);
}

TEST(StackedBar, AddsUpToItsWidth) {
  const std::vector<BarPart> parts{{"live", 600}, {"cached", 1}, {"other", 0}, {"free", 399}};
  EXPECT_EQ(stacked_bar(parts, 10, kUnicode), "█████▓░░░░");
  EXPECT_EQ(stacked_bar(parts, 10, kAscii), "#####=....");
  for (int width = 3; width < 100; ++width) {
    EXPECT_EQ(display_width(stacked_bar(parts, width, kUnicode)), width);
  }
}

// Without colour the sign is all that tells two parts apart.
TEST(StackedBar, GivesEachPartASignOfItsOwn) {
  for (const Terminal& terminal : {kUnicode, kAscii}) {
    std::vector<BarPart> parts;
    for (int i = 0; i < 24; ++i) {
      parts.push_back({"part", 1});
      std::set<std::string> signs;
      for (const std::string& line : legend_lines(parts, 1, terminal)) {
        EXPECT_EQ(display_width(line.substr(0, line.find(' '))), 1);
        signs.insert(line.substr(0, line.find(' ')));
      }
      EXPECT_EQ(signs.size(), parts.size());
    }
  }
}

TEST(StackedBar, OfNothingIsBlank) {
  EXPECT_EQ(stacked_bar({}, 3, kUnicode), "   ");
  EXPECT_EQ(stacked_bar(std::vector<BarPart>{{"used", 0}, {"free", 0}}, 3, kUnicode), "   ");
}

TEST(StackedBar, ALoneFullPartIsNotTheRest) {
  EXPECT_EQ(stacked_bar(std::vector<BarPart>{{"used", 1}}, 3, kUnicode), "███");
}

TEST(Legend, NamesTheFills) {
  const std::vector<BarPart> parts{{"used", 3_MiB, Tone::kAccent}, {"free", 1_GiB}};
  EXPECT_EQ(legend(parts, kUnicode), "█ used 3MiB   ░ free 1GiB");
  EXPECT_EQ(legend(parts, kAscii), "# used 3MiB   . free 1GiB");
  EXPECT_EQ(legend(parts, {.has_color = true}), "\x1b[36m█\x1b[0m used 3MiB   ░ free 1GiB");
}

TEST(Legend, TakesAsManyLinesAsItNeeds) {
  const std::vector<BarPart> parts{{"live", 3_MiB}, {"cached", 1_MiB}, {"free", 1_GiB}};
  EXPECT_EQ(legend_lines(parts, 41, kUnicode),
            (std::vector<std::string>{"█ live 3MiB   ▓ cached 1MiB   ░ free 1GiB"}));
  EXPECT_EQ(legend_lines(parts, 40, kUnicode),
            (std::vector<std::string>{"█ live 3MiB   ▓ cached 1MiB", "░ free 1GiB"}));
  EXPECT_EQ(legend_lines(parts, 1, kUnicode).size(), 3U);
  EXPECT_TRUE(legend_lines({}, 40, kUnicode).empty());
  EXPECT_EQ(legend({}, kUnicode), "");
}

}  // namespace
}  // namespace headroom::report
