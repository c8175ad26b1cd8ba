#include "headroom/tensor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Shape, CountsAndChecks) {
  EXPECT_EQ(checked_numel("op", {2, 3, 4}), 24);
  EXPECT_EQ(checked_numel("op", {}), 1);
  EXPECT_EQ(checked_numel("op", {std::int64_t{1} << 62, 0, std::int64_t{1} << 62}), 0);
  EXPECT_THAT(
      [] {
        (void)checked_numel("op", {std::int64_t{1} << 62, 4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("op: [4611686018427387904, 4] has more")));
  EXPECT_THAT([] { (void)checked_bytes("op", {std::int64_t{1} << 62}, 8); },
              ThrowsMessage<InvalidArgument>(HasSubstr("more bytes")));
  EXPECT_THAT(
      [] {
        (void)checked_numel("op", {2, -1});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("op: negative size in [2, -1]")));
}

TEST(Shape, HasAtMostEightDimensions) {
  Shape shape = Dims::filled(8, 1);
  EXPECT_THAT([&] { shape.push_back(1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("at most 8 dimensions, not 9")));
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast_shapes("op", {2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes("op", {}, {3}), (Shape{3}));
  EXPECT_EQ(broadcast_shapes("op", {0}, {1}), (Shape{0}));
  EXPECT_THAT(
      [] {
        (void)broadcast_shapes("add", {2, 3}, {4, 3});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("add: shapes do not broadcast: [2, 3] and [4, 3]")));
  EXPECT_EQ(broadcast_strides({3, 1}, {5, 1}, {2, 3, 4}), (Strides{0, 5, 0}));
}

TEST(Shape, KnowsWhatIsContiguous) {
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(is_contiguous({2, 1}, {1, 77}));
  EXPECT_TRUE(is_contiguous({0, 3}, {9, 9}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Strides{3, 3, 1}));
}

}  // namespace
}  // namespace headroom
