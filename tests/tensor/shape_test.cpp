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
  EXPECT_EQ(checked_numel("op", {std::int64_t{1} << 62, 0}), 0);
  // Strides would be made of the product of the others (#21).
  EXPECT_THAT(
      [] {
        (void)checked_numel("op", {std::int64_t{1} << 62, 0, std::int64_t{1} << 62});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("op: [4611686018427387904, 0, 4611686018427387904] has sizes whose product")));
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

// A number of 64 bits is not cut to one that would be in range (#21).
TEST(Shape, TakesDimensionsOfAnySize) {
  EXPECT_EQ(normalize_dim("op", -1, {2, 3}), 1);
  for (const std::int64_t dim : {std::int64_t{1} << 32, -(std::int64_t{1} << 32), INT64_MIN}) {
    EXPECT_THAT(
        [dim] {
          (void)normalize_dim("op", dim, {2, 3});
        },
        ThrowsMessage<InvalidArgument>(
            HasSubstr("op: dimension " + std::to_string(dim) + " is not in [2, 3]")));
  }
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
