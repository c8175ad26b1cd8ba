// `headroom demo` played here, then drawn. cli_test.cpp runs it for real.
#include "cli/demo.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/text.h"

#include "tests/support/golden.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using headroom::testing::expect_golden;

std::vector<std::string> names(const Demo& demo) {
  std::vector<std::string> out;
  for (const DemoStep& step : demo.steps) out.push_back(step.name);
  return out;
}

TEST(DemoGolden, LooksTheSameEachTime) {
  const Demo demo = play_demo();
  expect_golden("demo/demo.txt", draw_demo(demo, {}));
  expect_golden("demo/demo-color.txt", draw_demo(demo, {.out = {.has_color = true}}));
  expect_golden("demo/demo-ascii.txt", draw_demo(demo, {.out = {.has_unicode = false}}));
  expect_golden("demo/demo.json", demo_json(demo));
  EXPECT_EQ(demo_json(demo), demo_json(play_demo()));
}

TEST(Demo, ShowsWhatItSays) {
  const Demo demo = play_demo();
  ASSERT_THAT(
      names(demo),
      ElementsAre(
          "start", "fill", "free", "reuse", "fragment", "ask", "trim", "free", "trim", "remedy"));
  for (const DemoStep& step : demo.steps) {
    EXPECT_EQ(step.account.sum(), 256_MiB) << step.name;
    EXPECT_EQ(step.account.used(), step.account.reserved()) << step.name;
    EXPECT_EQ(step.failure.has_value(), step.name == "ask") << step.name;
    EXPECT_EQ(step.sentence.back() == '.' || step.sentence.back() == ':', true) << step.name;
  }
  const DemoStep& ask = demo.steps[5];
  EXPECT_EQ(ask.failure->explanation.verdict, memory::Verdict::kFragmentation);
  // What the report puts first is what the last step proves.
  EXPECT_THAT(ask.failure->explanation.remedies.front().action,
              HasSubstr(demo.steps.back().settings));
  EXPECT_TRUE(ask.failure->explanation.remedies.front().is_enough);
  // And what it leaves open, freeing the two, turned out to be enough.
  EXPECT_TRUE(ask.failure->explanation.remedies.back().may_gain_more);
}

TEST(DemoView, StaysWithinTheTerminal) {
  const Demo demo = play_demo();
  for (int width = 80; width < 140; width += 3) {
    std::istringstream lines(draw_demo(demo, {.out = {.width = width}}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(report::display_width(line), width) << line;
    }
  }
}

TEST(DemoView, OnlyTheReportIsWiderThanANarrowTerminal) {
  Demo demo = play_demo();
  demo.steps[5].failure.reset();
  for (int width = 50; width < 80; ++width) {
    std::istringstream lines(draw_demo(demo, {.out = {.width = width}}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(report::display_width(line), std::max(width, 59)) << line;
    }
  }
}

TEST(DemoView, ShowsNoByteOfUnicodeWhereThereIsNone) {
  for (const char c : draw_demo(play_demo(), {.out = {.has_unicode = false}})) {
    ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

}  // namespace
}  // namespace headroom::cli
