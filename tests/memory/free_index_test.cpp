#include "headroom/memory/internal/free_index.h"

#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/memory/internal/block.h"

#include "tests/support/seed.h"

namespace headroom::memory::internal {
namespace {

TEST(FreeIndex, IsEmptyUntilSomethingIsPutIn) {
  FreeIndex index;
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.begin(), index.end());
  EXPECT_EQ(index.lower_bound(0), index.end());
  Block block;
  index.prepare(1);
  index.insert({.size = 512, .address = 4096, .block = &block});
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(index.at(index.lower_bound(512)).block, &block);
  EXPECT_EQ(index.lower_bound(513), index.end());
  index.erase(index.begin());
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.check_invariants(), std::nullopt);
}

TEST(FreeIndex, OrdersBySizeThenTieThenAddress) {
  FreeIndex index;
  std::vector<Block> blocks(4);
  index.prepare(4);
  index.insert({.size = 1024, .tie = 0, .address = 512, .block = &blocks[3]});
  index.insert({.size = 512, .tie = 2, .address = 512, .block = &blocks[2]});
  index.insert({.size = 512, .tie = 1, .address = 2048, .block = &blocks[1]});
  index.insert({.size = 512, .tie = 1, .address = 1024, .block = &blocks[0]});
  std::vector<Block*> order;
  index.for_each([&](const FreeKey& key) { order.push_back(key.block); });
  EXPECT_EQ(order, (std::vector<Block*>{&blocks[0], &blocks[1], &blocks[2], &blocks[3]}));
  EXPECT_EQ(index.at(index.previous(index.end())).block, &blocks[3]);
}

// Beside a std::set, from empty to thousands of keys and back, so that chunks are cut and joined.
TEST(FreeIndex, AnswersAsAnOrderedSetDoes) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  FreeIndex index;
  std::set<FreeKey> set;
  std::vector<FreeKey> keys;
  for (int i = 0; i < 60'000; ++i) {
    const bool grows = i / 10'000 % 2 == 0;
    if (keys.empty() || random() % 10 < (grows ? 7U : 3U)) {
      const FreeKey key{.size = (1 + random() % 50) * 512,
                        .tie = random() % 3,
                        .address = 512 * std::uint64_t{1 + random() % 100'000}};
      if (!set.insert(key).second) continue;
      keys.push_back(key);
      index.prepare(1);
      index.insert(key);
    } else {
      std::swap(keys[random() % keys.size()], keys.back());
      set.erase(keys.back());
      index.erase(keys.back());
      keys.pop_back();
    }
    const std::uint64_t wanted = random() % 52 * 512;
    const auto expected = set.lower_bound({.size = wanted});
    const auto found = index.lower_bound(wanted);
    ASSERT_EQ(found == index.end(), expected == set.end());
    if (expected != set.end()) {
      ASSERT_EQ(index.at(found).address, expected->address);
      const auto next = index.next(found);
      ASSERT_EQ(next == index.end(), std::next(expected) == set.end());
      ASSERT_EQ(found == index.begin(), expected == set.begin());
      if (expected != set.begin()) {
        ASSERT_EQ(index.at(index.previous(found)).address, std::prev(expected)->address);
      }
    }
    ASSERT_EQ(index.size(), set.size());
    if (i % 64 == 0) {
      ASSERT_EQ(index.check_invariants(), std::nullopt);
    }
  }
  auto expected = set.begin();
  for (auto at = index.begin(); at != index.end(); at = index.next(at), ++expected) {
    ASSERT_EQ(index.at(at).address, expected->address);
  }
  EXPECT_EQ(expected, set.end());
}

}  // namespace
}  // namespace headroom::memory::internal
