// The second act of `headroom demo` played here, then drawn; doctor_test.cpp has the first, and
// cli_test.cpp runs all of it for real.
#include "cli/demo/demo.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/report/text.h"

#include "tests/support/golden.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using headroom::testing::expect_golden;

// Once for all tests, with times that are not measured.
const Demo& played() {
  static const Demo kPlayed = [] {
    Demo demo{.training = play_training(2, [](std::string_view) {})};
    for (TrainingRow& row : demo.training.rows) row.seconds = 0.25;
    return demo;
  }();
  return kPlayed;
}

TEST(DemoGolden, LooksTheSameEachTime) {
  expect_golden("demo/demo.txt", draw_demo(played(), {}));
  expect_golden("demo/demo-terminal.txt",
                draw_demo(played(), {.out = {.is_terminal = true, .has_color = true}}));
  expect_golden("demo/demo-ascii.txt", draw_demo(played(), {.out = {.has_unicode = false}}));
}

TEST(Demo, PlansAreWhatIsMeasured) {
  for (const TrainingRow& row : played().training.rows) {
    EXPECT_EQ(row.plan.peak_allocated, row.measured.allocated) << row.name;
    EXPECT_EQ(row.plan.peak_reserved, row.measured.reserved) << row.name;
  }
}

TEST(Demo, DoesNotFitAsItIsAndFitsWithEachOfTheLastFixes) {
  const TrainingAct& act = played().training;
  EXPECT_FALSE(act.rows.front().fits);
  EXPECT_TRUE(act.rows.back().fits);
  EXPECT_THAT(act.report, HasSubstr("shortage"));
  EXPECT_FALSE(act.told.empty());
  EXPECT_NEAR(act.retried_loss, act.first_loss, 1e-5);
  // Checkpointing and micro-batches change no loss but by rounding.
  for (const TrainingRow& row : act.rows) {
    if (row.plan.config.optimizer != "adamw" || row.name.starts_with("bf16")) continue;
    EXPECT_NEAR(row.loss, act.rows.front().loss, 1e-4) << row.name;
  }
}

TEST(Demo, TheAccountAddsUp) {
  const memory::Account& account = played().training.account;
  EXPECT_EQ(account.sum(), played().training.capacity_bytes);
  EXPECT_EQ(account.sum(), account.total_bytes);
}

TEST(DemoView, StaysWithinTheTerminal) {
  for (const int width : {80, 83, 97, 139}) {
    std::istringstream lines(draw_demo(played(), {.out = {.width = width, .is_terminal = true}}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(report::display_width(line), width) << line;
    }
  }
}

TEST(DemoView, ShowsTimesOnlyToWhoIsWatching) {
  EXPECT_THAT(draw_demo(played(), {}), Not(HasSubstr("250 ms")));
  EXPECT_THAT(draw_demo(played(), {.out = {.is_terminal = true}}), HasSubstr("250 ms"));
}

TEST(DemoView, ShowsNoByteOfUnicodeWhereThereIsNone) {
  for (const char c : draw_demo(played(), {.out = {.has_unicode = false}})) {
    ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

TEST(DemoJson, HasWhatIsDrawn) {
  const auto json = nlohmann::json::parse(demo_json(played()));
  EXPECT_EQ(json["training"]["fixes"].size(), played().training.rows.size());
  EXPECT_EQ(json["training"]["out_of_memory"], played().training.report);
}

}  // namespace
}  // namespace headroom::cli
