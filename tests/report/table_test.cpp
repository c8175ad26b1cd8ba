#include "headroom/report/table.h"

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

Table devices() {
  Table table({{"device"}, {"name", Align::kLeft, Fit::kShrinks}, {"capacity", Align::kRight}});
  table.add_row({"cpu:0", "A processor with a long name", "11.7GiB"});
  table.add_row({"cuda:10", "größer", "139.8GiB"});
  return table;
}

TEST(Table, AlignsByColumnsAndRulesTheHeader) {
  EXPECT_EQ(devices().render({}),
            "device   name                          capacity\n"
            "───────  ────────────────────────────  ────────\n"
            "cpu:0    A processor with a long name   11.7GiB\n"
            "cuda:10  größer                        139.8GiB\n");
}

TEST(Table, ShrinksWhatMayShrink) {
  EXPECT_EQ(devices().render({.width = 40, .has_unicode = false}, 2),
            "  device   name                 capacity\n"
            "  -------  -------------------  --------\n"
            "  cpu:0    A processor with...   11.7GiB\n"
            "  cuda:10  größer               139.8GiB\n");
}

TEST(Table, DropsWhatMayBeDroppedFromTheRight) {
  Table table(
      {{"device"}, {"cores", Align::kRight, Fit::kDrops}, {"free"}, {"x", {}, Fit::kDrops}});
  table.add_row({"cpu:0", "2", "7.75GiB", "y"});
  const auto header = [&](int width) { return table.lines({.width = width}).front(); };
  EXPECT_EQ(header(80), "device  cores  free     x");
  EXPECT_EQ(header(24), "device  cores  free   ");
  EXPECT_EQ(header(21), "device  free   ");
  EXPECT_EQ(header(1), "device  free   ");
}

TEST(Table, LeavesOutColumnsWithoutText) {
  Table table({{"pid"}, {"note"}, {"used"}});
  table.add_row({"1", "", "2MiB"});
  EXPECT_EQ(table.render({}),
            "pid  used\n"
            "───  ────\n"
            "1    2MiB\n");
}

TEST(Table, MissingCellsAreEmptyAndLinesDoNotEndInSpaces) {
  Table table({{"a"}, {"b"}});
  EXPECT_TRUE(table.is_empty());
  table.add_row({"1"});
  table.add_row({"1", "2"});
  EXPECT_EQ(table.render({}), "a  b\n─  ─\n1\n1  2\n");
}

TEST(Table, ColourChangesNoWidth) {
  const Terminal color{.has_color = true};
  Table table({{"a"}, {"b"}});
  table.add_row({styled("bad", Tone::kBad, color), "2"});
  EXPECT_EQ(table.render(color),
            "\x1b[2ma\x1b[0m    \x1b[2mb\x1b[0m\n"
            "\x1b[2m───\x1b[0m  \x1b[2m─\x1b[0m\n"
            "\x1b[31mbad\x1b[0m  2\n");
}

}  // namespace
}  // namespace headroom::report
