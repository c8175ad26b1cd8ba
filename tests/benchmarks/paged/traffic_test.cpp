// Traffic: what is written is the program that comes out.
#include "benchmarks/paged/traffic.h"

#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/player.h"

#include "benchmarks/paged/blocks.h"

namespace headroom::bench {
namespace {

using replay::Op;
using replay::OpKind;
using ::testing::ElementsAre;

TEST(Traffic, WritesTheOpsOfAProgram) {
  Traffic traffic({});
  const Block a = traffic.allocate(1000);
  const Block b = traffic.allocate(4_MiB, 2, 1);
  traffic.free(a);
  traffic.empty_cache();
  const Block c = traffic.allocate(512);
  traffic.free(b);
  traffic.free(c);
  const Made made = traffic.finish();
  const replay::Program& program = made.program;
  EXPECT_THAT(program.ops,
              ElementsAre(Op{.size_bytes = 1000, .slot = 0},
                          Op{.size_bytes = 4_MiB, .slot = 1, .stream = 2, .pool = 1},
                          Op{.slot = 0, .kind = OpKind::kFree},
                          Op{.kind = OpKind::kEmptyCache},
                          Op{.size_bytes = 512, .slot = 0},
                          Op{.slot = 1, .kind = OpKind::kFree},
                          Op{.slot = 0, .kind = OpKind::kFree}));
  EXPECT_EQ(program.streams.size(), 3U);
  EXPECT_EQ(program.pools.size(), 2U);
  EXPECT_EQ(program.slot_count, 2U);
  EXPECT_EQ(program.allocs, 3U);
  EXPECT_EQ(program.empty_caches, 1U);
  EXPECT_EQ(program.peak_live, 1024 + 4_MiB);
  EXPECT_EQ(program.peak_live_op, 1U);
  EXPECT_EQ(made.kept_bytes, 0U);
}

TEST(Traffic, HoldsAreNumberedAsTheyComplete) {
  Traffic traffic({});
  const Hold first = traffic.free_while_used(traffic.allocate(1_MiB));
  const Hold second = traffic.free_while_used(traffic.allocate(2_MiB));
  const Hold never = traffic.free_while_used(traffic.allocate(3_MiB));
  traffic.complete(second);
  traffic.complete(first);
  (void)never;
  const Made made = traffic.finish();
  const std::vector<Op>& ops = made.program.ops;
  EXPECT_EQ(ops[1].size_bytes, 2U);
  EXPECT_EQ(ops[3].size_bytes, 1U);
  EXPECT_EQ(ops[5].size_bytes, 3U);
  EXPECT_EQ(ops[6], (Op{.size_bytes = 1, .slot = 1, .kind = OpKind::kComplete}));
  EXPECT_EQ(ops[7], (Op{.size_bytes = 2, .slot = 0, .kind = OpKind::kComplete}));
  EXPECT_EQ(made.kept_bytes, 3_MiB);  // live until it completes
}

TEST(Traffic, AHeldBlockIsThereUntilItCompletesForTheAllocatorToo) {
  Traffic traffic({});
  const Hold hold = traffic.free_while_used(traffic.allocate(64_MiB, 1));
  const Block other = traffic.allocate(64_MiB, 1);
  traffic.complete(hold);
  traffic.use_briefly(64_MiB, 1);
  traffic.free(other);
  const Made made = traffic.finish();
  const auto result = replay::replay(made.program, {.version = made.program.version});
  EXPECT_EQ(result.peak_reserved, 128_MiB);
}

TEST(TrafficDeathTest, FreeingTwiceIsAMistakeOfOurs) {
  Traffic traffic({});
  const Block block = traffic.allocate(1);
  traffic.free(block);
  EXPECT_DEATH(traffic.free(block), "frees a block that is not there");
}

TEST(TrafficDeathTest, SoIsFreeingWhatIsPending) {
  Traffic traffic({});
  const Block block = traffic.allocate(1);
  (void)traffic.free_while_used(block);
  EXPECT_DEATH(traffic.free(block), "frees a block that is not there");
}

TEST(Traffic, RepetitionsFollowThePercentButNeverVanish) {
  EXPECT_EQ(Traffic({.percent = 100}).times(300), 300);
  EXPECT_EQ(Traffic({.percent = 10}).times(300), 30);
  EXPECT_EQ(Traffic({.percent = 1}).times(3), 1);
}

TEST(Random, DrawsTheSameNumbersOnEveryMachine) {
  Random random(1);
  EXPECT_EQ(random.next(), 0x5E41AB087439611EU);
  EXPECT_EQ(random.next(), 0xF18D6CE93D6CF1EEU);
  EXPECT_EQ(random.next(), 0x0B95F66D327E8D78U);
}

TEST(Random, KeepsToItsEnds) {
  Random random(7);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t value = random.between(3, 6);
    EXPECT_GE(value, 3U);
    EXPECT_LE(value, 6U);
    seen.insert(value);
    const std::uint64_t wide = random.by_octaves(512, 64_MiB);
    EXPECT_GE(wide, 512U);
    EXPECT_LE(wide, 64_MiB);
    const std::uint64_t heavy = random.heavy_tailed(1000, 1'000'000);
    EXPECT_GE(heavy, 1000U);
    EXPECT_LE(heavy, 1'000'000U);
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(Random, EveryOctaveIsAsLikely) {
  Random random(3);
  int lowest = 0;
  int highest = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::uint64_t size = random.by_octaves(1_MiB, 16_MiB - 1);
    if (size < 2_MiB) ++lowest;
    if (size >= 8_MiB) ++highest;
  }
  EXPECT_NEAR(lowest, 2000, 200);
  EXPECT_NEAR(highest, 2000, 200);
}

TEST(Random, AHeavyTailHalvesWithEveryOctave) {
  Random random(3);
  int lowest = 0;
  int next = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::uint64_t size = random.heavy_tailed(1_MiB, 1_GiB);
    if (size < 2_MiB) ++lowest;
    if (size >= 2_MiB && size < 4_MiB) ++next;
  }
  EXPECT_NEAR(lowest, 4000, 250);
  EXPECT_NEAR(next, 2000, 200);
}

TEST(Blocks, CountWhatTheyHoldWhateverIsDoneToThem) {
  Traffic traffic({});
  Blocks blocks(traffic);
  blocks.add(1_MiB, 4);
  blocks.replace(1, 3_MiB);
  EXPECT_EQ(blocks.bytes(), 6_MiB);
  EXPECT_EQ(traffic.live_bytes(), 6_MiB);
  blocks.free_random();
  blocks.free_first();
  blocks.free_last();
  EXPECT_EQ(blocks.bytes(), traffic.live_bytes());
  Blocks others(traffic);
  others.adopt(blocks.take_last());
  EXPECT_TRUE(blocks.is_empty());
  EXPECT_EQ(blocks.bytes(), 0U);
  EXPECT_EQ(others.bytes(), traffic.live_bytes());
  others.free_all();
  EXPECT_EQ(traffic.live_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::bench
