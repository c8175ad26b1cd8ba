#include "headroom/report/terminal.h"

#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

// A file is never a terminal, whatever the tests are run from.
class TerminalOfAFile : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"COLUMNS", "NO_COLOR", "TERM", "LC_ALL", "LC_CTYPE", "LANG"}) {
      unsetenv(name);
    }
    file_ = open("/dev/null", O_RDWR);
  }
  void TearDown() override { close(file_); }
  [[nodiscard]] Terminal detect(ColorChoice choice = ColorChoice::kAuto) const {
    return detect_terminal(file_, choice);
  }

 private:
  int file_ = -1;
};

TEST_F(TerminalOfAFile, IsEightyColumnsWithoutColour) {
  EXPECT_FALSE(detect().is_terminal);
  EXPECT_FALSE(detect().has_color);
  EXPECT_EQ(detect().width, 80);
}

TEST_F(TerminalOfAFile, HasColourWhenAskedFor) {
  EXPECT_TRUE(detect(ColorChoice::kAlways).has_color);
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(detect(ColorChoice::kAlways).has_color);  // the option is the later word
}

TEST_F(TerminalOfAFile, TakesItsWidthFromTheEnvironment) {
  setenv("COLUMNS", "120", 1);
  EXPECT_EQ(detect().width, 120);
  setenv("COLUMNS", "3", 1);
  EXPECT_EQ(detect().width, 40);
  for (const char* garbage : {"", "wide", "-1", "0", "99999999999999999999"}) {
    setenv("COLUMNS", garbage, 1);
    EXPECT_EQ(detect().width, 80) << garbage;
  }
}

TEST_F(TerminalOfAFile, UsesUnicodeWhereTheLocaleSaysSo) {
  EXPECT_FALSE(detect().has_unicode);
  setenv("LANG", "en_US.UTF-8", 1);
  EXPECT_TRUE(detect().has_unicode);
  setenv("LC_CTYPE", "C.utf8", 1);
  EXPECT_TRUE(detect().has_unicode);
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(detect().has_unicode);
}

TEST(Styled, IsPlainWithoutColour) {
  EXPECT_EQ(styled("x", Tone::kBad, {}), "x");
  EXPECT_EQ(styled("x", Tone::kBad, {.has_color = true}), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(styled("x", Tone::kPlain, {.has_color = true}), "x");
  EXPECT_EQ(styled("", Tone::kBad, {.has_color = true}), "");
}

}  // namespace
}  // namespace headroom::report
