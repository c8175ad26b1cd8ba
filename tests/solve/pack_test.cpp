// The packer against every packing of tiny problems, and its promises on large ones.
#include "headroom/solve/pack.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/solve/validate_packing.h"

#include "tests/support/sanitized.h"
#include "tests/support/seed.h"

namespace headroom::solve {
namespace {

class BufferMaker {
 public:
  explicit BufferMaker(unsigned seed) : random_(seed) {}

  std::uint64_t number(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random_);
  }

  std::vector<Buffer> make(std::size_t count,
                           std::uint64_t last_time,
                           std::uint64_t longest,
                           std::uint64_t largest) {
    std::vector<Buffer> out;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t lower = number(0, last_time - 1);
      out.push_back(
          {.lower = lower, .upper = lower + number(1, longest), .size_bytes = number(1, largest)});
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

// Of all packings: every buffer in turn on every height, for sums of small sizes.
class EveryPacking {
 public:
  explicit EveryPacking(const std::vector<Buffer>& buffers) : buffers_(buffers) {}

  std::uint64_t least_height() {
    for (std::uint64_t height = peak_load(buffers_);; ++height) {
      offsets_.clear();
      if (can_place(height)) return height;
    }
  }

 private:
  bool can_place(std::uint64_t height) {
    const std::size_t next = offsets_.size();
    if (next == buffers_.size()) return true;
    const Buffer& one = buffers_[next];
    for (std::uint64_t at = 0; at + one.size_bytes <= height; at += one.alignment) {
      if (!is_free(one, at)) continue;
      offsets_.push_back(at);
      if (can_place(height)) return true;
      offsets_.pop_back();
    }
    return false;
  }

  [[nodiscard]] bool is_free(const Buffer& one, std::uint64_t at) const {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const Buffer& other = buffers_[i];
      if (one.lower >= other.upper || other.lower >= one.upper) continue;
      if (at < offsets_[i] + other.size_bytes && offsets_[i] < at + one.size_bytes) return false;
    }
    return true;
  }

  const std::vector<Buffer>& buffers_;
  Offsets offsets_{};
};

void expect_valid(const std::vector<Buffer>& buffers, const PackResult& packed) {
  const auto fault = find_packing_fault(buffers, packed.offsets, packed.height_bytes);
  EXPECT_FALSE(fault.has_value()) << to_string(*fault);
  EXPECT_EQ(height_of(buffers, packed.offsets), packed.height_bytes);
  EXPECT_GE(packed.lower_bound_bytes, peak_load(buffers));
  EXPECT_LE(packed.lower_bound_bytes, packed.height_bytes);
}

TEST(Pack, IsOptimalOnTinyProblems) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  BufferMaker make(seed);
  for (int round = 0; round < headroom::testing::rounds(1500); ++round) {
    SCOPED_TRACE(round);
    std::vector<Buffer> buffers = make.make(make.number(1, 7), 8, 5, 4);
    if (round % 3 == 0) {
      for (Buffer& one : buffers) one.alignment = make.number(1, 3);
    }
    const PackResult packed = pack(buffers, {.seconds = 60});
    expect_valid(buffers, packed);
    EXPECT_TRUE(packed.is_optimal());
    EXPECT_EQ(packed.height_bytes, EveryPacking(buffers).least_height());
    if (HasFailure()) return;
  }
}

TEST(Pack, FindsAPackingThatIsHiddenInASlicedBlock) {
  // A rectangle of time and bytes, cut into pieces: the pieces fill it without a hole.
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  BufferMaker make(seed + 1);
  for (int round = 0; round < 5; ++round) {
    std::vector<Buffer> pieces{{.lower = 0, .upper = 1000, .size_bytes = 1000}};
    while (pieces.size() < 60) {
      const std::size_t at = make.number(0, pieces.size() - 1);
      Buffer& one = pieces[at];
      Buffer other = one;
      if (make.number(0, 1) == 0 && one.upper - one.lower > 1) {
        other.lower = one.upper = make.number(one.lower + 1, one.upper - 1);
      } else if (one.size_bytes > 1) {
        other.size_bytes = make.number(1, one.size_bytes - 1);
        one.size_bytes -= other.size_bytes;
      } else {
        continue;
      }
      pieces.push_back(other);
    }
    const PackResult packed = pack(pieces, {.capacity_bytes = 1000, .seconds = 60});
    expect_valid(pieces, packed);
    EXPECT_EQ(packed.height_bytes, 1000U);
  }
}

TEST(Pack, ProvesThatACapacityIsTooSmall) {
  // Three of a ring of five live at any moment, two bytes each, and no packing has them in six.
  const std::vector<Buffer> buffers{{.lower = 0, .upper = 4, .size_bytes = 2},
                                    {.lower = 2, .upper = 6, .size_bytes = 3},
                                    {.lower = 5, .upper = 9, .size_bytes = 2},
                                    {.lower = 0, .upper = 3, .size_bytes = 1},
                                    {.lower = 3, .upper = 9, .size_bytes = 1},
                                    {.lower = 8, .upper = 9, .size_bytes = 3}};
  const std::uint64_t least = EveryPacking(buffers).least_height();
  const PackResult packed = pack(buffers, {.capacity_bytes = least - 1, .seconds = 60});
  EXPECT_GE(packed.lower_bound_bytes, least);
  EXPECT_LT(packed.seconds, 30);
}

TEST(Pack, IsTheSameForASeedAndANumberOfRounds) {
  BufferMaker make(7);
  for (const std::size_t count : {50U, 3000U}) {
    const std::vector<Buffer> buffers = make.make(count, 500, 60, 100);
    const PackOptions options{.seconds = 1e9, .seed = 3, .most_rounds = 6};
    const PackResult first = pack(buffers, options);
    const PackResult second = pack(buffers, options);
    EXPECT_EQ(first.offsets, second.offsets);
    EXPECT_EQ(first.lower_bound_bytes, second.lower_bound_bytes);
  }
}

TEST(Pack, KeepsTheTimeLimit) {
  if (headroom::testing::kIsSanitized) GTEST_SKIP() << "a sanitizer's time is not ours";
  BufferMaker make(headroom::testing::test_seed());
  for (const std::size_t count : {400U, 20'000U}) {
    const std::vector<Buffer> buffers = make.make(count, 100'000, 10'000, 1'000'000);
    const PackResult packed = pack(buffers, {.seconds = 0.5});
    expect_valid(buffers, packed);
    EXPECT_LT(packed.seconds, 5);
  }
}

TEST(Pack, TakesAHundredThousandBuffers) {
  BufferMaker make(headroom::testing::test_seed());
  const auto count = static_cast<std::size_t>(headroom::testing::rounds(100'000));
  const std::vector<Buffer> buffers = make.make(count, 1'000'000, 3000, 1'000'000);
  const PackResult packed = pack(buffers, {.seconds = 1});
  expect_valid(buffers, packed);
  EXPECT_LT(packed.gap(), 0.5);
}

// Every stretch of the skyline has tens of thousands of buffers that fit: looking at each of them
// took longer than there was.
TEST(Pack, FindsItsWayAmongManyBuffersThatAreAlike) {
  std::vector<Buffer> pairs;
  std::vector<Buffer> nested;
  const auto count = static_cast<std::uint64_t>(headroom::testing::rounds(100'000));
  for (std::uint64_t i = 0; i < count; ++i) {
    pairs.push_back({.lower = i, .upper = i + 2, .size_bytes = 1 + i * 7919 % 1'000'003});
    nested.push_back(
        {.lower = i, .upper = 2 * count + 1 - i, .size_bytes = 1 + i * 7919 % 1'000'003});
  }
  for (const auto& buffers : {pairs, nested}) {
    const PackResult packed = pack(buffers, {.seconds = 60});
    expect_valid(buffers, packed);
    EXPECT_TRUE(packed.is_optimal());
  }
}

TEST(Pack, HandlesTheEdges) {
  EXPECT_EQ(pack({}).height_bytes, 0U);
  EXPECT_EQ(pack({}).gap(), 0);
  const std::vector<Buffer> empty{{.lower = 0, .upper = 1, .size_bytes = 0}};
  EXPECT_EQ(pack(empty).height_bytes, 0U);
  const std::vector<Buffer> one{{.lower = 5, .upper = 6, .size_bytes = std::uint64_t{1} << 61U}};
  EXPECT_EQ(pack(one).height_bytes, std::uint64_t{1} << 61U);
  const std::vector<Buffer> ends_at_the_last_moment{
      {.lower = 0, .upper = UINT64_MAX, .size_bytes = 3},
      {.lower = UINT64_MAX - 1, .upper = UINT64_MAX, .size_bytes = 4}};
  EXPECT_EQ(pack(ends_at_the_last_moment).height_bytes, 7U);
  // All at once: nothing to choose, whatever the number.
  const std::vector<Buffer> all(5000, {.lower = 0, .upper = 9, .size_bytes = 2});
  EXPECT_EQ(pack(all, {.seconds = 60}).height_bytes, 10'000U);
}

TEST(Pack, UsesHints) {
  BufferMaker make(11);
  std::vector<Buffer> buffers = make.make(3000, 5000, 300, 100);
  const PackResult good = pack(buffers, {.seconds = 1e9, .most_rounds = 40});
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].hint_offset = good.offsets[i];
  EXPECT_LE(pack(buffers, {.seconds = 0}).height_bytes, good.height_bytes);
}

TEST(Pack, RefusesWhatCannotBe) {
  const auto refusal = [](const Buffer& one, double seconds) -> std::string {
    try {
      (void)pack(std::span(&one, 1), {.seconds = seconds});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.lower = 3, .upper = 3, .size_bytes = 1}, 1),
            "pack: buffer 0 lives from 3 to 3; its end must be later than its start");
  EXPECT_EQ(refusal({.lower = 3, .upper = 4, .size_bytes = 1, .alignment = 0}, 1),
            "pack: buffer 0 has alignment 0; 1 is none");
  EXPECT_EQ(refusal({.lower = 3, .upper = 4, .size_bytes = UINT64_MAX}, 1),
            "pack: the sizes add up to more than 2^62 bytes");
  EXPECT_EQ(refusal({.lower = 3, .upper = 4, .size_bytes = 1}, -1),
            "pack: seconds must not be negative");
  EXPECT_EQ(refusal({.lower = 3, .upper = 4, .size_bytes = 1}, std::nan("")),
            "pack: seconds must not be negative");
}

}  // namespace
}  // namespace headroom::solve
