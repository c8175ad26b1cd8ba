#include "headroom/report/ladder.h"

#include <vector>

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

std::vector<Rung> rungs() { return {{"L1", "48KiB"}, {"L2", ""}, {"main memory", "24GiB"}}; }

TEST(Ladder, GrowsDownwards) {
  EXPECT_EQ(ladder(rungs(), "size", 1, {}),
            "      ┌────┐       size\n"
            "      │ L1 │       48KiB\n"
            "    ┌─┴────┴─┐\n"
            "    │   L2   │\n"
            " ┌──┴────────┴──┐\n"
            " │ main memory  │  24GiB\n"
            " └──────────────┘\n");
}

TEST(Ladder, HasAPlainForm) {
  EXPECT_EQ(ladder(rungs(), "", 0, {.has_unicode = false}),
            "     +----+\n"
            "     | L1 |       48KiB\n"
            "   +-+----+-+\n"
            "   |   L2   |\n"
            "+--+--------+--+\n"
            "| main memory  |  24GiB\n"
            "+--------------+\n");
}

TEST(Ladder, OfNothingIsNothing) { EXPECT_EQ(ladder({}, "size", 0, {}), ""); }

}  // namespace
}  // namespace headroom::report
