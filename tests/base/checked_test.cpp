#include "headroom/base/checked.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Checked, AddsUpToTheLastNumberAndNotPastIt) {
  EXPECT_EQ(checked_add(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(checked_add(UINT64_MAX, 1), std::nullopt);
}

TEST(Checked, MultipliesUpToTheLastNumberAndNotPastIt) {
  EXPECT_EQ(checked_mul(0, UINT64_MAX), 0U);
  EXPECT_EQ(checked_mul(UINT64_MAX, 1), UINT64_MAX);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32U, std::uint64_t{1} << 32U), std::nullopt);
}

TEST(Checked, RoundsUpToAnyStep) {
  EXPECT_EQ(checked_round_up(0, 512), 0U);
  EXPECT_EQ(checked_round_up(1, 512), 512U);
  EXPECT_EQ(checked_round_up(20, 7), 21U);
  EXPECT_EQ(checked_round_up(UINT64_MAX, 512), std::nullopt);
  EXPECT_EQ(round_up(513, 512), 1024U);
  EXPECT_EQ(round_down(1023, 512), 512U);
}

}  // namespace
}  // namespace headroom
