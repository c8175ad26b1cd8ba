// A tally beside a plain count of the same blocks: it says yes exactly where the count allows it.
#include "headroom/memory/internal/thread_tally.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/memory/internal/size_classes.h"

#include "tests/support/seed.h"

namespace headroom::memory::internal {
namespace {

// Every quantity as it is, without bounds: bytes of all categories in three ways, and of each.
class PlainCount {
 public:
  [[nodiscard]] bool may_add(const TallyBlock& block) const {
    return all_of(block, [](const Movement& m, std::int64_t by) { return m.may_rise(by); });
  }
  [[nodiscard]] bool may_remove(const TallyBlock& block) const {
    return all_of(block, [](const Movement& m, std::int64_t by) { return m.may_fall(by); });
  }
  void add(const TallyBlock& block) { tally_.add(block); }
  void remove(const TallyBlock& block) { tally_.remove(block); }
  [[nodiscard]] const ThreadTally& tally() const { return tally_; }

 private:
  template <class Question>
  [[nodiscard]] bool all_of(const TallyBlock& block, Question&& question) const {
    return question(tally_.allocated, block.size) && question(tally_.requested, block.requested) &&
           question(tally_.live, block.live()) &&
           question(tally_.categories[static_cast<std::size_t>(block.category)], block.size);
  }

  ThreadTally tally_{};
};

// Of a few sizes and categories, so that what is added is often removed again.
TallyBlock draw_block(std::mt19937& random) {
  constexpr std::array<std::int64_t, 7> kRequests{1, 500, 512, 4096, 7000, 57345, 65536};
  const std::int64_t requested = kRequests[random() % kRequests.size()];
  const std::size_t size_class = size_class_of(static_cast<std::uint64_t>(requested));
  return {.size = kClasses[size_class].block_bytes,
          .requested = requested,
          .category = random() % 8 == 0 ? Category::kGradient : Category::kActivation};
}

void expect_same(const Movement& a, const Movement& b) {
  EXPECT_EQ(a.came, b.came);
  EXPECT_EQ(a.went, b.went);
  EXPECT_EQ(a.most, b.most);
}

TEST(ThreadTally, SaysYesExactlyWhereEveryQuantityStaysWithinItsBounds) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  ThreadTally tally;
  PlainCount plain;
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const TallyBlock block = draw_block(random);
    const bool is_add = random() % 2 == 0;
    const bool is_allowed = is_add ? plain.may_add(block) : plain.may_remove(block);
    ASSERT_EQ(is_add ? tally.try_add(block) : tally.try_remove(block), is_allowed) << i;
    if (is_allowed) {
      is_add ? plain.add(block) : plain.remove(block);
    } else if (++refused % 3 == 0) {  // folded, as the thread then does; or the next is tried
      tally = {};
      plain = {};
    }
  }
  EXPECT_GT(refused, 100);
  expect_same(tally.blocks, plain.tally().blocks);
  expect_same(tally.allocated, plain.tally().allocated);
  expect_same(tally.requested, plain.tally().requested);
  expect_same(tally.live, plain.tally().live);
}

}  // namespace
}  // namespace headroom::memory::internal
