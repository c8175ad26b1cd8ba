#include "headroom/base/file_name.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(FileName, IsWhatFollowsTheLastSlash) {
  EXPECT_EQ(file_name("/traces/a.b/run.hrt"), "run.hrt");
  EXPECT_EQ(file_name("run.hrt"), "run.hrt");
  EXPECT_EQ(file_name("traces/"), "");
  EXPECT_EQ(file_name(""), "");
}

}  // namespace
}  // namespace headroom
