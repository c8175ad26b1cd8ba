#include "headroom/memory/caching/internal/free_index.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/memory/caching/internal/block.h"

#include "tests/support/seed.h"

namespace headroom::memory::internal {
namespace {

Block block_at(std::uint64_t size, std::uint64_t tie, DeviceAddress address) {
  Block block;
  block.size = size;
  block.tie = tie;
  block.address = address;
  return block;
}

bool is_before(const Block* a, const Block* b) {
  if (a->size != b->size) return a->size < b->size;
  if (a->tie != b->tie) return a->tie < b->tie;
  return a->address < b->address;
}

TEST(FreeIndex, IsEmptyUntilSomethingIsPutIn) {
  FreeIndex index;
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.begin(), index.end());
  EXPECT_EQ(index.lower_bound(0), index.end());
  Block block = block_at(512, 0, 4096);
  index.prepare(1);
  index.insert(block);
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(&index.at(index.lower_bound(512)), &block);
  EXPECT_EQ(index.lower_bound(513), index.end());
  index.erase(index.begin());
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.check_invariants(), std::nullopt);
}

TEST(FreeIndex, OrdersBySizeThenTieThenAddress) {
  FreeIndex index;
  std::array<Block, 4> blocks{block_at(512, 1, 1024),
                              block_at(512, 1, 2048),
                              block_at(512, 2, 512),
                              block_at(1024, 0, 512)};
  index.prepare(4);
  for (const std::size_t i : {3U, 2U, 1U, 0U}) index.insert(blocks[i]);
  std::vector<Block*> order;
  index.for_each([&](Block& block) { order.push_back(&block); });
  EXPECT_EQ(order, (std::vector<Block*>{&blocks[0], &blocks[1], &blocks[2], &blocks[3]}));
  EXPECT_EQ(&index.at(index.previous(index.end())), &blocks[3]);
}

TEST(FreeIndex, FindsItsWayAmongManyOfOneSize) {
  FreeIndex index;
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 500; ++i) blocks.push_back(block_at(512, 0, 512 * (i * 7 % 500)));
  for (Block& block : blocks) {
    index.prepare(1);
    index.insert(block);
  }
  EXPECT_EQ(index.check_invariants(), std::nullopt);
  for (Block& block : blocks) EXPECT_EQ(&index.at(index.find(block)), &block);
  for (Block& block : blocks) index.erase(block);
  EXPECT_TRUE(index.empty());
}

// Beside a std::set, from empty to thousands of blocks and back, so that chunks are cut and joined.
TEST(FreeIndex, AnswersAsAnOrderedSetDoes) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937 random(seed);
  FreeIndex index;
  std::set<Block*, decltype(&is_before)> set(&is_before);
  std::vector<std::unique_ptr<Block>> blocks;
  const auto draw = [&](Block& block) {
    block.size = (1 + random() % 50) * 512;
    block.tie = random() % 3;
    block.address = 512 * std::uint64_t{1 + random() % 100'000};
  };
  for (int i = 0; i < 60'000; ++i) {
    const bool grows = i / 10'000 % 2 == 0;
    const auto dice = random() % 10;
    if (blocks.empty() || dice < (grows ? 6U : 3U)) {
      auto block = std::make_unique<Block>();
      draw(*block);
      if (!set.insert(block.get()).second) continue;
      index.prepare(1);
      index.insert(*block);
      blocks.push_back(std::move(block));
    } else if (dice < 8U) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      set.erase(blocks.back().get());
      index.erase(*blocks.back());
      blocks.pop_back();
    } else {  // one changes, as after a split or a merge
      Block& block = *blocks[random() % blocks.size()];
      Block other;
      draw(other);
      if (set.contains(&other)) continue;
      const auto at = index.find(block);
      set.erase(&block);
      block.size = other.size;
      block.tie = other.tie;
      block.address = other.address;
      set.insert(&block);
      index.prepare(1);
      index.replace(at, block);
    }
    Block wanted;
    wanted.size = random() % 52 * 512;
    const auto expected = set.lower_bound(&wanted);
    const auto found = index.lower_bound(wanted.size);
    ASSERT_EQ(found == index.end(), expected == set.end());
    if (expected != set.end()) {
      ASSERT_EQ(&index.at(found), *expected);
      const auto next = index.next(found);
      ASSERT_EQ(next == index.end(), std::next(expected) == set.end());
      ASSERT_EQ(found == index.begin(), expected == set.begin());
      if (expected != set.begin()) {
        ASSERT_EQ(&index.at(index.previous(found)), *std::prev(expected));
      }
    }
    ASSERT_EQ(index.size(), set.size());
    if (i % 64 == 0) {
      ASSERT_EQ(index.check_invariants(), std::nullopt);
    }
  }
  auto expected = set.begin();
  for (auto at = index.begin(); at != index.end(); at = index.next(at), ++expected) {
    ASSERT_EQ(&index.at(at), *expected);
  }
  EXPECT_EQ(expected, set.end());
}

}  // namespace
}  // namespace headroom::memory::internal
