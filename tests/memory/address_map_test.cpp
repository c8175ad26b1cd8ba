#include "headroom/memory/internal/address_map.h"

#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/memory/caching/internal/block.h"

#include "tests/support/seed.h"

namespace headroom::memory::internal {
namespace {

TEST(AddressMap, FindsNothingWhenEmpty) {
  AddressMap<Block> map;
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.find(512), nullptr);
}

// Beside a hash map of the library: neighbours in address, as blocks are, and strangers.
TEST(AddressMap, AnswersAsAMapDoes) {
  const unsigned seed = headroom::testing::test_seed();
  SCOPED_TRACE(headroom::testing::seed_text(seed));
  std::mt19937_64 random(seed);
  AddressMap<Block> map;
  std::unordered_map<DeviceAddress, Block*> expected;
  std::vector<DeviceAddress> addresses;
  std::vector<Block> blocks(16);
  for (int i = 0; i < 100'000; ++i) {
    const bool grows = i / 20'000 % 2 == 0;
    if (addresses.empty() || random() % 10 < (grows ? 6U : 4U)) {
      const DeviceAddress address =
          512 *
          (random() % 4 == 0 ? 1 + random() % (std::uint64_t{1} << 38U) : 1 + random() % 9000);
      Block* block = &blocks[random() % blocks.size()];
      if (!expected.emplace(address, block).second) continue;
      addresses.push_back(address);
      map.prepare();
      map.insert(address, block);
    } else {
      std::swap(addresses[random() % addresses.size()], addresses.back());
      map.erase(addresses.back());
      expected.erase(addresses.back());
      addresses.pop_back();
    }
    const DeviceAddress probe = 512 * (1 + random() % 9000);
    const auto found = expected.find(probe);
    ASSERT_EQ(map.find(probe), found == expected.end() ? nullptr : found->second);
    ASSERT_EQ(map.find(probe + 1), nullptr);
    ASSERT_EQ(map.size(), expected.size());
  }
  for (const auto& [address, block] : expected) ASSERT_EQ(map.find(address), block);
  std::size_t count = 0;
  map.for_each([&](Block&) { ++count; });
  EXPECT_EQ(count, expected.size());
}

}  // namespace
}  // namespace headroom::memory::internal
