#include "headroom/base/suggest.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(EditDistance, CountsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("devices", "devices"), 0);
  EXPECT_EQ(edit_distance("device", "devices"), 1);
  EXPECT_EQ(edit_distance("devcies", "devices"), 1);  // two neighbours swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Suggest, FindsWhatWasMeant) {
  constexpr std::array<std::string_view, 4> kKnown{"devices", "doctor", "replay", "tune"};
  EXPECT_EQ(suggest("devcies", kKnown), "devices");
  EXPECT_EQ(suggest("dev", kKnown), "devices");
  EXPECT_EQ(suggest("docter", kKnown), "doctor");
  EXPECT_EQ(suggest("tuen", kKnown), "tune");
}

TEST(Suggest, IsSilentAboutOtherWords) {
  constexpr std::array<std::string_view, 2> kKnown{"devices", "tune"};
  EXPECT_EQ(suggest("", kKnown), std::nullopt);
  EXPECT_EQ(suggest("x", kKnown), std::nullopt);
  EXPECT_EQ(suggest("foo", kKnown), std::nullopt);
  EXPECT_EQ(suggest(std::string(100000, 'd'), kKnown), std::nullopt);
}

}  // namespace
}  // namespace headroom
