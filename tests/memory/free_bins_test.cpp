#include "headroom/memory/paged/internal/free_bins.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace headroom::memory::internal {
namespace {

PagedBlock& add_hole(std::deque<PagedBlock>& blocks, std::uint64_t size, DeviceAddress address) {
  PagedBlock& block = blocks.emplace_back();
  block.size = size;
  block.address = address;
  return block;
}

TEST(FreeBins, FindNothingWhenEmpty) {
  FreeBins bins;
  EXPECT_TRUE(bins.empty());
  EXPECT_EQ(bins.find(512), nullptr);
  EXPECT_EQ(bins.find(std::uint64_t{1} << 59U), nullptr);
  EXPECT_EQ(bins.check(), std::nullopt);
}

TEST(FreeBins, OfEqualHolesFindTheLowest) {
  std::deque<PagedBlock> blocks;
  FreeBins bins;
  for (const DeviceAddress address : {4096U, 1024U, 8192U}) {
    bins.insert(add_hole(blocks, 1024, address));
  }
  ASSERT_NE(bins.find(513), nullptr);
  EXPECT_EQ(bins.find(1024)->address, 1024U);
  bins.erase(*bins.find(1024));
  EXPECT_EQ(bins.find(1024)->address, 4096U);
}

// Few enough holes that no bin has more than are looked at.
TEST(FreeBins, FindTheSmallestThatIsLargeEnough) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937_64 random(seed);
  const auto draw = [&] { return 512 * (1 + random() % (std::uint64_t{1} << random() % 50U)); };
  std::deque<PagedBlock> blocks;
  std::vector<PagedBlock*> holes;
  FreeBins bins;
  for (int i = 0; i < 20'000; ++i) {
    if (holes.size() < 4 || (holes.size() < 8 && random() % 2 == 0)) {
      holes.push_back(&add_hole(blocks, draw(), 512 * (1 + random() % 4096)));
      bins.insert(*holes.back());
    } else {
      std::swap(holes[random() % holes.size()], holes.back());
      bins.erase(*holes.back());
      holes.pop_back();
    }
    const std::uint64_t size = draw();
    const PagedBlock* best = nullptr;
    for (const PagedBlock* hole : holes) {
      const bool is_better = best == nullptr || hole->size < best->size ||
                             (hole->size == best->size && hole->address < best->address);
      if (hole->size >= size && is_better) best = hole;
    }
    const PagedBlock* const found = bins.find(size);
    ASSERT_EQ(found == nullptr, best == nullptr);
    if (best == nullptr) continue;
    EXPECT_EQ(found->size, best->size);
    EXPECT_EQ(found->address, best->address);
  }
  EXPECT_EQ(bins.check(), std::nullopt);
}

}  // namespace
}  // namespace headroom::memory::internal
