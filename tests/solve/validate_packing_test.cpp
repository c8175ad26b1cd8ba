// The validator finds every way in which a packing can be wrong.
#include "headroom/solve/validate_packing.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/solve/pack.h"

#include "tests/support/seed.h"

namespace headroom::solve {
namespace {

std::optional<PackingFaultKind> fault_of(const std::vector<Buffer>& buffers,
                                         const Offsets& offsets,
                                         std::uint64_t capacity) {
  const auto fault = find_packing_fault(buffers, offsets, capacity);
  return fault ? std::optional(fault->kind) : std::nullopt;
}

TEST(ValidatePacking, FindsEachFault) {
  const std::vector<Buffer> buffers{{.lower = 0, .upper = 2, .size_bytes = 4},
                                    {.lower = 1, .upper = 3, .size_bytes = 4, .alignment = 4},
                                    {.lower = 2, .upper = 4, .size_bytes = 4}};
  EXPECT_EQ(fault_of(buffers, {0, 4, 0}, 8), std::nullopt);
  EXPECT_EQ(fault_of(buffers, {0, 4}, 8), PackingFaultKind::kMissing);
  EXPECT_EQ(fault_of(buffers, {0, 4, 0, 0}, 8), PackingFaultKind::kMissing);
  EXPECT_EQ(fault_of(buffers, {0, 5, 0}, 9), PackingFaultKind::kUnaligned);
  EXPECT_EQ(fault_of(buffers, {0, 4, 0}, 7), PackingFaultKind::kPastTheEnd);
  EXPECT_EQ(fault_of(buffers, {UINT64_MAX, 4, 0}, 8), PackingFaultKind::kPastTheEnd);
  EXPECT_EQ(fault_of(buffers, {1, 4, 0}, 8), PackingFaultKind::kOverlapping);
  EXPECT_EQ(fault_of(buffers, {0, 4, 5}, 9), PackingFaultKind::kOverlapping);
  EXPECT_EQ(fault_of(buffers, {4, 4, 0}, 8), PackingFaultKind::kOverlapping);
  EXPECT_EQ(to_string(*find_packing_fault(buffers, {1, 4, 0}, 8)), "buffer 1 and buffer 0 overlap");
}

TEST(ValidatePacking, AgreesWithLookingAtEveryPair) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  const auto number = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  int wrong = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<Buffer> buffers;
    Offsets offsets;
    for (std::uint64_t count = number(1, 6); count > 0; --count) {
      const std::uint64_t lower = number(0, 10);
      buffers.push_back(
          {.lower = lower, .upper = lower + number(1, 6), .size_bytes = number(0, 4)});
      offsets.push_back(number(0, 12));
    }
    bool overlaps = false;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Buffer& a = buffers[i];
        const Buffer& b = buffers[j];
        overlaps =
            overlaps ||
            (a.lower < b.upper && b.lower < a.upper && offsets[i] < offsets[j] + b.size_bytes &&
             offsets[j] < offsets[i] + a.size_bytes && a.size_bytes > 0 && b.size_bytes > 0);
      }
    }
    wrong += overlaps ? 1 : 0;
    EXPECT_EQ(find_packing_fault(buffers, offsets, 100).has_value(), overlaps) << round;
  }
  EXPECT_GT(wrong, 500);
}

}  // namespace
}  // namespace headroom::solve
