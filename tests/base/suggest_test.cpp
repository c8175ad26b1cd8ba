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
  constexpr std::array<std::string_view, 4> known{"devices", "doctor", "replay", "tune"};
  EXPECT_EQ(suggest("devcies", known), "devices");
  EXPECT_EQ(suggest("dev", known), "devices");
  EXPECT_EQ(suggest("docter", known), "doctor");
  EXPECT_EQ(suggest("tuen", known), "tune");
}

TEST(Suggest, IsSilentAboutOtherWords) {
  constexpr std::array<std::string_view, 2> known{"devices", "tune"};
  EXPECT_EQ(suggest("", known), std::nullopt);
  EXPECT_EQ(suggest("x", known), std::nullopt);
  EXPECT_EQ(suggest("foo", known), std::nullopt);
  EXPECT_EQ(suggest(std::string(100000, 'd'), known), std::nullopt);
}

}  // namespace
}  // namespace headroom
