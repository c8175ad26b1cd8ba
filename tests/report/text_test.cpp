#include "headroom/report/text.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/report/terminals.h"

namespace headroom::report {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  struct Case {
    std::string text;
    int width;
  };
  const std::vector<Case> cases{{"", 0},
                                {"abc", 3},
                                {"größe", 5},
                                {"██░", 3},
                                {"日本", 4},
                                {"e\u0301", 1},
                                {"\x1b[1mbold\x1b[0m", 4},
                                {"\xff\xfe", 2},   // never valid
                                {"\xe2\x96", 2},   // cut in the middle
                                {"\x1b[", 0},      // an escape without an end
                                {"\xe2(\xa1", 3},  // a lead byte without its sequence
                                {"\U0001F9E0", 2}};
  for (const Case& c : cases) EXPECT_EQ(display_width(c.text), c.width) << c.text;
}

TEST(Pad, FillsUpToTheWidth) {
  EXPECT_EQ(pad("ü", 3), "ü  ");
  EXPECT_EQ(pad("ü", 3, Align::kRight), "  ü");
  EXPECT_EQ(pad("ü", 4, Align::kCenter), " ü  ");
  EXPECT_EQ(pad("longer", 3), "longer");
}

TEST(Shorten, MarksWhatItCut) {
  EXPECT_EQ(shorten("Processor", 9, kUnicode), "Processor");
  EXPECT_EQ(shorten("Processor", 6, kUnicode), "Proce…");
  EXPECT_EQ(shorten("Processor", 6, kAscii), "Pro...");
  EXPECT_EQ(shorten("日本語", 4, kUnicode), "日…");
  EXPECT_EQ(shorten("two words", 5, kUnicode), "two…");
}

TEST(Wrap, BreaksAtSpaces) {
  EXPECT_EQ(wrap("", 10), std::vector<std::string>{});
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("a incomprehensible b", 5),
            (std::vector<std::string>{"a", "incomprehensible", "b"}));
  EXPECT_EQ(wrapped("one two three", 2, 9), "  one two\n  three\n");
}

TEST(Printable, NeverMovesTheCursorOrBreaksTheLine) {
  EXPECT_EQ(printable("a\nb\tc\n"), "a b c");
  EXPECT_EQ(printable("\x1b[2Jx\x7f"), "?[2Jx?");
  EXPECT_EQ(printable("größe"), "größe");
}

}  // namespace
}  // namespace headroom::report
